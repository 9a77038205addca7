//! Parsers of flags' values. Clap adds the flag's name to their errors.

use std::num::NonZeroU32;
use std::time::Duration;

/// A duration, such as `10s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    reprieve::parse_duration(text).map_err(|error| error.message().to_owned())
}

/// A duration longer than zero.
pub(crate) fn nonzero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than 0s".to_owned()),
        limit => Ok(limit),
    }
}

/// A limit of time; `forever` for none.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    if text == "forever" {
        return Ok(Duration::MAX);
    }
    nonzero_duration(text).map_err(|fault| fault + ", or forever")
}

/// A factor by which the mock is faster than real time.
pub(crate) fn speed(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 1 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_fault_only() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        let fault = duration("5").expect_err("no unit");
        assert!(fault.starts_with("\"5\" is not a number and a unit; use ms"), "{fault}");
    }

    #[test]
    fn a_zero_limit_is_refused() {
        assert_eq!(nonzero_duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(nonzero_duration("0ms"), Err("it must be longer than 0s".to_owned()));
        assert!(nonzero_duration("5").is_err());
    }

    #[test]
    fn a_speed_is_a_whole_number_of_times() {
        assert_eq!(speed("60"), Ok(NonZeroU32::new(60).expect("not zero")));
        for wrong in ["0", "-1", "1.5", "nan", "4294967296", ""] {
            let fault = speed(wrong).expect_err(wrong);
            assert_eq!(fault, "it must be a whole number from 1 to 4294967295");
        }
    }
}
