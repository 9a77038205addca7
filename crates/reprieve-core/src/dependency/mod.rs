//! What jobs depend on besides the store: caches, databases, web services.
//!
//! A worker looks after each [`Dependency`] that it is given, with a circuit [`breaker`] of its own: it
//! probes it, hears what it announces, and counts how the jobs' calls fare. While the breaker is open, a kind
//! of job that *needs* the dependency is not begun, and its running jobs save and wait; a kind that *uses* it
//! goes on, and asks its [`DependencyHandle`] whether to do without. See [`Depends`](crate::worker::Depends).
//!
//! # Example: a web service
//! ```
//! use std::sync::Arc;
//!
//! use reprieve_core::dependency::Dependency;
//! use tokio::net::TcpStream;
//!
//! /// Up while it accepts connections.
//! #[derive(Debug)]
//! struct Prices(&'static str);
//!
//! #[async_trait::async_trait]
//! impl Dependency for Prices {
//!     async fn probe(&self) -> Result<(), String> {
//!         TcpStream::connect(self.0).await.map(drop).map_err(|error| error.to_string())
//!     }
//! }
//!
//! # let builder = reprieve_core::worker::Worker::builder(reprieve_core::memory::store());
//! let builder = builder.dependency("prices", Arc::new(Prices("prices.internal:443")));
//! // And for a kind: .depends::<Buy>(Depends::needs(["prices"]))
//! ```

pub mod breaker;
mod count;
mod handle;
mod keeper;
mod refusals;
mod users;
mod without;

use std::any::Any;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use breaker::{Answer, BreakerState, Signal};
pub(crate) use count::Count;
pub use handle::{CallError, DependencyHandle};
pub(crate) use keeper::keep;
pub(crate) use users::{Users, Using};
pub(crate) use without::Share;

/// How long a probe may take.
const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// What a worker knows of a dependency of its jobs. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyReport {
    /// Its name in the worker's settings.
    pub name: String,
    /// The state of its breaker.
    pub state: BreakerState,
    /// Since when.
    pub since_unix_ms: i64,
    /// Why it is not used; `None` unless the breaker is open.
    pub why: Option<String>,
    /// What it refuses although it serves, because of which jobs that need it are not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuses: Option<String>,
    /// Since when. `None` from workers of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuses_since_unix_ms: Option<i64>,
    /// Since when jobs that do without it, and held their slots for long, limit those that use it, whatever its breaker's
    /// state. `None` from workers of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_since_unix_ms: Option<i64>,
    /// When it is tried next; `None` while the breaker is closed and nothing is refused.
    pub next_look_unix_ms: Option<i64>,
    /// For when it has announced a maintenance.
    pub scheduled_unix_ms: Option<i64>,
    /// Whether those who read its replicas read its primary, because a replica is in maintenance.
    pub avoids_replicas: bool,
}

impl DependencyReport {
    /// The [shown](Self::shown) state of one whose breaker is closed, while jobs that do without it limit those that use it.
    pub const LIMITED: &'static str = "limited";

    /// The states in metrics and in `reprieve status`: those of a breaker, and `limited` and `refuses` of a closed one.
    pub const STATES: [&str; 5] = [
        BreakerState::Closed.as_str(),
        Self::LIMITED,
        REFUSES,
        BreakerState::HalfOpen.as_str(),
        BreakerState::Open.as_str(),
    ];

    /// Returns which of [`STATES`](Self::STATES) it is in, and since when. In a store, [`state`](Self::state) is the
    /// breaker's alone, so that workers of other versions can read it.
    #[must_use]
    pub fn shown(&self) -> (&'static str, i64) {
        match (self.state, &self.refuses, self.limited_since_unix_ms) {
            (BreakerState::Closed, Some(_), _) => {
                (REFUSES, self.refuses_since_unix_ms.unwrap_or(self.since_unix_ms))
            }
            // It may have begun while the breaker was open.
            (BreakerState::Closed, None, Some(since)) => (Self::LIMITED, since.max(self.since_unix_ms)),
            (state, ..) => (state.as_str(), self.since_unix_ms),
        }
    }
}

