//! Fields read whatever JSON type they are of.

use serde::{Deserialize as _, Deserializer};
use serde_json::Value;

/// A string as it is; nothing for null; anything else as its JSON, so that it is shown in a log and not lost.
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

/// Without blank ones, which name nobody.
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
