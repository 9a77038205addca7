//! Times, sizes, lists and tables as people read them.

use std::time::Duration;

/// A length of time in its two largest units, and below a minute to a tenth: `3.2ms`, `214ms`,
/// `9.7s`, `14m 58s`, `6d 23h`.
pub(crate) fn duration(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
    match (seconds, micros) {
        (0, 0) => "0s".to_owned(),
        (0, ..10_000) => tenths(micros / 100, "ms"),
        (0, _) => format!("{}ms", micros / 1_000),
        (1..60, _) => tenths(u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX), "s"),
        _ => {
            let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
            let (unit, name) = UNITS[largest];
            let whole = format!("{}{name}", seconds / unit);
            match UNITS.get(largest + 1).map(|(next, name)| (seconds % unit / next, name)) {
                None | Some((0, _)) => whole,
                Some((rest, name)) => format!("{whole} {rest}{name}"),
            }
        }
    }
}

fn tenths(tenths: u32, unit: &str) -> String {
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        tenth => format!("{}.{tenth}{unit}", tenths / 10),
    }
}

/// A number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// So many of something: `1 message`, `2 messages`.
pub(crate) fn count(count: impl Into<u64>, one: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// Words as a list: `a, b and c`.
pub(crate) fn list(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Text of others for a terminal: without what would move its cursor or colour it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether the character only changes how others are shown: their direction, or where a line ends.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Rows under headings, in columns as wide as they need to be.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut table = String::new();
    for row in std::iter::once(&headings.map(str::to_owned)).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_two_units_at_most() {
        for (micros, expected) in [
            (0, "0s"),
            (3_240, "3.2ms"),
            (5_000, "5ms"),
            (214_900, "214ms"),
            (1_000_000, "1s"),
            (9_786_000, "9.7s"),
            (59_999_000, "59.9s"),
            (60_000_000, "1m"),
            (898_000_000, "14m 58s"),
            (3_605_000_000, "1h"),
            (7_260_000_000, "2h 1m"),
            (604_799_000_000, "6d 23h"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn sizes_counts_and_lists_are_short() {
        assert_eq!([bytes(900), bytes(2_048), bytes(5 << 30)], ["900 bytes", "2 KiB", "5 GiB"]);
        assert_eq!([count(1_u64, "message"), count(0_u64, "message")], ["1 message", "0 messages"]);
        assert_eq!([list(&[]), list(&["a"]), list(&["a", "b", "c"])], ["nothing", "a", "a, b and c"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["é".to_owned(), "long cell".to_owned(), "x".to_owned()], Default::default()];
        assert_eq!(table(["A", "B", "LAST"], &rows), "A  B          LAST\né  long cell  x\n\n");
    }

    #[test]
    fn text_of_others_cannot_drive_the_terminal() {
        assert_eq!(plain("\u{1b}[2Jkind\n"), "\u{fffd}[2Jkind\u{fffd}");
    }
}
