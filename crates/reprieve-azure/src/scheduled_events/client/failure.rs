//! The kinds of failure of a request to the metadata service, and their counts.

use std::time::Duration;

use reprieve_core::Error;
use serde::Serialize;

/// A kind of failure, as named in metrics and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The service refused the request: 400, 404 and other 4xx, or a redirect.
    Refused,
    /// 429: this VM's processes together send more than five requests per second.
    Throttled,
    /// 410: the service is being updated, for up to 70 s.
    Updating,
    /// 5xx.
    Server,
    /// There was no answer in time.
    TimedOut,
    /// There was no connection, or it broke off.
    Unreachable,
    /// The answer is no document: empty, too long, or an error page.
    Garbage,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Refused,
        Self::Throttled,
        Self::Updating,
        Self::Server,
        Self::TimedOut,
        Self::Unreachable,
        Self::Garbage,
    ];

    /// The kind as a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Throttled => "throttled",
            Self::Updating => "updating",
            Self::Server => "server",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Garbage => "garbage",
        }
    }

    /// The kind for an answer with this status, which is no success.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            429 => Self::Throttled,
            410 => Self::Updating,
            500.. => Self::Server,
            _ => Self::Refused,
        }
    }
}

/// The count of each kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures([u64; FailureKind::ALL.len()]);

impl Failures {
    /// The count of this kind.
    #[must_use]
    pub const fn of(&self, kind: FailureKind) -> u64 {
        self.0[kind as usize]
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Iterates over the kinds and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (FailureKind, u64)> {
        FailureKind::ALL.into_iter().zip(self.0)
    }

    pub(crate) const fn count(&mut self, kind: FailureKind) {
        self.0[kind as usize] += 1;
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The status of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// How long to wait before the next request, if the answer tells.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) error: Error,
}

impl Failure {
    /// Creates a failure that has no status.
    pub(crate) const fn new(kind: FailureKind, error: Error) -> Self {
        Self { kind, status: None, retry_after: None, error }
    }

    /// Whether the service may have refused the api-version: it answers 400 or 404 to one that it
    /// does not support. Other failures prove nothing about the version.
    pub(crate) const fn may_mean_the_version(&self) -> bool {
        matches!(self.status, Some(400 | 404))
    }

    /// Whether the same request may succeed a little later. A 404 may mean that the service is
    /// still starting.
    pub(crate) const fn passes(&self) -> bool {
        !matches!(self.kind, FailureKind::Refused) || matches!(self.status, Some(404))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_listed_in_the_order_of_their_values() {
        let mut failures = Failures::default();
        failures.count(FailureKind::Updating);
        failures.count(FailureKind::Garbage);
        failures.count(FailureKind::Garbage);
        assert_eq!((failures.of(FailureKind::Garbage), failures.total()), (2, 3));
        let seen: Vec<_> = failures.iter().filter(|(_, times)| *times > 0).collect();
        assert_eq!(seen, [(FailureKind::Updating, 1), (FailureKind::Garbage, 2)]);
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
