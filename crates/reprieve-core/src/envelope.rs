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
//! | `reprievegeneration` | how often it was redriven from the poison queue |
//!
//! Attributes that Reprieve does not know are carried along unchanged.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
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
    attributes: BTreeMap<String, Box<RawValue>>,
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
    /// How often it was redriven.
    pub generation: u32,
}

/// The `source` of what Reprieve's own producers send. Their ids are unique by themselves.
const SOURCE: &str = "reprieve";

const FAILED: &str = "reprievefailed";
const INTERRUPTED: &str = "reprieveinterrupted";
const DEFERRED: &str = "reprievedeferred";
const GENERATION: &str = "reprievegeneration";

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

fn raw<T: serde::Serialize>(value: &T) -> Box<RawValue> {
    // Strings and numbers always have a JSON form.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl Envelope {
    /// A new message for `job` of `kind`.
    #[must_use]
    pub fn new(job: JobId, kind: &str, data: Data) -> Self {
        let mut attributes = BTreeMap::new();
        attributes.insert("specversion".to_owned(), raw(&"1.0"));
        attributes.insert("id".to_owned(), raw(&job.as_str()));
        attributes.insert("source".to_owned(), raw(&SOURCE));
        attributes.insert("type".to_owned(), raw(&kind));
        let time = jiff::Timestamp::try_from(crate::clock::wall_now()).unwrap_or_default();
        attributes.insert("time".to_owned(), raw(&format!("{time:.3}")));
        match &data {
            Data::Inline(args) => {
                attributes.insert("datacontenttype".to_owned(), raw(&"application/json"));
                attributes.insert("data".to_owned(), args.clone());
            }
            Data::Blob(name) => drop(attributes.insert("dataref".to_owned(), raw(&name.as_str()))),
        }
        Self {
            attributes,
            job,
            kind: kind.to_owned(),
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
        let mut attributes = self.attributes.clone();
        for (name, count) in [
            (FAILED, self.failed),
            (INTERRUPTED, self.interrupted),
            (DEFERRED, self.deferred),
            (GENERATION, self.generation),
        ] {
            if count > 0 {
                attributes.insert(name.to_owned(), raw(&count));
            }
        }
        serde_json::to_vec(&attributes).unwrap_or_default()
    }

    /// Reads a body: CloudEvents JSON or, for a queue with a `default_kind`, any JSON as its arguments; either may be
    /// base64, as many queue clients send it.
    ///
    /// # Errors
    /// One sentence, for the poison queue.
    pub fn read(body: &[u8], message: &MessageId, default_kind: Option<&str>) -> Result<Self, String> {
        if body.len() > BODY_BYTES_MAX {
            return Err(format!("the body has {} bytes, and at most {BODY_BYTES_MAX} are read", body.len()));
        }
        if let Some(attributes) = cloud_event(body) {
            return Self::from_attributes(attributes, message);
        }
        let parsed: Result<Box<RawValue>, _> = serde_json::from_slice(body);
        let json = match parsed {
            Ok(json) => json,
            Err(error) => base64::engine::general_purpose::STANDARD
                .decode(body.trim_ascii())
                .ok()
                .and_then(|decoded| serde_json::from_slice(&decoded).ok())
                .ok_or_else(|| format!("the body is neither JSON nor base64 of JSON: {error}"))?,
        };
        match (cloud_event(json.get().as_bytes()), default_kind) {
            (Some(attributes), _) => Self::from_attributes(attributes, message),
            (_, Some(kind)) => Ok(Self::new(job_id_of(message), kind, Data::Inline(json))),
            (_, None) => Err("the body is JSON but no CloudEvents envelope (it has no specversion), \
                              and this queue has no default kind"
                .to_owned()),
        }
    }

    fn from_attributes(
        mut attributes: BTreeMap<String, Box<RawValue>>,
        message: &MessageId,
    ) -> Result<Self, String> {
        let text = |name: &str| -> Result<Option<String>, String> {
            attributes.get(name).map_or(Ok(None), |value| {
                serde_json::from_str(value.get()).map(Some).map_err(|_| format!("`{name}` must be a string"))
            })
        };
        let count = |name: &str| -> Result<u32, String> {
            attributes.get(name).map_or(Ok(0), |value| {
                serde_json::from_str(value.get()).map_err(|_| format!("`{name}` must be a whole number"))
            })
        };
        if text("specversion")?.as_deref() != Some("1.0") {
            return Err("only CloudEvents specversion 1.0 is understood".to_owned());
        }
        let kind = text("type")?.ok_or("the envelope has no `type`, which names the job's kind")?;
        // An id is only unique within its source. The envelope keeps the original.
        let source = text("source")?.unwrap_or_default();
        let job = match text("id")? {
            Some(id) if source == SOURCE => JobId::parse(id).map_err(|error| error.to_string())?,
            Some(id) => JobId::of_event(&source, &id),
            None => job_id_of(message),
        };
        let dataref = text("dataref")?;
        let (failed, interrupted) = (count(FAILED)?, count(INTERRUPTED)?);
        let (deferred, generation) = (count(DEFERRED)?, count(GENERATION)?);
        let data = match (attributes.get("data"), dataref) {
            (Some(data), _) => Data::Inline(data.clone()),
            (None, Some(name)) => Data::Blob(
                BlobName::parse(name).map_err(|_| "`dataref` must be the name of a blob".to_owned())?,
            ),
            (None, None) if attributes.contains_key("data_base64") => {
                return Err(
                    "`data_base64` is not understood: send the arguments as JSON in `data`".to_owned()
                );
            }
            (None, None) => Data::Inline(RawValue::NULL.to_owned()),
        };
        for counter in [FAILED, INTERRUPTED, DEFERRED, GENERATION] {
            attributes.remove(counter);
        }
        Ok(Self { attributes, job, kind, data, failed, interrupted, deferred, generation })
    }
}

/// The attributes of a CloudEvents envelope; `None` when the body is something else.
fn cloud_event(body: &[u8]) -> Option<BTreeMap<String, Box<RawValue>>> {
    let attributes: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).ok()?;
    attributes.contains_key("specversion").then_some(attributes)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Envelope, String> {
        Envelope::read(body.as_bytes(), &MessageId::new("7"), None)
    }

    #[test]
    fn what_was_written_is_read_again_with_its_counters() {
        let job = JobId::parse("j1").unwrap();
        let mut sent = Envelope::new(job.clone(), "resize", Data::Inline(raw(&[1, 2])));
        (sent.failed, sent.interrupted, sent.generation) = (1, 2, 3);
        let got = Envelope::read(&sent.to_body(), &MessageId::new("7"), None).unwrap();
        assert_eq!((got.job, got.kind.as_str()), (job, "resize"));
        assert_eq!((got.failed, got.interrupted, got.generation), (1, 2, 3));
        assert!(matches!(got.data, Data::Inline(data) if data.get() == "[1,2]"));
    }

    #[test]
    fn attributes_of_others_survive_a_rewrite() {
        let body =
            r#"{"specversion":"1.0","type":"k","id":"a","source":"/s","traceparent":"00-ab-cd-01","x":1.50}"#;
        let mut got = read(body).unwrap();
        got.interrupted += 1;
        let rewritten = String::from_utf8(got.to_body()).unwrap();
        for kept in [r#""traceparent":"00-ab-cd-01""#, r#""source":"/s""#, r#""x":1.50"#] {
            assert!(rewritten.contains(kept), "{kept} is gone from {rewritten}");
        }
        assert_eq!(read(&rewritten).unwrap().interrupted, 1);
    }

    #[test]
    fn bare_json_is_taken_where_the_queue_has_a_default_kind() {
        let got = Envelope::read(b" {\"a\":1} ", &MessageId::new("7"), Some("k")).unwrap();
        assert_eq!((got.kind.as_str(), got.job.as_str()), ("k", "m7"));
        assert!(matches!(got.data, Data::Inline(data) if data.get() == r#"{"a":1}"#));
    }

    #[test]
    fn base64_is_taken_for_what_it_holds() {
        let inner = r#"{"specversion":"1.0","type":"k","id":"a"}"#;
        let body = base64::engine::general_purpose::STANDARD.encode(inner);
        assert_eq!(read(&body).unwrap().kind, "k");
    }

    #[test]
    fn events_are_told_apart_by_source_and_id_together() {
        let job = |source: &str, id: &str| {
            let body = serde_json::json!({"specversion": "1.0", "type": "k", "id": id, "source": source});
            read(&body.to_string()).unwrap().job
        };
        assert_eq!(job("/a", "1"), job("/a", "1"));
        assert_ne!(job("/a", "1"), job("/b", "1"));
        assert_ne!(job("/a", "../../etc/passwd"), job("/a", "1"));
        assert_eq!(job("reprieve", "j1").as_str(), "j1");
    }

    #[test]
    fn an_event_without_an_id_is_named_after_its_message() {
        assert_eq!(read(r#"{"specversion":"1.0","type":"k"}"#).unwrap().job.as_str(), "m7");
    }

    #[test]
    fn a_body_that_cannot_be_read_says_why() {
        for (body, reason) in [
            ("", "neither JSON nor base64"),
            ("hello there", "neither JSON nor base64"),
            ("{", "neither JSON nor base64"),
            ("17", "no CloudEvents envelope"),
            (r#"{"a":1}"#, "no CloudEvents envelope"),
            (r#"{"specversion":"0.3","type":"k"}"#, "only CloudEvents specversion 1.0"),
            (r#"{"specversion":"1.0"}"#, "no `type`"),
            (r#"{"specversion":"1.0","type":3}"#, "`type` must be a string"),
            (r#"{"specversion":"1.0","type":"k","reprievefailed":-1}"#, "`reprievefailed` must be"),
            (r#"{"specversion":"1.0","type":"k","dataref":"../x"}"#, "`dataref` must be"),
            (r#"{"specversion":"1.0","type":"k","data_base64":"AA=="}"#, "`data_base64` is not understood"),
        ] {
            let refused = read(body).unwrap_err();
            assert!(refused.contains(reason), "{body:?} gave {refused:?}");
        }
    }
}
