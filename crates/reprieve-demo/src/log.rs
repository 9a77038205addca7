//! Reads the workers' logs: completed jobs and drains.

use jiff::Timestamp;
use serde::Deserialize;

/// A line of a worker's log that the demo uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) at_unix_ms: i64,
    pub(crate) vm: String,
    pub(crate) what: LogEvent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogEvent {
    /// A job's result is stored and its message is deleted.
    Completed { id: String },
    /// A drain has released all jobs.
    Drained(Drained),
}

/// A drain as its worker reports it. Times are milliseconds after the notice was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Drained {
    pub(crate) held: u64,
    pub(crate) released_after_ms: u64,
    pub(crate) quiesced_after_ms: u64,
    pub(crate) work_lost_ms: u64,
    /// Deliveries that were not released.
    pub(crate) abandoned: u64,
}

impl Logged {
    /// When the notice of a drain was read: its report is logged at the very moment at which it has
    /// quiesced.
    pub(crate) fn noticed_unix_ms(&self, drained: &Drained) -> i64 {
        self.at_unix_ms.saturating_sub_unsigned(drained.quiesced_after_ms)
    }

    /// Reads a line of `vm`'s log; `None` for any other line.
    pub(crate) fn read(vm: &str, line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            timestamp: Timestamp,
            message: String,
            job: Option<String>,
            outcome: Option<String>,
        }
        let Line { timestamp, message, job, outcome } = serde_json::from_str(line).ok()?;
        let what = match message.as_str() {
            "the job's run ended" if outcome.as_deref() == Some("completed") => {
                LogEvent::Completed { id: job? }
            }
            "drained" => LogEvent::Drained(serde_json::from_str(line).ok()?),
            _ => return None,
        };
        Some(Self { at_unix_ms: timestamp.as_millisecond(), vm: vm.to_owned(), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAINED: &str = r#"{"timestamp":"2026-11-21T12:44:03.600Z","level":"INFO","notice":"Preempt","held":2,"unstarted":0,"saved":2,"cut":0,"finished":0,"leases_lost":0,"abandoned":0,"still_running":0,"work_lost_ms":0,"released_after_ms":14,"quiesced_after_ms":15,"budget_left_ms":4970,"message":"drained","target":"reprieve_core::worker::drain"}"#;
    const COMPLETED: &str = r#"{"timestamp":"2026-11-21T12:44:03.600Z","level":"DEBUG","message":"the job's run ended","job":"019a","kind":"frame","delivery":1,"steps":40,"seconds":0.8,"outcome":"completed","target":"reprieve_core::worker"}"#;

    #[test]
    fn the_lines_that_matter_are_read() {
        let drained = Logged::read("vm-1", DRAINED).unwrap();
        let LogEvent::Drained(report) = &drained.what else { panic!("{drained:?}") };
        assert_eq!((report.held, report.released_after_ms, report.work_lost_ms), (2, 14, 0));
        assert_eq!(drained.at_unix_ms - drained.noticed_unix_ms(report), 15);
        let completed = Logged::read("vm-1", COMPLETED).unwrap();
        assert_eq!(completed.what, LogEvent::Completed { id: "019a".into() });
    }

    #[test]
    fn all_others_are_passed_over() {
        let other = COMPLETED.replace("completed", "began");
        for line in ["", "{", "thread panicked", &other, &COMPLETED[..60]] {
            assert_eq!(Logged::read("vm-1", line), None, "{line:?}");
        }
    }
}
