//! Pop receipts: what they look like, and which are none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Whoever shows it owns a message, until another one is issued for that message.
///
/// As those of the service it is opaque, has characters that a URL must escape, and shows no sign of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt([u8; LENGTH]);

/// As long as the service's, so that it also ends in a `=`.
const LENGTH: usize = 20;
/// What all begin with, as the service's begin with a version.
const MARK: [u8; 4] = [2, 0, 0, 0];

impl Receipt {
    /// One that there has never been, also not before the double was started again.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..].copy_from_slice(&rand::random::<[u8; 16]>());
        Self(bytes)
    }

    /// Reads one; `None` if it can't be a receipt of this double.
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
