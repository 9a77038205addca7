//! The message format: a CloudEvents 1.0 JSON envelope, and the reading of bodies that others wrote.
//!
//! | attribute | holds |
//! |---|---|
//! | `id` | the job id |
//! | `type` | the job's kind |
//! | `data` | its arguments; or `dataref`, the name of the blob that has them |
//! | `reprievefailed` | deliveries that ended in a failure of the job |
//! | `reprieveinterrupted` | deliveries that were cut short by an interruption |
//! | `reprievedeferred` | deliveries that were given back before a step of them had run |
//! | `reprievegeneration` | how often it was redriven from the poison queue, or made way for another message of its job |
//!
//! Attributes that Reprieve does not know are carried along unchanged.
//!
//! Events in Event Grid's own schema are understood as well: `eventType` is the kind, `topic` and `id` make the job id,
//! `data` the arguments. Such a message keeps its form, and our counters stand in it beside the members that it came
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
    /// The counters that stand in it.
    counted: [u32; 4],
    /// The job's id.
    pub job: JobId,
    /// The job's kind.
    pub kind: String,
    /// Its arguments.
    pub data: Data,
    /// Deliveries that ended in a failure.
    pub failed: u32,
    /// Deliveries that were cut short.
    pub interrupted: u32,
    /// Deliveries that were given back unstarted.
    pub deferred: u32,
    /// How often it was redriven, or made way for another message of its job.
    pub generation: u32,
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

/// The attributes that count, in the order in which [`Envelope`] has them.
const COUNTERS: [&str; 4] =
    ["reprievefailed", "reprieveinterrupted", "reprievedeferred", "reprievegeneration"];

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
            .field("failed", &self.failed)
            .field("interrupted", &self.interrupted)
            .field("deferred", &self.deferred)
            .field("generation", &self.generation)
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
        Self {
            original,
            counted: [0; 4],
            job,
            kind,
            data,
            failed: 0,
            interrupted: 0,
            deferred: 0,
            generation: 0,
        }
    }

    /// The body to send: the envelope with its counters as they are now.
    #[must_use]
    pub fn to_body(&self) -> Vec<u8> {
        let counts = [self.failed, self.interrupted, self.deferred, self.generation];
        if counts == self.counted {
            return self.original.clone().into_bytes();
        }
        // It was read as an object before.
        let mut attributes: BTreeMap<Cow<'_, str>, Cow<'_, RawValue>> =
            serde_json::from_str(&self.original).unwrap_or_default();
        for (name, count) in COUNTERS.into_iter().zip(counts) {
            match to_raw_value(&count) {
                Ok(json) if count > 0 => drop(attributes.insert(name.into(), Cow::Owned(json))),
                _ => drop(attributes.remove(name)),
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
