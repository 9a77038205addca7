//! How a status words times and long texts.

use crate::out::plain;

/// The beginning of a long text. All of it is in the JSON.
pub(super) fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// The end of a worker's id, which is its random part: workers that began together have the beginning in common.
pub(super) fn short(worker: &str) -> String {
    let skipped = worker.chars().count().saturating_sub(8);
    plain(&worker.chars().skip(skipped).collect::<String>())
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10)
}

/// How long ago something was, to two units.
pub(super) fn ago(ms: i64) -> String {
    // Clocks of two machines may differ: what is to come was now.
    format!("{} ago", span(ms))
}

/// How long until something is, to two units.
pub(super) fn in_time(ms: i64) -> String {
    if ms <= 0 { "now".to_owned() } else { format!("in {}", span(ms)) }
}

fn span(ms: i64) -> String {
    let s = u64::try_from(ms).unwrap_or(0) / 1_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m {}s", s / 60, s % 60),
        3_600..172_800 => format!("{}h {}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        for (ms, said) in [
            (-5_000, "0s ago"),
            (59_999, "59s ago"),
            (61_000, "1m 1s ago"),
            (7_260_000, "2h 1m ago"),
            (172_800_000, "2 days ago"),
        ] {
            assert_eq!(ago(ms), said);
        }
        assert_eq!([in_time(874_000), in_time(-1)], ["in 14m 34s", "now"]);
    }
}
