//! Pop receipts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Proves ownership of a message, until another receipt is issued for it.
///
/// Like the service's, it is opaque, has characters that a URL must escape, and does not reveal its
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt([u8; LENGTH]);

/// As long as the service's, so that it also ends in `=`.
const LENGTH: usize = 20;
/// The common prefix, as the service's receipts begin with a version.
const MARK: [u8; 4] = [2, 0, 0, 0];

impl Receipt {
    /// Returns a new receipt, unique even across restarts of the double.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..].copy_from_slice(&rand::random::<[u8; 16]>());
        Self(bytes)
    }

    /// Reads a receipt; `None` if it can't be one of this double.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; LENGTH] = STANDARD.decode(text).ok()?.try_into().ok()?;
        bytes.starts_with(&MARK).then_some(Self(bytes))
    }

    pub(crate) fn text(self) -> String {
        STANDARD.encode(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_differ_and_are_read_back() {
        let (one, two) = (Receipt::new(), Receipt::new());
        assert_ne!(one, two);
        assert_eq!(Receipt::parse(&one.text()), Some(one));
        assert!(one.text().ends_with('='), "{}", one.text());
        for none in ["", "abc", "AgAAAA==", &one.text()[1..], &format!("{} ", one.text())] {
            assert_eq!(Receipt::parse(none), None, "{none:?}");
        }
    }
}
