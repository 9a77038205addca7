//! The report of an event's change: a line of text, a JSON object, a command's environment.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use reprieve_azure::scheduled_events::{ApiVersion, ChangeKind, EventChange, Scope};
use serde::Serialize;

use crate::format::{duration, plain};

/// The longest variable, with its name: Windows takes 32767 characters and Linux 128 KiB. A command
/// with a longer one can't be started.
const VARIABLE_BYTES_MAX: usize = if cfg!(windows) { 32_000 } else { 120_000 };

/// How soon an urgent event will start.
const URGENT_SECONDS: u64 = 60;

/// How long a change may wait for the commands of other events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Ordinary,
    /// An event of this VM that will start within a minute, or has started: it waits only for its like.
    Soon,
    /// An eviction or a deletion of this VM waits for no other event: a command that has not run by then
    /// never runs. The notice of a deletion, 5 to 15 minutes, is no longer than a slow command may take.
    /// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification>
    Final,
}

/// One change. Its JSON is the same on stdout and in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ChangeReport {
    /// The time at which the change was seen.
    at: Timestamp,
    pub(super) what: ChangeKind,
    #[serde(rename = "whose")]
    pub(super) scope: Scope,
    /// The name of this VM.
    vm: String,
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) event_type: String,
    status: String,
    source: String,
    resources: Vec<String>,
    /// `None` once it has started, and when the document has none that can be parsed.
    not_before: Option<Timestamp>,
    /// Until it may start: 0 when that is now, `None` when it has ended.
    seconds_left: Option<u64>,
    /// The length of the interruption; `None` when unknown.
    duration_seconds: Option<u64>,
    description: String,
    /// The api-version of the document: older ones have fewer fields.
    api_version: ApiVersion,
}

impl ChangeReport {
    /// The report of a change for the VM `vm`.
    pub(super) fn new(change: &EventChange, vm: &str) -> Self {
        let EventChange { kind: what, scope, event, not_before, version, at } = change;
        // A generated id, so that the changes of the event can be matched.
        let id =
            if event.event_id.is_empty() { event.notice_id().to_string() } else { event.event_id.clone() };
        let report = Self {
            at: timestamp(*at).unwrap_or_default(),
            what: *what,
            scope: *scope,
            vm: vm.to_owned(),
            id,
            event_type: event.event_type.as_str().to_owned(),
            status: event.event_status.clone().into(),
            source: event.event_source.clone(),
            resources: event.resources.clone(),
            not_before: not_before.and_then(timestamp),
            seconds_left: (!what.has_ended()).then_some(0),
            duration_seconds: event.duration().map(|duration| duration.as_secs()),
            description: event.description.clone(),
            api_version: *version,
        };
        report.with_time_left_at(*at)
    }

    /// The same, with the time left at `now`.
    pub(super) fn with_time_left_at(mut self, now: SystemTime) -> Self {
        if let (Some(_), Some(not_before)) = (self.seconds_left, self.not_before) {
            let left = SystemTime::from(not_before).duration_since(now).unwrap_or_default();
            self.seconds_left = Some(left.as_secs());
        }
        self
    }

    /// How urgent this change is by itself; its event may have been more urgent before.
    pub(super) fn urgency(&self) -> Urgency {
        let soon = self.seconds_left.is_some_and(|seconds| seconds <= URGENT_SECONDS);
        let ends_the_vm = ["Preempt", "Terminate"].contains(&self.event_type.as_str());
        match self.scope {
            Scope::ThisVm if self.what.has_ended() => Urgency::Ordinary,
            Scope::ThisVm if ends_the_vm => Urgency::Final,
            Scope::ThisVm if soon => Urgency::Soon,
            Scope::ThisVm | Scope::OtherVms => Urgency::Ordinary,
        }
    }

    /// The change's name in a sentence.
    pub(super) fn name(&self) -> String {
        plain(&format!("{} {} {}", self.what.as_str(), self.event_type, self.id))
    }

    /// One line, with times of `zone` and the end of the line.
    pub(super) fn line(&self, zone: &TimeZone, with_scope: bool) -> String {
        let at = self.at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let mut words = vec![at, format!("{:9}", self.what.as_str())];
        if with_scope {
            words.push(scope_name(self.scope).to_owned());
        }
        words.push(format!("{:9}", self.event_type));
        let resources = self.resources.join(",");
        let optional = [&self.source, &self.id, &resources];
        words.extend(optional.into_iter().filter(|word| !word.is_empty()).cloned());
        words.push(match self.seconds_left {
            None => "ended".to_owned(),
            Some(0) => "now".to_owned(),
            Some(seconds) => format!("in {}", duration(Duration::from_secs(seconds))),
        });
        words.push(match self.duration_seconds {
            None => "for unknown time".to_owned(),
            Some(0) => "without interruption".to_owned(),
            Some(seconds) => format!("for {}", duration(Duration::from_secs(seconds))),
        });
        if !self.description.is_empty() {
            words.push(self.description.clone());
        }
        // The description is the platform's, and the rest is, too.
        plain(&words.join("  ")) + "\n"
    }

    /// The environment of the command. A value that is too long is empty, because the command could
    /// not be started with it.
    pub(super) fn environment(&self) -> serde_json::Result<Vec<(&'static str, String)>> {
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let not_before = self.not_before.map_or_else(String::new, |at| at.to_string());
        let variables = [
            ("REPRIEVE_EVENT", self.what.as_str().to_owned()),
            ("REPRIEVE_EVENT_WHOSE", scope_name(self.scope).to_owned()),
            ("REPRIEVE_EVENT_VM", self.vm.clone()),
            ("REPRIEVE_EVENT_ID", self.id.clone()),
            ("REPRIEVE_EVENT_TYPE", self.event_type.clone()),
            ("REPRIEVE_EVENT_STATUS", self.status.clone()),
            ("REPRIEVE_EVENT_SOURCE", self.source.clone()),
            ("REPRIEVE_EVENT_RESOURCES", self.resources.join(",")),
            ("REPRIEVE_EVENT_NOT_BEFORE", not_before),
            ("REPRIEVE_EVENT_SECONDS_LEFT", number(self.seconds_left)),
            ("REPRIEVE_EVENT_DURATION_SECONDS", number(self.duration_seconds)),
            ("REPRIEVE_EVENT_DESCRIPTION", self.description.clone()),
            ("REPRIEVE_EVENT_JSON", serde_json::to_string(self)?),
        ];
        let fitting = |(name, value): (&'static str, String)| {
            // No variable can hold a NUL.
            let value = value.replace('\0', "\u{fffd}");
            let fits = name.len() + value.len() < VARIABLE_BYTES_MAX;
            (name, if fits { value } else { String::new() })
        };
        Ok(variables.map(fitting).into())
    }
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::ThisVm => "this",
        Scope::OtherVms => "rest",
    }
}

/// To a millisecond: more is noise.
fn timestamp(at: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(at).and_then(|at| Timestamp::from_millisecond(at.as_millisecond())).ok()
}

#[cfg(test)]
mod tests;
