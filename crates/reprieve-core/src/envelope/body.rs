//! Parses message bodies: JSON in the encodings that queue clients use, CloudEvents 1.0, and Event
//! Grid's own schema.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Data, Deferral, Envelope, Notes, SOURCE, Trace, job_id_of};
use crate::ids::{BlobName, JobId, MessageId};
use crate::names::what_but_a_job;
use crate::record::End;

/// Base64 with or without the padding, which some encoders leave out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Some Windows tools write it before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The attributes that Reprieve uses, as raw JSON. Every message is parsed at least once, so
/// nothing is copied without need.
#[derive(Deserialize)]
struct Attributes<'a> {
    #[serde(borrow)]
    specversion: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    source: Option<&'a RawValue>,
    r#type: Option<&'a RawValue>,
    datacontenttype: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    dataref: Option<&'a RawValue>,
    data_base64: Option<&'a RawValue>,
    reprievegeneration: Option<&'a RawValue>,
    reprieveends: Option<&'a RawValue>,
    reprievedeferred: Option<&'a RawValue>,
    reprievejob: Option<&'a RawValue>,
    time: Option<&'a RawValue>,
    reprieveargs: Option<&'a RawValue>,
    traceparent: Option<&'a RawValue>,
    tracestate: Option<&'a RawValue>,
    // Event Grid's names. Each of its events has the last three, and an id.
    topic: Option<&'a RawValue>,
    subject: Option<&'a RawValue>,
    #[serde(rename = "eventType")]
    event_type: Option<&'a RawValue>,
    #[serde(rename = "eventTime")]
    event_time: Option<&'a RawValue>,
}

/// The content of a body.
#[expect(clippy::large_enum_variant, reason = "a temporary value, taken apart at once")]
pub(super) enum Body {
    /// An event.
    Event(Envelope),
    /// JSON of another form.
    Json(Box<RawValue>),
}

/// Parses a body: an event, alone or as the only element of an array, or other JSON.
///
/// # Errors
/// The reason for the dead letter, in one sentence.
pub(super) fn read(body: &[u8], message: &MessageId) -> Result<Body, String> {
    // An event in plain text is parsed once.
    if let Some(envelope) = utf8(body).and_then(|text| event(text, message)) {
        return envelope.map(Body::Event);
    }
    let json = json(body)?;
    match event(json.get(), message).or_else(|| only_event(json.get(), message)) {
        Some(envelope) => envelope.map(Body::Event),
        None => Ok(Body::Json(json)),
    }
}

/// Decodes UTF-8 without the byte order mark; `None` when the bytes are not UTF-8.
fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)).ok()
}

/// Returns the JSON in a body, plain or in base64.
fn json(body: &[u8]) -> Result<Box<RawValue>, String> {
    let plain: Result<Box<RawValue>, _> =
        serde_json::from_slice(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
    let error = match plain {
        Ok(json) => return Ok(json),
        Err(error) => error,
    };
    if is_utf16(body) {
        return Err("the body is UTF-16 text; send it as UTF-8".to_owned());
    }
    let decoded = decode_base64(body).unwrap_or_default();
    if is_utf16(&decoded) {
        return Err("the body is base64 of UTF-16 text; encode it as UTF-8 first".to_owned());
    }
    utf8(&decoded)
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| format!("the body is neither JSON nor base64 of JSON: {error}"))
}

/// Decodes base64; `None` when it is none. Some encoders wrap lines, or use the alphabet of URLs.
fn decode_base64(encoded: &[u8]) -> Option<Vec<u8>> {
    let in_one_line = encoded.iter().filter(|byte| !byte.is_ascii_whitespace());
    let standard = in_one_line.map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    });
    BASE64.decode(standard.collect::<Vec<_>>()).ok()
}

