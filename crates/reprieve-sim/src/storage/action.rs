//! The ways in which a request can fail or be disturbed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A disturbance of a request.
///
/// In JSON: `{"kind": "lose-answer"}`, `{"kind": "delay", "ms": 500}`, `{"kind": "server-busy", "retry_after_seconds": 2}`.
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
