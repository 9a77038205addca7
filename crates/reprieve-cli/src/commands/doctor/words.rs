//! Times, sizes and counts as the findings say them.

use std::time::Duration;

use serde_json::Value;

/// A measured time, such as `3.2 ms`.
pub(super) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// A measured time as a figure: milliseconds, to a microsecond.
pub(super) fn ms_figure(time: Duration) -> Value {
    ((time.as_secs_f64() * 1_000_000.0).round() / 1_000.0).into()
}

/// A length of time, to two units.
pub(super) fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0 => format!("{} ms", time.as_millis()),
        1..120 if time.subsec_millis() > 0 => format!("{:.1} s", time.as_secs_f64()),
        1..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} days", s / 86_400),
    }
}

/// A number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// So many of something: `1 message`, `2 messages`.
pub(super) fn count(count: impl Into<u64>, one: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// Words as a list: `a, b and c`.
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_counts_are_short() {
        for (millis, said) in [
            (40, "40 ms"),
            (1_000, "1 s"),
            (3_333, "3.3 s"),
            (60_000, "60 s"),
            (600_000, "10 min"),
            (7_260_000, "2 h 1 min"),
            (604_800_000, "7 days"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), said);
        }
        assert_eq!(ms(Duration::from_micros(3_240)), "3.2 ms");
        assert_eq!(ms_figure(Duration::from_nanos(3_240_400)), 3.24);
        assert_eq!([bytes(900), bytes(2_048), bytes(5 << 30)], ["900 bytes", "2 KiB", "5 GiB"]);
        assert_eq!([count(1_u64, "message"), count(0_u64, "message")], ["1 message", "0 messages"]);
        assert_eq!([list(&[]), list(&["a"]), list(&["a", "b", "c"])], ["nothing", "a", "a, b and c"]);
    }
}
