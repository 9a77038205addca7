//! The watcher's log lines: each fact once, at info or warn only if it concerns this VM.

use std::time::Duration;

use reprieve_core::Error;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::scheduled_events::active_events::{EventChange, Scope};
use crate::scheduled_events::document::{ApiVersion, NotBefore};

/// Logs a failure that will be tried again: at warn the first time and once a minute, else at
/// debug.
pub(super) fn failure(throttle: &mut LogThrottle, at: Instant, error: &Error, message: &'static str) {
    if let Some(lasted) = throttle.failed(at) {
        warn!(%error, failures = lasted.failures, seconds = lasted.since.as_secs(), "{message}");
    } else {
        debug!(%error, "{message}");
    }
}

/// Logs the recovery of polls in this version.
pub(super) fn recovery(throttle: &mut LogThrottle, version: ApiVersion, at: Instant) {
    if let Some(lasted) = throttle.succeeded(at) {
        info!(
            %version,
            failures = lasted.failures,
            seconds = lasted.since.as_secs(),
            "polling scheduled events works again"
        );
    }
}

/// Logs why the worker takes no jobs yet: the name is missing, or there is no answer.
pub(super) fn no_answer(url: &str, only_the_name_is_missing: bool) {
    if only_the_name_is_missing {
        warn!(
            url,
            "the metadata service gives no name for this VM, so the worker takes no jobs; set --vm-name"
        );
    } else {
        warn!(
            url,
            "no answer from the metadata service for 5 s, so the worker takes no jobs; a new Azure VM may \
             need two minutes; outside Azure set --metadata-url off"
        );
    }
}

/// Logs a change of an event: at info for this VM's events, at debug for other VMs'.
pub(super) fn event(change: &EventChange) {
    let event = &change.event;
    let (id, kind, what) = (change.id(), event.event_type.as_str(), change.kind.as_str());
    if change.scope == Scope::OtherVms {
        debug!(event.id = %id, kind, what, resources = ?event.resources, "event for other VMs");
        return;
    }
    if change.kind.has_ended() {
        info!(event.id = %id, kind, what, "event has ended");
        return;
    }
    if NotBefore::read(&event.not_before) == NotBefore::Unreadable {
        warn!(event.id = %id, not_before = ?event.not_before, "NotBefore can't be parsed; the event is treated as if it began now");
    }
    info!(
        event.id = %id,
        kind,
        what,
        not_before = event.not_before,
        source = event.event_source,
        description = event.description,
        resources = ?event.resources,
        "event for this VM"
    );
}

/// How often a lasting failure is logged.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Decides which of many consecutive failures to log: the first, one a minute, and the recovery.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    series: Option<Series>,
}

#[derive(Debug)]
struct Series {
    since: Instant,
    logged: Instant,
    failures: u64,
}

/// The number of consecutive failures and the time since the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lasted {
    pub(super) failures: u64,
    pub(super) since: Duration,
}

impl LogThrottle {
    /// Notes a failure. Returns the values to log, if it is time to log.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Lasted> {
        let first = self.series.is_none();
        let series = self.series.get_or_insert(Series { since: now, logged: now, failures: 0 });
        series.failures += 1;
        if !first && now - series.logged < LOG_EVERY {
            return None;
        }
        series.logged = now;
        Some(Lasted { failures: series.failures, since: now - series.since })
    }

    /// Notes a success. Returns the failures before it, if there were any.
    pub(super) fn succeeded(&mut self, now: Instant) -> Option<Lasted> {
        self.series.take().map(|series| Lasted { failures: series.failures, since: now - series.since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_one_a_minute_and_the_recovery_are_mentioned() {
        let began = Instant::now();
        let mut throttle = LogThrottle::default();
        let second = |n| began + Duration::from_secs(n);
        assert_eq!(throttle.succeeded(began), None);
        let logged: Vec<_> = (0..150).filter_map(|n| throttle.failed(second(n))).collect();
        let lasted = |failures, seconds| Lasted { failures, since: Duration::from_secs(seconds) };
        assert_eq!(logged, [lasted(1, 0), lasted(61, 60), lasted(121, 120)]);
        assert_eq!(throttle.succeeded(second(150)), Some(lasted(150, 150)));
        assert_eq!(throttle.succeeded(second(151)), None);
        assert_eq!(throttle.failed(second(152)), Some(lasted(1, 0)));
    }
}
