//! The result of a check.

use std::time::Duration;

use reprieve::Error;
use serde::Serialize;
use serde_json::{Map, Value};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Works.
    Ok,
    /// Works, with a risk.
    Warning,
    /// Prevents a worker from working.
    Problem,
    /// Not checked.
    Skipped,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) name: String,
    pub(super) state: State,
    /// The observation, or the reason for skipping the check.
    pub(super) seen: String,
    /// The advice.
    pub(super) cure: Option<String>,
    /// Counts and measurements; the names have the units.
    pub(super) figures: Map<String, Value>,
}

impl Finding {
    fn new(name: impl Into<String>, state: State, seen: impl Into<String>) -> Self {
        Self { name: name.into(), state, seen: seen.into(), cure: None, figures: Map::new() }
    }

    pub(super) fn ok(name: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::new(name, State::Ok, seen)
    }

    pub(super) fn warning(name: impl Into<String>, seen: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { cure: Some(cure.into()), ..Self::new(name, State::Warning, seen) }
    }

    pub(super) fn problem(name: impl Into<String>, seen: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { cure: Some(cure.into()), ..Self::new(name, State::Problem, seen) }
    }

    pub(super) fn skipped(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(name, State::Skipped, why)
    }

    /// A problem with the error's text; `otherwise` is the cure when the error names none.
    pub(super) fn of(name: impl Into<String>, error: &Error, otherwise: &str) -> Self {
        let (seen, cure) = explained(error);
        Self::problem(name, seen, cure.unwrap_or_else(|| otherwise.to_owned()))
    }

    /// Adds a count or measurement.
    pub(super) fn with(mut self, figure: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(figure.to_owned(), value.into());
        self
    }

    /// As [`with`](Self::with), for a figure that may be unknown.
    pub(super) fn with_known(self, figure: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(figure, value),
            None => self,
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        self.state == State::Problem
    }
}

/// A measured time as a figure: milliseconds, to a microsecond.
pub(super) fn ms_figure(time: Duration) -> Value {
    ((time.as_secs_f64() * 1_000_000.0).round() / 1_000.0).into()
}

/// Splits an error's message into the observation and the cure. The target is left out where the
/// finding's name has it.
pub(super) fn explained(error: &Error) -> (String, Option<String>) {
    const TARGETS: [&str; 4] = ["queue \"", "container \"", "blob \"", "the storage account: "];
    let mut text = error.message();
    if TARGETS.iter().any(|target| text.starts_with(target)) {
        text = text.split_once(": ").map_or(text, |(_, rest)| rest);
    }
    // The service's status and code, which support asks for, belong to what is so.
    let (text, answer) = match text.rsplit_once(" (") {
        Some((text, answer)) if answer.starts_with(|c: char| c.is_ascii_digit()) => (text, Some(answer)),
        _ => (text, None),
    };
    let (seen, cure) = text.split_once("; ").map_or((text, None), |(seen, cure)| (seen, Some(cure)));
    let seen = answer.map_or_else(|| seen.to_owned(), |answer| format!("{seen} ({answer}"));
    (seen, cure.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use reprieve::ErrorKind;

    use super::*;

    #[test]
    fn a_figure_has_microseconds() {
        assert_eq!(ms_figure(Duration::from_nanos(3_240_400)), 3.24);
    }

    #[test]
    fn an_error_is_taken_apart_into_what_is_so_and_what_to_do() {
        for (message, seen, cure) in [
            (
                "queue \"work\": it may not do this; give it the role A (B is not enough: it can't); wait (403 X, request 1)",
                "it may not do this (403 X, request 1)",
                Some("give it the role A (B is not enough: it can't); wait"),
            ),
            ("blob \"a: b\": the service is busy (503)", "b\": the service is busy (503)", None),
            ("no address is known for a.b: none", "no address is known for a.b: none", None),
            ("it failed (or not)", "it failed (or not)", None),
        ] {
            let error = Error::new(ErrorKind::Denied, "try it", message);
            assert_eq!(explained(&error), (seen.to_owned(), cure.map(str::to_owned)), "{message}");
        }
    }
}