/// Whether bytes are UTF-16 text that begins with a byte order mark or an ASCII character, as JSON
/// does.
fn is_utf16(bytes: &[u8]) -> bool {
    let units = |read: fn([u8; 2]) -> u16| {
        let mut units = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
        let whole = bytes.len().is_multiple_of(2);
        whole
            && units.next().is_some_and(|first| (1..128).contains(&first) || first == 0xfeff)
            && char::decode_utf16(units).all(|decoded| decoded.is_ok())
    };
    units(u16::from_le_bytes) || units(u16::from_be_bytes)
}

/// Parses an event; `None` when the text is not JSON, or is JSON of another form.
fn event(json: &str, message: &MessageId) -> Option<Result<Envelope, String>> {
    // serde would accept an array as the attributes in their order.
    if !json.trim_ascii_start().starts_with('{') {
        return None;
    }
    match serde_json::from_str::<Attributes<'_>>(json) {
        Ok(event) if event.specversion.is_some() => Some(cloud_event(json, &event, message)),
        Ok(event) if event.is_of_event_grid() => Some(grid_event(json, &event)),
        Ok(_) => None,
        // It is not known which of the two was meant.
        Err(error) if error.is_data() && error.to_string().starts_with("duplicate field") => {
            Some(Err("the envelope has an attribute twice".to_owned()))
        }
        Err(_) => None,
    }
}

/// Parses an array with one event, as some senders wrap it; `None` when the JSON is not an array of
/// events.
fn only_event(json: &str, message: &MessageId) -> Option<Result<Envelope, String>> {
    let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    let events: Option<Vec<_>> = elements.iter().map(|element| event(element.get(), message)).collect();
    match events?.as_mut_slice() {
        [] => None,
        [_] => event(elements[0].get(), message),
        several => Some(Err(format!(
            "the body is an array of {} events; send each in a message of its own",
            several.len()
        ))),
    }
}

