//! A fault rule: which requests are disturbed, and how.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// Selects the requests to which an [`Action`] applies. The default is every request.
///
/// Rules apply in the order in which they were added. A request counts for each rule that it
/// matches until one ends it: [`Delay`](Action::Delay), [`ApplyLate`](Action::ApplyLate) and
/// [`SkewClock`](Action::SkewClock) combine with later rules; any other action ends the request,
/// and later rules do not see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only this operation; `None`, in JSON `"any"`, for all.
    #[serde(default, with = "any_operation")]
    pub operation: Option<Operation>,
    /// Only queues and containers with names that begin with this, or blobs whose `container/name`
    /// does.
    #[serde(default)]
    pub prefix: String,
    /// The number of matching requests that are left alone first.
    #[serde(default)]
    pub skip: u64,
    /// The number of times that the action is applied; `None` for no limit.
    #[serde(default)]
    pub times: Option<u64>,
    /// The probability for each matching request after the skipped ones. Default: 1, certain.
    #[serde(default = "certain")]
    pub probability: f64,
    /// The seed of the random numbers: the same seed gives the same decisions for the same
    /// requests.
    #[serde(default)]
    pub seed: u64,
    /// The action.
    pub action: Action,
}

const fn certain() -> f64 {
    1.0
}

impl Rule {
    /// Returns a rule that applies to every request.
    #[must_use]
    pub const fn new(action: Action) -> Self {
        Self {
            operation: None,
            prefix: String::new(),
            skip: 0,
            times: None,
            probability: certain(),
            seed: 0,
            action,
        }
    }

    /// Restricts the rule to this operation.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Restricts the rule to this many requests.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Checks that the rule is valid.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, "add a fault", message));
        if !(0.0..=1.0).contains(&self.probability) {
            return invalid(format!("a probability is from 0 to 1, not {}", self.probability));
        }
        match self.action {
            Action::Refuse { status, .. } if !(400..=599).contains(&status) => {
                invalid(format!("an error's status is from 400 to 599, not {status}"))
            }
            Action::SkewClock { seconds } if seconds.unsigned_abs() > SKEW_SECONDS_MAX => {
                invalid(format!("a clock is skewed by {SKEW_SECONDS_MAX} s at most, not by {seconds} s"))
            }
            _ => Ok(()),
        }
    }
}

/// Ten years.
const SKEW_SECONDS_MAX: u64 = 315_360_000;

/// A disturbance of a request.
///
/// In JSON: `{"kind": "lose-answer"}`, `{"kind": "delay", "ms": 500}`,
/// `{"kind": "server-busy", "retry_after_seconds": 2}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// Applied at once, and answered only after this time.
    Delay {
        /// The delay.
        #[serde(rename = "ms", with = "milliseconds")]
        by: Duration,
    },
    /// Applied only after this time, even if its sender has gone by then, and answered after that.
    /// A write can so arrive after its sender has given up.
    ApplyLate {
        /// The delay.
        #[serde(rename = "ms", with = "milliseconds")]
        by: Duration,
    },
    /// 503 `ServerBusy`; not applied.
    ServerBusy {
        /// The value of the Retry-After header; `None` for no header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    /// 429 `TooManyRequests`; not applied.
    TooManyRequests {
        /// The value of the Retry-After header; `None` for no header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    /// 500 `OperationTimedOut`; not applied.
    OperationTimedOut,
    /// 403 `AuthorizationPermissionMismatch`, as if the role were missing; not applied.
    PermissionMismatch,
    /// Any other error; not applied.
    Refuse {
        /// The status, 400 to 599.
        status: u16,
        /// The value of `x-ms-error-code`.
        code: String,
    },
    /// The connection is reset; not applied.
    Reset,
    /// Applied; then the connection is reset before the answer.
    LoseAnswer,
    /// Never answered.
    Hang {
        /// Whether it is applied.
        #[serde(default)]
        applied: bool,
    },
    /// Applied; then the connection is closed in the middle of the answer's body. An answer without
    /// a body is lost.
    Truncate,
    /// Handled normally, but the Date header is this much later, or earlier if negative.
    SkewClock {
        /// The skew.
        seconds: i64,
    },
}

/// A duration as whole milliseconds.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// An operation, or `"any"`.
mod any_operation {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Operation;

    const ANY: &str = "any";

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference to the field"
    )]
    pub(super) fn serialize<S: Serializer>(operation: &Option<Operation>, to: S) -> Result<S::Ok, S::Error> {
        operation.map_or(ANY, Operation::name).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Operation>, D::Error> {
        match Option::<String>::deserialize(from)?.as_deref() {
            None | Some(ANY) => Ok(None),
            Some(name) => name.parse().map(Some).map_err(D::Error::custom),
        }
    }
}
