//! What a list of records shows of a job's end, so that the ends of thousands of jobs are read in a few
//! requests.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Record, Status, seal};
use crate::ports::{NOTE_BYTES_MAX, RecordWrite};

/// The end of a job in the note of its record. A job that waits or runs has no note.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndNote {
    /// The job is done. Contains its result.
    Done(Box<RawValue>),
    /// The job is done, and its result is in its blob, unless it has none.
    Stored,
    /// The job is dead-lettered, for this reason.
    Failed(String),
    /// The job was cancelled.
    Cancelled,
}

impl EndNote {
    /// The note of a record, `None` while the job waits or runs. `result` is the job's result, if it is
    /// known.
    fn of(record: &Record, result: Option<&RawValue>) -> Option<Self> {
        match &record.status {
            Status::Enqueued | Status::Running | Status::Waiting { .. } | Status::Escalated { .. } => None,
            Status::Done => Some(result.map_or(Self::Stored, |result| Self::Done(result.to_owned()))),
            Status::DeadLettered { reason } => Some(Self::Failed(reason.clone())),
            Status::Cancelled => Some(Self::Cancelled),
        }
    }

    /// Reads a note; `None` if there is none, or one of a newer version.
    pub(crate) fn read(note: &str) -> Option<Self> {
        serde_json::from_str(note).ok()
    }

    fn text(&self) -> String {
        // Strings and JSON values always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl RecordWrite {
    /// The write of this record, with the note that belongs to it. `result` is the job's result, if it is
    /// known; a long one is left out.
    pub(crate) fn of(record: &Record, result: Option<&RawValue>) -> Self {
        let note = EndNote::of(record, result).map(|note| note.text()).unwrap_or_default();
        let fits = note.len() <= NOTE_BYTES_MAX;
        let note = if fits { note } else { EndNote::Stored.text() };
        Self { record: seal(record), note, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::DeadLetter;

    fn note(status: Status, result: Option<&str>) -> String {
        let result = result.map(|json| RawValue::from_string(json.to_owned()).unwrap());
        let record = Record { status, ..super::super::tests::record(&[]) };
        RecordWrite::of(&record, result.as_deref()).note
    }

    #[test]
    fn a_note_says_how_the_job_ended_and_nothing_while_it_has_not() {
        let long = format!("\"{}\"", "x".repeat(NOTE_BYTES_MAX));
        let worst = DeadLetter::because("\u{1}".repeat(5_000)).reason;
        let cases = [
            (Status::Enqueued, None, String::new()),
            (Status::Running, None, String::new()),
            (Status::Waiting { due_unix_ms: 7 }, None, String::new()),
            (Status::Escalated { queue: "q".into(), why: "w".into() }, None, String::new()),
            (Status::Done, Some("null"), r#"{"done":null}"#.to_owned()),
            (Status::Done, Some(r#"{"a": 1.0}"#), r#"{"done":{"a": 1.0}}"#.to_owned()),
            (Status::Done, Some(long.as_str()), r#""stored""#.to_owned()),
            (Status::Done, None, r#""stored""#.to_owned()),
            (Status::DeadLettered { reason: "bad".into() }, None, r#"{"failed":"bad"}"#.to_owned()),
            (Status::Cancelled, None, r#""cancelled""#.to_owned()),
        ];
        for (status, result, expected) in cases {
            assert_eq!(note(status.clone(), result), expected, "{status:?}");
        }
        let longest = note(Status::DeadLettered { reason: worst }, None);
        assert!(longest.starts_with(r#"{"failed":"#) && longest.len() <= NOTE_BYTES_MAX);
        assert!(EndNote::read("").is_none() && EndNote::read(r#"{"paused":1}"#).is_none());
        let Some(EndNote::Done(result)) = EndNote::read(r#"{"done":null}"#) else { panic!("it is done") };
        assert_eq!(result.get(), "null");
    }
}
