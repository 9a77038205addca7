//! Durations as text.

use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::{Error, ErrorKind, Result};

/// Parses a duration: a number and a unit, such as `500ms`, `10s`, `5m` or `1h`, also `1h 30m`. The
/// worker's flags use the same format. In a command of your own, use `#[arg(value_parser =
/// reprieve::parse_duration)]`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid), with a message that says what to write instead.
///
/// # Example: valid and invalid text
/// ```
/// use std::time::Duration;
///
/// assert_eq!(reprieve::parse_duration("1h 30m")?, Duration::from_secs(5_400));
/// assert!(reprieve::parse_duration("90").is_err());
/// assert!(reprieve::parse_duration("-5s").is_err());
/// # Ok::<(), reprieve::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    let signed = text.parse::<SignedDuration>().ok();
    signed.and_then(|signed| Duration::try_from(signed).ok()).ok_or_else(|| {
        let message = format!("{text:?} is not a number and a unit; use ms, s, m or h, such as 10s or 168h");
        Error::new(ErrorKind::Invalid, "read a duration", message)
    })
}
