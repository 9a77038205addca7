//! Extracts JSON text from a body, through the encodings that queue clients use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

/// Some Windows tools write it before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes UTF-8 without the byte order mark; `None` when the bytes are not UTF-8.
pub(super) fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)).ok()
}

/// Returns the JSON in a body, plain or in base64.
///
/// # Errors
/// The reason for the dead letter, in one sentence.
pub(super) fn json(body: &[u8]) -> Result<Box<RawValue>, String> {
    let plain: Result<Box<RawValue>, _> =
        serde_json::from_slice(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
    let error = match plain {
        Ok(json) => return Ok(json),
        Err(error) => error,
    };
    if is_utf16(body) {
        return Err("the body is UTF-16 text; send it as UTF-8".to_owned());
    }
    // Some encoders wrap lines.
    let encoded: Vec<_> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(encoded).unwrap_or_default();
    if is_utf16(&decoded) {
        return Err("the body is base64 of UTF-16 text; encode it as UTF-8 first".to_owned());
    }
    utf8(&decoded)
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| format!("the body is neither JSON nor base64 of JSON: {error}"))
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
