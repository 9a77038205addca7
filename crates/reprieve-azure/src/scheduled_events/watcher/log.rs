//! The watch's log lines: each fact once, at info or warn only if it concerns this VM.

use reprieve_core::Error;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::trouble::Trouble;
use crate::scheduled_events::change::{EventChange, Whose};
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
