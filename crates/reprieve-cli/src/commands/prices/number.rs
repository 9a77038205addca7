//! Prices as numbers in JSON.

use reprieve_azure::prices::price_text;
use reprieve_plan::Price;
use serde::{Serialize as _, Serializer, ser};
use serde_json::value::RawValue;

/// The exact digits, as a number.
#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
pub(in crate::commands) fn number<S: Serializer>(
    price: &Option<Price>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = price.map_or_else(|| "null".to_owned(), price_text);
    RawValue::from_string(text).map_err(ser::Error::custom)?.serialize(serializer)
}
