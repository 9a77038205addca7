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

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
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
    /// The CloudEvents JSON that it was made or read as. What is sent again is made of this, so that attributes of others
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
    /// How often it was redriven.
    pub generation: u32,
}

/// The attributes that mean something here, as they stand in the JSON. Each message is read at least once, so nothing is
/// copied that is not needed.
#[derive(Deserialize)]
struct Attributes<'a> {
    #[serde(borrow)]
    specversion: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    source: Option<&'a RawValue>,
    r#type: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    dataref: Option<&'a RawValue>,
    data_base64: Option<IgnoredAny>,
    reprievefailed: Option<&'a RawValue>,
    reprieveinterrupted: Option<&'a RawValue>,
    reprievedeferred: Option<&'a RawValue>,
    reprievegeneration: Option<&'a RawValue>,
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

    /// Reads a body: CloudEvents JSON or, for a queue with a `default_kind`, any JSON as its arguments; either may be
    /// base64, as many queue clients send it.
    ///
    /// # Errors
    /// One sentence, for the poison queue.
    pub fn read(body: &[u8], message: &MessageId, default_kind: Option<&str>) -> Result<Self, String> {
        if body.len() > BODY_BYTES_MAX {
            return Err(format!("the body has {} bytes, and at most {BODY_BYTES_MAX} are read", body.len()));
        }
        if let Some(envelope) = Self::read_event(body, message) {
            return envelope;
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
        match (Self::read_event(json.get().as_bytes(), message), default_kind) {
            (Some(envelope), _) => envelope,
            (_, Some(kind)) => Ok(Self::new(job_id_of(message), kind, Data::Inline(json))),
            (_, None) => Err("the body is JSON but no CloudEvents envelope (it has no specversion), \
                              and this queue has no default kind"
                .to_owned()),
        }
    }

    /// Reads CloudEvents JSON; `None` when the body is something else.
    fn read_event(body: &[u8], message: &MessageId) -> Option<Result<Self, String>> {
        let body = std::str::from_utf8(body).ok()?;
        match serde_json::from_str::<Attributes<'_>>(body) {
            Ok(attributes) if attributes.specversion.is_none() => None,
            Ok(attributes) => Some(Self::from_attributes(body, &attributes, message)),
            // Which of the two was meant can't be told.
            Err(error) if error.is_data() && error.to_string().starts_with("duplicate field") => {
                Some(Err("the envelope has an attribute twice".to_owned()))
            }
            Err(_) => None,
        }
    }

    fn from_attributes(body: &str, event: &Attributes<'_>, message: &MessageId) -> Result<Self, String> {
        if text("specversion", event.specversion)?.as_deref() != Some("1.0") {
            return Err("only CloudEvents specversion 1.0 is understood".to_owned());
        }
        let kind =
            text("type", event.r#type)?.ok_or("the envelope has no `type`, which names the job's kind")?;
        // An id is only unique within its source. The envelope keeps the original.
        let source = text("source", event.source)?.unwrap_or_default();
        let job = match text("id", event.id)? {
            Some(id) if source == SOURCE => JobId::parse(id).map_err(|error| error.to_string())?,
            Some(id) => JobId::of_event(&source, &id),
            None => job_id_of(message),
        };
        let data = match (event.data, text("dataref", event.dataref)?) {
            (Some(data), _) => Data::Inline(data.to_owned()),
            (None, Some(name)) => Data::Blob(
                BlobName::parse(name).map_err(|_| "`dataref` must be the name of a blob".to_owned())?,
            ),
            (None, None) if event.data_base64.is_some() => {
                return Err(
                    "`data_base64` is not understood: send the arguments as JSON in `data`".to_owned()
                );
            }
            (None, None) => Data::Inline(RawValue::NULL.to_owned()),
        };
        let counters = [
            event.reprievefailed,
            event.reprieveinterrupted,
            event.reprievedeferred,
            event.reprievegeneration,
        ];
        let mut counted = [0; 4];
        for (at, (name, value)) in COUNTERS.into_iter().zip(counters).enumerate() {
            counted[at] = count(name, value)?;
        }
        let [failed, interrupted, deferred, generation] = counted;
        let original = body.to_owned();
        Ok(Self { original, counted, job, kind, data, failed, interrupted, deferred, generation })
    }
}

fn text(name: &str, value: Option<&RawValue>) -> Result<Option<String>, String> {
    value.map_or(Ok(None), |value| {
        serde_json::from_str(value.get()).map(Some).map_err(|_| format!("`{name}` must be a string"))
    })
}

fn count(name: &str, value: Option<&RawValue>) -> Result<u32, String> {
    value.map_or(Ok(0), |value| {
        serde_json::from_str(value.get()).map_err(|_| format!("`{name}` must be a whole number"))
    })
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
        let mut sent = Envelope::new(job.clone(), "resize", Data::Inline(to_raw_value(&[1, 2]).unwrap()));
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
    fn counters_that_were_set_back_are_not_carried_along() {
        let body = r#"{"specversion":"1.0","type":"k","id":"a","reprievefailed":4,"reprieveinterrupted":2}"#;
        for generation in [0, 1] {
            let mut got = read(body).unwrap();
            (got.failed, got.interrupted, got.generation) = (0, 0, generation);
            let again = Envelope::read(&got.to_body(), &MessageId::new("7"), None).unwrap();
            assert_eq!((again.failed, again.interrupted, again.generation), (0, 0, generation));
        }
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
            (r#"{"specversion":"1.0","type":"k","type":"l"}"#, "an attribute twice"),
            (r#"{"specversion":"1.0","type":"k","reprievefailed":-1}"#, "`reprievefailed` must be"),
            (r#"{"specversion":"1.0","type":"k","dataref":"../x"}"#, "`dataref` must be"),
            (r#"{"specversion":"1.0","type":"k","data_base64":"AA=="}"#, "`data_base64` is not understood"),
        ] {
            let refused = read(body).unwrap_err();
            assert!(refused.contains(reason), "{body:?} gave {refused:?}");
        }
    }
}
