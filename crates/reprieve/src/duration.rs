//! Durations as people write them.

use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::{Error, ErrorKind, Result};

/// Reads a duration: a number and a unit, such as `500ms`, `10s`, `5m` or `1h`, also `1h 30m`. As the worker's flags do;
/// for a command of one's own, `#[arg(value_parser = reprieve::parse_duration)]`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid), saying what to write instead.
///
/// # Example: what is taken and what is not
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
