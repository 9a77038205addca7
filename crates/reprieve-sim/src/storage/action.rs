//! What can happen to a request instead of a good answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens to a request.
///
/// In JSON: `{"kind": "lose-answer"}`, `{"kind": "delay", "ms": 500}`, `{"kind": "server-busy", "retry_after_seconds": 2}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// It is applied at once and answered only after this.
    Delay {
        /// How long after.
        #[serde(rename = "ms", with = "milliseconds")]
        by: Duration,
    },
    /// It is applied only after this, even if its sender has gone by then, and answered after that. So a write arrives
    /// when its sender has long given up.
    ApplyLate {
        /// How long after.
        #[serde(rename = "ms", with = "milliseconds")]
        by: Duration,
    },
    /// 503 `ServerBusy`; not applied.
    ServerBusy {
        /// The Retry-After header. Without it there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    /// 429 `TooManyRequests`; not applied.
    TooManyRequests {
        /// The Retry-After header. Without it there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    /// 500 `OperationTimedOut`; not applied.
    OperationTimedOut,
    /// 403 `AuthorizationPermissionMismatch`, as without the role; not applied.
    PermissionMismatch,
    /// Any other error; not applied.
    Refuse {
        /// The status, 400 to 599.
        status: u16,
        /// What `x-ms-error-code` says.
        code: String,
    },
    /// The connection is reset; not applied.
    Reset,
    /// Applied; then the connection is reset instead of an answer.
    LoseAnswer,
    /// Never answered.
    Hang {
        /// Whether it is applied.
        #[serde(default)]
        applied: bool,
    },
    /// Applied; then the connection is closed in the middle of the answer's body. An answer that has none is lost.
    Truncate,
    /// Done as always, but the Date header is this much later, or earlier if it is negative.
    SkewClock {
        /// By how much.
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
