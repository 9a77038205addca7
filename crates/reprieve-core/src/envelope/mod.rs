//! The message format: a CloudEvents 1.0 JSON envelope, and the reading of message bodies from
//! other senders.
//!
//! | attribute | content |
//! |---|---|
//! | `id` | the job id |
//! | `type` | the job's kind |
//! | `data` | the job's arguments; or `dataref`, the name of the blob that contains them |
//! | `traceparent`, `tracestate` | the trace that the message is part of; copied into the messages of jobs that the job enqueues |
//! | `reprievegeneration` | how often the job was redriven |
//! | `reprieveargs` | the hash of the arguments of a job that was enqueued under an id of its producer's own: its first delivery reads its record |
//! | `reprieveends` | how deliveries of the message ended, unless a [record](crate::record) has it; JSON in a string |
//! | `reprievedeferred` | why and since when no worker could use the message |
//! | `reprievejob` | the job id, if the event has no id and the message was moved to another queue |
//!
//! Attributes that Reprieve does not know are kept unchanged.
//!
//! Events in Event Grid's own schema are accepted as well: `eventType` is the kind, `topic` and
//! `id` determine the job id, and `data` has the arguments. Such a message keeps its form; Reprieve
//! adds its attributes to the event's members.
//! <https://learn.microsoft.com/azure/event-grid/event-schema>

mod body;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use self::body::Body;
use crate::hash::ContentHash;
use crate::ids::{BlobName, JobId, MessageId};
use crate::record::End;

/// Arguments above this many bytes of JSON are stored in a blob. A Storage queue takes 64 KiB as
/// base64, which is 48 KiB of JSON; the rest is room for the envelope and for attributes of other
/// senders.
pub const INLINE_ARGS_BYTES_MAX: usize = 32 * 1024;

/// The largest body that is parsed: 4 MiB.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The location of a job's arguments.
pub enum Data {
    /// In the message.
    Inline(Box<RawValue>),
    /// In a blob.
    Blob(BlobName),
}

/// A message that could be parsed.
pub struct Envelope {
    /// The JSON object from which it was made or read. Each new body is made from this, so that
    /// foreign attributes are kept.
    original: String,
    /// The notes in `original`.
    noted: Notes,
    /// Whether the job id is derived from the message's id, because the event has none.
    named_by_message: bool,
    /// The job's id.
    pub job: JobId,
    /// The job's kind.
    pub kind: String,
    /// The job's arguments.
    pub data: Data,
    /// The hash of the arguments, if the job was enqueued under an id of its producer's own. It has had
    /// a record since then.
    pub own_id: Option<ContentHash>,
    /// When that was, in milliseconds since the Unix epoch; 0 for a job without such an id.
    pub(crate) own_since_unix_ms: i64,
    /// The trace that the message is part of.
    pub(crate) trace: Option<Trace>,
    /// Reprieve's notes in the message.
    pub notes: Notes,
}

/// Reprieve's notes in a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// How often the job was redriven.
    pub generation: u32,
    /// How deliveries ended, if no record contains it.
    pub ends: Vec<End>,
    /// Why and since when no worker could use the message; each reason at most once.
    pub deferrals: Vec<Deferral>,
    /// The job id, if the event has none of its own.
    job: Option<JobId>,
}

/// Why no worker could use a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Misfit {
    /// No worker that received it knows its kind, or can read its state.
    Unknown,
    /// Its arguments or state do not have the form of its kind.
    Shape,
    /// Its body or its arguments could not be read.
    Unreadable,
}

/// Why and since when no worker could use a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deferral {
    /// Why.
    pub misfit: Misfit,
    /// The time of the first such delivery, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
}

impl Misfit {
    const ALL: [Self; 3] = [Self::Unknown, Self::Shape, Self::Unreadable];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Shape => "shape",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Deferral {
    /// Parses `unknown 17, shape 23`.
    fn read(text: &str) -> Option<Vec<Self>> {
        let one = |text: &str| {
            let (reason, since) = text.split_once(' ')?;
            let misfit = Misfit::ALL.into_iter().find(|misfit| misfit.as_str() == reason)?;
            Some(Self { misfit, since_unix_ms: since.parse().ok()? })
        };
        text.split(", ").map(one).collect()
    }

    fn write(deferrals: &[Self]) -> String {
        let one = |deferral: &Self| format!("{} {}", deferral.misfit.as_str(), deferral.since_unix_ms);
        deferrals.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// A new message.
#[derive(Serialize)]
struct NewEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'static str,
    r#type: &'a str,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacontenttype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reprieveargs: Option<ContentHash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

/// The trace that a message is part of, by the extension of CloudEvents for that.
/// <https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/distributed-tracing.md>
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) parent: String,
    pub(crate) state: Option<String>,
}

/// The `source` of events from Reprieve's own producers. Their ids are unique without it.
const SOURCE: &str = "reprieve";

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Arguments belong to the user and must not be logged.
            Self::Inline(args) => write!(f, "Inline({} bytes)", args.get().len()),
            Self::Blob(name) => write!(f, "Blob({name})"),
        }
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("job", &self.job)
            .field("kind", &self.kind)
            .field("data", &self.data)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

impl Envelope {
    /// Creates a message for `job` of `kind`.
    #[must_use]
    pub fn new(job: JobId, kind: &str, data: Data) -> Self {
        Self::make(job, kind, data, None, None)
    }

