//! Durations as text.

use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::{Error, ErrorKind, Result};

/// The length of a day: a calendar's days differ.
const DAY: Duration = Duration::from_hours(24);

/// More digits than a duration that fits has.
const DIGITS_MAX: usize = 10;

/// Parses a duration: a number and a unit, such as `500ms`, `10s`, `5m`, `1h` or `30d`, also
/// `1h 30m`. A day is 24 hours. The worker's flags use the same format. In a command of your own,
/// use `#[arg(value_parser = reprieve::parse_duration)]`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid), with a message that says what to write instead.
///
/// # Example: valid and invalid text
/// ```
/// use std::time::Duration;
///
/// assert_eq!(reprieve::parse_duration("1h 30m")?, Duration::from_secs(5_400));
/// assert_eq!(reprieve::parse_duration("1d 12h")?, Duration::from_secs(129_600));
/// assert!(reprieve::parse_duration("90").is_err());
/// assert!(reprieve::parse_duration("-5s").is_err());
/// # Ok::<(), reprieve::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    parse(text).ok_or_else(|| {
        let is_long = text.bytes().filter(u8::is_ascii_digit).count() > DIGITS_MAX;
        let message = if is_long {
            format!("{text:?} is too long for a duration")
        } else {
            format!("{text:?} is not a number and a unit; use ms, s, m, h or d, such as 10s or 7d")
        };
        Error::new(ErrorKind::Invalid, "read a duration", message)
    })
}

fn parse(text: &str) -> Option<Duration> {
    // The parser knows no days.
    let (days, rest) = match text.split_once('d') {
        Some((days, "")) => return DAY.checked_mul(days.parse().ok()?),
        Some((days, rest)) => (days.parse().ok()?, rest.trim_start()),
        None => (0, text),
    };
    let rest = Duration::try_from(rest.parse::<SignedDuration>().ok()?).ok()?;
    DAY.checked_mul(days)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_may_have_days() {
        for (text, hours) in [("30d", 720), ("0d", 0), ("1d 12h", 36), ("1d12h", 36), ("90m", 1)] {
            let parsed = parse_duration(text).unwrap();
            assert_eq!(parsed.as_secs() / 3_600, hours, "{text}");
        }
        for bad in ["", "d", "-1d", "1.5d", "1d 1d", "1d x", "12h 1d", "300000000000000000d", "1 d-2h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        let error = parse_duration("99999999999d").unwrap_err();
        assert!(error.to_string().contains("is too long"), "{error}");
    }
}