fn cloud_event(json: &str, event: &Attributes<'_>, message: &MessageId) -> Result<Envelope, String> {
    if string("specversion", event.specversion)?.as_deref() != Some("1.0") {
        return Err("only CloudEvents specversion 1.0 is understood".to_owned());
    }
    let kind =
        string("type", event.r#type)?.ok_or("the envelope has no `type`, which names the job's kind")?;
    // An id is unique only within its source. The envelope keeps the original id.
    let source = string("source", event.source)?.unwrap_or_default();
    let id = string("id", event.id)?;
    let named_by_message = id.is_none();
    let job = match id {
        Some(id) if source == SOURCE => {
            if let Some(what) = what_but_a_job(&id) {
                return Err(format!("the id {id:?} is that of {what}, and of no job"));
            }
            JobId::parse(id).map_err(|error| error.to_string())?
        }
        Some(id) => JobId::of_event(&source, &id),
        None => job_id_of(message),
    };
    let envelope = event.envelope(json, job, kind.into_owned(), event.cloud_data()?)?;
    Ok(Envelope { named_by_message, ..envelope })
}

fn grid_event(json: &str, event: &Attributes<'_>) -> Result<Envelope, String> {
    let kind = string("eventType", event.event_type)?.unwrap_or_default();
    // Event Grid adds a topic to an event that was published without one.
    let topic = string("topic", event.topic)?.unwrap_or_default();
    let job = JobId::of_event(&topic, &string("id", event.id)?.unwrap_or_default());
    let data = event.data.unwrap_or(RawValue::NULL).to_owned();
    event.envelope(json, job, kind.into_owned(), Data::Inline(data))
}

impl Attributes<'_> {
    fn is_of_event_grid(&self) -> bool {
        let required = [self.id, self.subject, self.event_type, self.event_time];
        required.iter().all(|value| value.is_some_and(|value| value.get().starts_with('"')))
    }

    fn cloud_data(&self) -> Result<Data, String> {
        if let Some(data) = self.data {
            return Ok(Data::Inline(data.to_owned()));
        }
        if let Some(name) = string("dataref", self.dataref)? {
            let name =
                BlobName::parse(name).map_err(|_| "`dataref` must be the name of a blob".to_owned())?;
            return Ok(Data::Blob(name));
        }
        match string("data_base64", self.data_base64)? {
            Some(encoded) => self.decoded(&encoded).map(Data::Inline),
            None => Ok(Data::Inline(RawValue::NULL.to_owned())),
        }
    }

    /// Decodes `data_base64`, which is JSON unless the content type says otherwise.
    fn decoded(&self, encoded: &str) -> Result<Box<RawValue>, String> {
        if let Some(other) = string("datacontenttype", self.datacontenttype)?.filter(|given| !is_json(given))
        {
            return Err(format!(
                "`data_base64` is {other:?} and not JSON: send the arguments as JSON in `data`"
            ));
        }
        let bytes = decode_base64(encoded.as_bytes());
        bytes.and_then(|bytes| serde_json::from_str(utf8(&bytes)?).ok()).ok_or_else(|| {
            "`data_base64` is not base64 of JSON: send the arguments as JSON in `data`".to_owned()
        })
    }

    fn envelope(&self, json: &str, job: JobId, kind: String, data: Data) -> Result<Envelope, String> {
        let pinned = string("reprievejob", self.reprievejob)?
            .map(|id| JobId::parse(id).map_err(|error| error.to_string()))
            .transpose()?;
        let notes = Notes {
            generation: number("reprievegeneration", self.reprievegeneration)?,
            ends: ends(self.reprieveends)?,
            deferrals: string("reprievedeferred", self.reprievedeferred)?
                .map(|text| Deferral::read(&text).ok_or("`reprievedeferred` must be reasons and times"))
                .transpose()?
                .unwrap_or_default(),
            job: pinned.clone(),
        };
        let own_id = self.reprieveargs.map(|hash| serde_json::from_str(hash.get())).transpose();
        let own_id = own_id.map_err(|_| "`reprieveargs` must be the hash of arguments".to_owned())?;
        let since = string("time", self.time).ok().flatten().filter(|_| own_id.is_some());
        let since = since.and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let job = pinned.unwrap_or(job);
        // Of another program; the job is run whatever they are.
        let text = |value| string("", value).ok().flatten().map(Cow::into_owned);
        let trace = text(self.traceparent).map(|parent| Trace { parent, state: text(self.tracestate) });
        let (original, named_by_message) = (json.to_owned(), false);
        Ok(Envelope {
            original,
            noted: notes.clone(),
            notes,
            job,
            kind,
            data,
            own_id,
            own_since_unix_ms: since.map_or(0, jiff::Timestamp::as_millisecond),
            trace,
            named_by_message,
        })
    }
}

/// Parses the ends of deliveries. They are JSON in a string, because an event's attribute can't be
/// an array.
fn ends(value: Option<&RawValue>) -> Result<Vec<End>, String> {
    let Some(text) = string("reprieveends", value)? else { return Ok(Vec::new()) };
    serde_json::from_str(&text)
        .map_err(|_| "`reprieveends` must be the ends of deliveries as JSON".to_owned())
}

fn string<'a>(name: &str, value: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, String> {
    let Some(value) = value.map(RawValue::get) else { return Ok(None) };
    // A string without an escape is the text between its quotes.
    if let Some(plain) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        && !plain.contains('\\')
    {
        return Ok(Some(Cow::Borrowed(plain)));
    }
    let read = serde_json::from_str(value).map_err(|_| format!("`{name}` must be a string"))?;
    Ok(Some(Cow::Owned(read)))
}

fn number(name: &str, value: Option<&RawValue>) -> Result<u32, String> {
    value.map_or(Ok(0), |value| {
        serde_json::from_str(value.get()).map_err(|_| format!("`{name}` must be a whole number"))
    })
}

/// Whether a media type is JSON, such as `application/json; charset=utf-8` or
/// `application/geo+json`.
fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}