    /// Creates a message for `job` of `kind`. With `own`, the hash of the arguments and the time at which it was
    /// enqueued, the job has an id of its producer's own.
    pub(crate) fn make(
        job: JobId,
        kind: &str,
        data: Data,
        own: Option<(ContentHash, i64)>,
        trace: Option<&Trace>,
    ) -> Self {
        let (own_id, since) = own.unzip();
        let since = since.unwrap_or_else(crate::clock::unix_millis);
        let time = jiff::Timestamp::from_millisecond(since).unwrap_or_default();
        let (inline, dataref) = match &data {
            Data::Inline(args) => (Some(&**args), None),
            Data::Blob(name) => (None, Some(name.as_str())),
        };
        let event = NewEvent {
            specversion: "1.0",
            id: job.as_str(),
            source: SOURCE,
            r#type: kind,
            time: format!("{time:.3}"),
            datacontenttype: inline.map(|_| "application/json"),
            data: inline,
            dataref,
            reprieveargs: own_id,
            traceparent: trace.map(|trace| trace.parent.as_str()),
            tracestate: trace.and_then(|trace| trace.state.as_deref()),
        };
        // Strings and JSON values always have a JSON form.
        let original = serde_json::to_string(&event).unwrap_or_default();
        let kind = kind.to_owned();
        let notes = Notes::default();
        let trace = trace.cloned();
        Self {
            original,
            noted: notes.clone(),
            named_by_message: false,
            job,
            kind,
            data,
            own_id,
            own_since_unix_ms: own_id.map_or(0, |_| since),
            trace,
            notes,
        }
    }

    /// Returns the body to send: the envelope with its present notes.
    #[must_use]
    pub fn to_body(&self) -> Vec<u8> {
        self.with_notes(&self.notes)
    }

    /// Returns the body for a copy of the message in another queue or under another id: for the
    /// same job, with this generation, and without the other notes about this message's deliveries.
    #[must_use]
    pub fn to_copy(&self, generation: u32) -> Vec<u8> {
        let job = if self.named_by_message { Some(self.job.clone()) } else { self.notes.job.clone() };
        self.with_notes(&Notes { generation, job, ..Notes::default() })
    }

    fn with_notes(&self, notes: &Notes) -> Vec<u8> {
        if *notes == self.noted {
            return self.original.clone().into_bytes();
        }
        // This can't fail: it was parsed as an object before.
        let mut attributes: BTreeMap<Cow<'_, str>, Cow<'_, RawValue>> =
            serde_json::from_str(&self.original).unwrap_or_default();
        for (name, value) in notes.attributes() {
            match value {
                Some(json) => drop(attributes.insert(name.into(), Cow::Owned(json))),
                None => drop(attributes.remove(name)),
            }
        }
        serde_json::to_vec(&attributes).unwrap_or_default()
    }

    /// Parses a body: an event in CloudEvents JSON or in Event Grid's schema, alone or as the only
    /// element of an array; or, for a queue with a `default_kind`, any JSON as arguments. Each of
    /// these may be base64, as many queue clients send it, and may begin with a UTF-8 byte order
    /// mark.
    ///
    /// # Errors
    /// The reason for the dead letter, in one sentence.
    pub fn read(body: &[u8], message: &MessageId, default_kind: Option<&str>) -> Result<Self, String> {
        if body.len() > BODY_BYTES_MAX {
            return Err(format!("the body has {} bytes, and at most {BODY_BYTES_MAX} are read", body.len()));
        }
        match (body::read(body, message)?, default_kind) {
            (Body::Event(envelope), _) => Ok(envelope),
            (Body::Json(json), Some(kind)) => Ok(Self::new(job_id_of(message), kind, Data::Inline(json))),
            (Body::Json(_), None) => {
                Err("the body is JSON, but neither a CloudEvents envelope (it has no specversion) nor an \
                     Event Grid event (with id, subject, eventType and eventTime), and this queue has no \
                     default kind"
                    .to_owned())
            }
        }
    }
}

impl Notes {
    /// The attributes for the notes; `None` for those that are removed.
    fn attributes(&self) -> [(&'static str, Option<Box<RawValue>>); 4] {
        let Self { generation, ends, deferrals, job } = self;
        // Numbers and strings always have a JSON form.
        let text = |text: String| to_raw_value(&text).ok();
        let ends = (!ends.is_empty()).then(|| serde_json::to_string(ends).ok()).flatten();
        [
            ("reprievegeneration", (*generation > 0).then(|| to_raw_value(generation).ok()).flatten()),
            ("reprieveends", ends.and_then(text)),
            ("reprievedeferred", (!deferrals.is_empty()).then(|| text(Deferral::write(deferrals))).flatten()),
            ("reprievejob", job.as_ref().and_then(|job| text(job.to_string()))),
        ]
    }
}

/// A job id derived from a message's id, and so the same for all its deliveries.
fn job_id_of(message: &MessageId) -> JobId {
    JobId::parse(format!("m{}", message.as_str())).unwrap_or_else(|_| {
        let safe: String = message
            .as_str()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(crate::ids::JOB_ID_BYTES_MAX - 1)
            .collect();
        JobId::parse(format!("m{safe}")).unwrap_or_else(|_| JobId::unique())
    })
}
