//! Deserializes fields of any JSON type.

use serde::{Deserialize as _, Deserializer};
use serde_json::Value;

/// A string as it is, an empty string for null, and the JSON text of anything else, so that it
/// shows in a log.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Value::deserialize(deserializer).map(as_text)
}

pub(super) fn text_into<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    text(deserializer).map(T::from)
}

/// Drops blank strings, which name no VM.
pub(super) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let values = match Value::deserialize(deserializer)? {
        Value::Array(values) => values,
        one => vec![one],
    };
    Ok(values.into_iter().map(as_text).filter(|text| !text.trim().is_empty()).collect())
}

pub(super) fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    })
}
