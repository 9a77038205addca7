//! Time spans in their written form, for scenario files and the control API.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// A span of time, written as a number and a unit: `500ms`, `30s`, `15m`, `1h 30m`, `168h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Span(pub Duration);

impl From<Duration> for Span {
    fn from(span: Duration) -> Self {
        Self(span)
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let span = text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
        span.map(Self).ok_or_else(|| {
            let message =
                format!("{text:?} is not a number and a unit; use ms, s, m or h, such as 10s or 168h");
            Error::new(ErrorKind::Invalid, "read a duration", message)
        })
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error: Error| error.message().to_owned())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(span) => write!(f, "{span:#}"),
            // More than 292 billion years.
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_span_is_parsed_again() {
        for (text, span) in [
            ("0s", Duration::ZERO),
            ("500ms", Duration::from_millis(500)),
            ("15m", Duration::from_secs(900)),
            ("168h", Duration::from_hours(168)),
        ] {
            assert_eq!(text.parse::<Span>().expect(text), Span(span));
            assert_eq!(Span(span).to_string().parse::<Span>().expect(text), Span(span));
        }
        for text in ["", "10", "-5s", "soon"] {
            assert_eq!(text.parse::<Span>().expect_err(text).kind(), ErrorKind::Invalid);
        }
    }
}
