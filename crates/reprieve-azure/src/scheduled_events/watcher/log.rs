//! The watch's log lines: each fact once, at info or warn only if it concerns this VM.

use std::time::Duration;

use reprieve_core::Error;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::scheduled_events::active_events::{EventChange, Whose};
use crate::scheduled_events::document::NotBefore;

/// Logs a failure that will be tried again: at warn the first time and once a minute, else at
/// debug.
pub(super) fn failure(trouble: &mut Trouble, at: Instant, error: &Error, what: &'static str) {
    if let Some(lasted) = trouble.failed(at) {
        warn!(%error, failures = lasted.failures, seconds = lasted.since.as_secs(), "{what}");
    } else {
        debug!(%error, "{what}");
    }
}

/// Logs the recovery.
pub(super) fn recovery(trouble: &mut Trouble, at: Instant) {
    if let Some(lasted) = trouble.worked(at) {
        info!(
            failures = lasted.failures,
            seconds = lasted.since.as_secs(),
            "scheduled events are answered again"
        );
    }
}

/// Logs why the worker takes no work yet: the name is missing, or there is no answer.
pub(super) fn silence(url: &str, only_the_name_is_missing: bool) {
    if only_the_name_is_missing {
        warn!(
            url,
            "the metadata service does not say what this VM is called, so no work is taken; set --vm-name"
        );
    } else {
        warn!(
            url,
            "no answer from the metadata service for 5 s, so no work is taken; a new Azure VM may need two minutes, \
             outside Azure set --metadata-url off"
        );
    }
}

/// Logs a change of an event: at info for this VM's events, at debug for other VMs'.
pub(super) fn event(change: &EventChange) {
    let event = &change.event;
    let (id, kind, what) = (change.id(), event.event_type.as_str(), change.what.as_str());
    if change.whose == Whose::Rest {
        debug!(event.id = %id, kind, what, resources = ?event.resources, "event for other VMs");
        return;
    }
    if change.what.is_over() {
        info!(event.id = %id, kind, what, "event is over");
        return;
    }
    if NotBefore::read(&event.not_before) == NotBefore::Unreadable {
        warn!(event.id = %id, not_before = ?event.not_before, "NotBefore can't be read, so the event is taken to begin at once");
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
const MENTION_EVERY: Duration = Duration::from_mins(1);

/// Consecutive failures of an operation that is repeated.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    row: Option<Row>,
}

#[derive(Debug)]
struct Row {
    since: Instant,
    mentioned: Instant,
    failures: u64,
}

/// The number of consecutive failures and the time since the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lasted {
    pub(super) failures: u64,
    pub(super) since: Duration,
}

impl Trouble {
    /// Notes a failure. Returns the values to log, if it is time to log.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Lasted> {
        let first = self.row.is_none();
        let row = self.row.get_or_insert(Row { since: now, mentioned: now, failures: 0 });
        row.failures += 1;
        if !first && now - row.mentioned < MENTION_EVERY {
            return None;
        }
        row.mentioned = now;
        Some(Lasted { failures: row.failures, since: now - row.since })
    }

    /// Notes a success. Returns the failures before it, if there were any.
    pub(super) fn worked(&mut self, now: Instant) -> Option<Lasted> {
        self.row.take().map(|row| Lasted { failures: row.failures, since: now - row.since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_one_a_minute_and_the_recovery_are_mentioned() {
        let began = Instant::now();
        let mut trouble = Trouble::default();
        let second = |n| began + Duration::from_secs(n);
        assert_eq!(trouble.worked(began), None);
        let mentioned: Vec<_> = (0..150).filter_map(|n| trouble.failed(second(n))).collect();
        let lasted = |failures, seconds| Lasted { failures, since: Duration::from_secs(seconds) };
        assert_eq!(mentioned, [lasted(1, 0), lasted(61, 60), lasted(121, 120)]);
        assert_eq!(trouble.worked(second(150)), Some(lasted(150, 150)));
        assert_eq!(trouble.worked(second(151)), None);
        assert_eq!(trouble.failed(second(152)), Some(lasted(1, 0)));
    }
}
