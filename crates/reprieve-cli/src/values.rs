//! Reads values of flags, and says in a few words what is wrong with one.

use std::num::NonZeroU32;
use std::time::Duration;

/// A duration as everywhere in Reprieve. Clap says which flag it is of, so only the fault itself is left to say.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    reprieve::parse_duration(text).map_err(|error| error.message().to_owned())
}

/// A limit that something can keep.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than 0s".to_owned()),
        limit => Ok(limit),
    }
}

/// How many times faster than in life.
pub(crate) fn speed(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 1 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_what_was_being_done() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        let fault = duration("5").expect_err("no unit");
        assert!(fault.starts_with("\"5\" is not a number and a unit; use ms"), "{fault}");
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        assert_eq!(some_time("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(some_time("0ms"), Err("it must be longer than 0s".to_owned()));
        assert!(some_time("5").is_err());
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
