//! Machines with their beginning and lifetime, under a header that names the columns.

use super::csv::{bad_value, lines};
use super::{Series, TraceError};

const START: &str = "start_utc";
const LIFETIME: &str = "lifetime_s";
const ENDED_BY: &str = "ended_by";
const COLUMNS: &str = "start_utc,lifetime_s and further columns, as many as the header has";
const TIME: &str = "a time like 2019-02-18T16:57:39Z";

/// Whether the first line names the columns of lifetimes.
pub(super) fn has_header(text: &str) -> bool {
    text.lines().next().is_some_and(|line| column(line, START).and(column(line, LIFETIME)).is_some())
}

pub(super) fn parse(text: &str) -> Result<Series, TraceError> {
    let ends = rows(text)?.into_iter().flat_map(|row| {
        let start_ms = row.start_s * 1000;
        [(start_ms, 1), (start_ms + u64::from(row.lifetime_s) * 1000, -1)]
    });
    Series::from_deltas(ends)
}

/// A machine's line.
pub(super) struct Row {
    start_s: u64,
    pub(super) lifetime_s: u32,
    /// Whether the provider took it. Without the column `ended_by` every machine counts as taken.
    pub(super) taken: bool,
}

pub(super) fn rows(text: &str) -> Result<Vec<Row>, TraceError> {
    let mut lines = lines(text);
    let (_, header) = lines.next().ok_or(TraceError::Empty)?;
    let count = header.split(',').count();
    let (Some(start), Some(lifetime)) = (column(header, START), column(header, LIFETIME)) else {
        return Err(TraceError::Columns { line: 1, expected: COLUMNS });
    };
    let end = column(header, ENDED_BY);
    let mut rows = Vec::new();
    for (line, content) in lines {
        let values: Vec<_> = content.split(',').map(str::trim).collect();
        if values.len() != count {
            return Err(TraceError::Columns { line, expected: COLUMNS });
        }
        let start_s = unix_seconds(values[start]).ok_or_else(|| bad_value(line, values[start], TIME))?;
        let lifetime_s =
            values[lifetime].parse().map_err(|_| bad_value(line, values[lifetime], "whole seconds"))?;
        let taken = match end.map(|end| values[end]) {
            None | Some("preempted") => true,
            Some("stopped") => false,
            Some(other) => return Err(bad_value(line, other, "preempted or stopped")),
        };
        rows.push(Row { start_s, lifetime_s, taken });
    }
    Ok(rows)
}

fn column(header: &str, name: &str) -> Option<usize> {
    header.split(',').position(|column| column.trim() == name)
}

/// Seconds since 1970 of a time in UTC without fractions.
fn unix_seconds(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month = usize::try_from(month).ok().filter(|month| (1..=12).contains(month))?;
    let is_valid = (1970..=9999).contains(&year)
        && (1..=months[month - 1]).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let days = years + months[..month - 1].iter().sum::<u64>() + day - 1;
    is_valid.then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let parts: Option<Vec<u64>> =
        text.split(separator).map(|part| part.parse().ok().filter(|number| *number <= 9999)).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::unix_seconds;

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(unix_seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(unix_seconds("2000-02-29T23:59:59Z"), Some(951_868_799));
        assert_eq!(unix_seconds("2019-02-18T16:57:39Z"), Some(1_550_509_059));
    }

    #[test]
    fn times_that_do_not_exist_are_refused() {
        for text in ["2019-02-29T00:00:00Z", "2019-13-01T00:00:00Z", "2019-01-01T24:00:00Z", "2019-01-01", ""]
        {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