/// The state of a dependency that serves and refuses what jobs that need it do.
const REFUSES: &str = "refuses";

/// A service that jobs call, and that may be away for a while. A panic in one of its methods, or in a drop of its future,
/// counts as a failure of that call: a probe fails, a look finds that it refuses all, and announcements are heard again ten
/// seconds later.
///
/// The methods run on the worker's control thread, which renews the leases of all jobs. They must not block it: call a
/// client that is not async in [`spawn_blocking`](tokio::task::spawn_blocking).
#[async_trait]
pub trait Dependency: Any + fmt::Debug + Send + Sync {
    /// Tries whether the service does what the jobs want of it, as cheaply as possible: with a key of its own,
    /// say, and never with a call of a job. An answer that takes longer than 2 s counts as a failure; the future
    /// is dropped then.
    ///
    /// # Errors
    /// Why it does not, in a few words without a secret: it is logged and shown.
    async fn probe(&self) -> Result<(), String>;

    /// Says what it refuses although its probe succeeds, such as all writes when it is full, or why it can't be told:
    /// a clause, without a secret. Asked when a job that needs it has failed after a call of its step was
    /// [refused](DependencyHandle::refused) or failed, which then costs no attempt, and again at growing pauses until
    /// it refuses nothing: no job that needs it is begun meanwhile. Also by `reprieve doctor`. An answer that takes
    /// longer than 2 s counts as a refusal. Default: nothing.
    async fn refuses(&self) -> Option<String> {
        None
    }

    /// Says in one clause what it announces, for `reprieve doctor`. Default: nothing.
    fn announces(&self) -> &'static str {
        "it announces nothing, so the first calls of jobs fail when it goes"
    }

    /// Returns the next announcement of the service, such as that of a maintenance. Default: there is none.
    ///
    /// # Cancel safety
    /// Must lose nothing when its future is dropped, which happens all the time.
    async fn next_signal(&self) -> Signal {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_state_is_the_breakers_unless_that_is_closed() {
        let of = |state, refuses: Option<i64>, limited_since_unix_ms| DependencyReport {
            name: "cache".to_owned(),
            state,
            since_unix_ms: 1_000,
            why: None,
            refuses: refuses.map(|_| "writes".to_owned()),
            refuses_since_unix_ms: refuses,
            limited_since_unix_ms,
            next_look_unix_ms: None,
            scheduled_unix_ms: None,
            avoids_replicas: false,
        };
        for (state, refuses, limited, shown) in [
            (BreakerState::Closed, None, None, ("closed", 1_000)),
            (BreakerState::Closed, None, Some(5_000), ("limited", 5_000)),
            (BreakerState::Closed, None, Some(500), ("limited", 1_000)),
            (BreakerState::Closed, Some(4_000), Some(5_000), ("refuses", 4_000)),
            (BreakerState::HalfOpen, None, Some(5_000), ("half-open", 1_000)),
            (BreakerState::Open, Some(4_000), Some(5_000), ("open", 1_000)),
        ] {
            let report = of(state, refuses, limited);
            assert_eq!(report.shown(), shown, "{report:?}");
            assert!(DependencyReport::STATES.contains(&shown.0));
            let json = serde_json::to_string(&report).expect("JSON");
            assert_eq!(serde_json::from_str::<DependencyReport>(&json).expect("a report"), report);
        }
        let older = r#"{"name":"cache","state":"closed","since_unix_ms":1,"why":null,"next_look_unix_ms":null,
            "scheduled_unix_ms":null,"avoids_replicas":false}"#;
        assert_eq!(serde_json::from_str::<DependencyReport>(older).expect("a report").shown(), ("closed", 1));
    }
}
