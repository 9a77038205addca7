//! The message format: a CloudEvents 1.0 JSON envelope, and the reading of bodies that others wrote.
//!
//! | attribute | holds |
//! |---|---|
//! | `id` | the job id |
//! | `type` | the job's kind |
//! | `data` | its arguments; or `dataref`, the name of the blob that has them |
//! | `reprievegeneration` | how often the job was redriven |
//! | `reprieveends` | how deliveries of the message ended, as far as no [record](crate::record) holds it, as JSON in a string |
//! | `reprievedeferred` | why and since when no worker could use the message |
//! | `reprievejob` | the job id, where the message has none and was moved to another queue |
//!
//! Attributes that Reprieve does not know are carried along unchanged.
//!
//! Events in Event Grid's own schema are understood as well: `eventType` is the kind, `topic` and `id` make the job id,
//! `data` the arguments. Such a message keeps its form, and ours are added to the members that it came
//! with. <https://learn.microsoft.com/azure/event-grid/event-schema>

mod event;
mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::ids::{BlobName, JobId, MessageId};
use crate::record::End;

/// Arguments above this many bytes of JSON travel by a blob. A Storage queue takes 64 KiB as base64, that is 48 KiB
/// of JSON, and the rest is room for the envelope and for attributes that others add.
pub const INLINE_ARGS_BYTES_MAX: usize = 32 * 1024;

/// The largest body that is read at all: 4 MiB.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where a job's arguments are.
pub enum Data {
    /// In the message.
    Inline(Box<RawValue>),
    /// In a blob.
    Blob(BlobName),
}

/// A message that could be read.
pub struct Envelope {
    /// The JSON object that it was made or read as. What is sent again is made of this, so that attributes of others
    /// survive.
    original: String,
    /// The notes that are in it.
    noted: Notes,
    /// Whether the job is named after its message, because the event has no id.
    named_by_message: bool,
    /// The job's id.
    pub job: JobId,
    /// The job's kind.
    pub kind: String,
    /// Its arguments.
    pub data: Data,
    /// What Reprieve notes in the message.
    pub notes: Notes,
}

/// What Reprieve notes in a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// How often the job was redriven.
    pub generation: u32,
    /// How deliveries ended, as far as no record holds it.
    pub ends: Vec<End>,
    /// Why and since when no worker could use the message; each reason once.
    pub deferrals: Vec<Deferral>,
    /// The job id, where the message has none of its own.
    job: Option<JobId>,
}

/// Why no worker could use a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Misfit {
    /// No worker that received it knows its kind, or reads its state.
    Unknown,
    /// Its arguments or state do not fit its kind.
    Shape,
    /// Its body or its arguments could not be read.
    Unreadable,
}

/// Why and since when no worker could use a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deferral {
    /// Why.
    pub misfit: Misfit,
    /// Since when, in milliseconds since the Unix epoch.
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
    /// Reads `unknown 17, shape 23`.
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
}

/// The `source` of what Reprieve's own producers send. Their ids are unique by themselves.
const SOURCE: &str = "reprieve";

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Arguments are the user's, and no business of a log.
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
    /// A new message for `job` of `kind`.
    #[must_use]
    pub fn new(job: JobId, kind: &str, data: Data) -> Self {
        let time = jiff::Timestamp::try_from(crate::clock::wall_now()).unwrap_or_default();
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
        };
        // Strings, and what is JSON already, always have a JSON form.
        let original = serde_json::to_string(&event).unwrap_or_default();
        let kind = kind.to_owned();
        let notes = Notes::default();
        Self { original, noted: notes.clone(), named_by_message: false, job, kind, data, notes }
    }

    /// The body to send: the envelope with its notes as they are now.
    #[must_use]
    pub fn to_body(&self) -> Vec<u8> {
        self.with_notes(&self.notes)
    }

    /// The body of a copy of the message, in another queue or under another id: of this generation, with nothing noted of
    /// this message's deliveries, and the same job.
    #[must_use]
    pub fn to_copy(&self, generation: u32) -> Vec<u8> {
        let job = if self.named_by_message { Some(self.job.clone()) } else { self.notes.job.clone() };
        self.with_notes(&Notes { generation, job, ..Notes::default() })
    }

    fn with_notes(&self, notes: &Notes) -> Vec<u8> {
        if *notes == self.noted {
            return self.original.clone().into_bytes();
        }
        // It was read as an object before.
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

    /// Reads a body: an event, as CloudEvents JSON or in Event Grid's schema, alone or as the only one of an array; or, for
    /// a queue with a `default_kind`, any JSON as its arguments. All may be base64, as many queue clients send it, and
    /// may begin with a byte order mark of UTF-8.
    ///
    /// # Errors
    /// One sentence, for the poison queue.
    pub fn read(body: &[u8], message: &MessageId, default_kind: Option<&str>) -> Result<Self, String> {
        if body.len() > BODY_BYTES_MAX {
            return Err(format!("the body has {} bytes, and at most {BODY_BYTES_MAX} are read", body.len()));
        }
        if let Some(envelope) = text::utf8(body).and_then(|text| event::read(text, message)) {
            return envelope;
        }
        let json = text::json(body)?;
        let event = event::read(json.get(), message).or_else(|| event::read_only_one(json.get(), message));
        match (event, default_kind) {
            (Some(envelope), _) => envelope,
            (_, Some(kind)) => Ok(Self::new(job_id_of(message), kind, Data::Inline(json))),
            (_, None) => Err("the body is JSON, but neither a CloudEvents envelope (it has no specversion) nor an \
                              Event Grid event (with id, subject, eventType and eventTime), and this queue has no \
                              default kind"
                .to_owned()),
        }
    }
}

impl Notes {
    /// The attributes that hold the notes; what is not noted has none.
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

/// A job id made of a message's id: stable across its deliveries.
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
