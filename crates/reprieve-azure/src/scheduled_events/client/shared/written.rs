//! An answer as one process writes it for the others.

use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::clock::unix_millis;
use reprieve_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::scheduled_events::client::failure::{Failure, FailureKind};
use crate::scheduled_events::client::http::Body;
use crate::scheduled_events::client::{Answered, READ_EVENTS};
use crate::scheduled_events::document::ApiVersion;

/// An answer in one api-version, or why there was none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Unique, and not zero.
    pub(super) id: u64,
    version: String,
    /// When it was written, in milliseconds since the Unix epoch.
    at_ms: i64,
    /// The time between the request and the writing.
    took_ms: u64,
    ahead_ms: Option<i64>,
    failure: Option<WrittenFailure>,
    /// The document, or the reason of a failure.
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct WrittenFailure {
    kind: String,
    status: Option<u16>,
    #[serde(default)]
    retry_after_s: Option<u64>,
    is_temporary: bool,
}

impl Written {
    pub(super) fn of(version: ApiVersion, answered: &Answered, took: Duration) -> Self {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let written = Self {
            id: rand::random::<u64>().max(1),
            version: version.to_string(),
            at_ms: unix_millis(),
            took_ms,
            ahead_ms: None,
            failure: None,
            text: String::new(),
        };
        match answered {
            Ok(body) => Self {
                ahead_ms: body.ahead.and_then(|ahead| i64::try_from(ahead.as_millis()).ok()),
                text: String::from_utf8_lossy(&body.bytes).into_owned(),
                ..written
            },
            Err(Failure { kind, status, retry_after, error }) => Self {
                failure: Some(WrittenFailure {
                    kind: kind.as_str().to_owned(),
                    status: *status,
                    retry_after_s: retry_after.map(|it| it.as_secs()),
                    is_temporary: error.is_temporary(),
                }),
                text: error.message().to_owned(),
                ..written
            },
        }
    }

    /// The version; `None` where this Reprieve does not know it.
    pub(super) fn version(&self) -> Option<ApiVersion> {
        self.version.parse().ok()
    }

    pub(super) const fn is_answer(&self) -> bool {
        self.failure.is_none()
    }

    /// The time since it was written; zero if the clock was set back meanwhile.
    pub(super) fn age(&self) -> Duration {
        Duration::from_millis(u64::try_from(unix_millis().saturating_sub(self.at_ms)).unwrap_or(0))
    }

    /// Whether it was written so shortly ago; not if it seems to be from the future, because the clock was set.
    pub(super) fn is_younger_than(&self, age: Duration) -> bool {
        self.at_ms <= unix_millis() && self.age() <= age
    }

    /// The time of the request; `earliest` if this machine's clock can't express it.
    pub(super) fn sent(&self, earliest: Instant) -> Instant {
        let since = self.age().saturating_add(Duration::from_millis(self.took_ms));
        Instant::now().checked_sub(since).unwrap_or(earliest)
    }

    pub(super) fn read(&self) -> Answered {
        let text = self.text.clone();
        let Some(failure) = &self.failure else {
            let ahead = self.ahead_ms.map(SignedDuration::from_millis);
            return Ok(Body { bytes: text.into_bytes(), ahead });
        };
        let kind = FailureKind::ALL.into_iter().find(|kind| kind.as_str() == failure.kind);
        let kind = kind.unwrap_or(FailureKind::Unreachable);
        let error_kind = match kind {
            FailureKind::TimedOut => ErrorKind::TimedOut,
            _ if failure.is_temporary => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        let retry_after = failure.retry_after_s.map(Duration::from_secs);
        Err(Failure {
            kind,
            status: failure.status,
            retry_after,
            error: Error::new(error_kind, READ_EVENTS, text),
        })
    }
}
