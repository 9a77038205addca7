//! The content of a Storage queue's receipt.

use reprieve_core::ports::Receipt;
use reprieve_core::{Error, ErrorKind, Result};

/// The parts of a receipt: a message and the pop receipt of its lease.
#[derive(PartialEq, Eq)]
pub(crate) struct ReceiptParts<'a> {
    pub(crate) id: &'a str,
    pub(crate) pop: &'a str,
    /// The blob with its body, if that is a long one.
    pub(crate) blob: Option<&'a str>,
    /// Since when that blob can't be read, in milliseconds since the Unix epoch; `None` when it was
    /// read.
    pub(crate) unreadable_since: Option<i64>,
}

/// No part can contain it: the parts are base64 or hexadecimal, one of our names, and a number.
const SEPARATOR: char = '\n';

impl<'a> ReceiptParts<'a> {
    /// A message without a long body.
    pub(crate) fn of(id: &'a str, pop: &'a str) -> Self {
        Self { id, pop, blob: None, unreadable_since: None }
    }

    pub(crate) fn read(receipt: &'a Receipt) -> Result<Self> {
        let mut parts = receipt.as_str().split(SEPARATOR);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(id), Some(pop), blob, since) => {
                let unreadable_since = since.and_then(|since| since.parse().ok());
                Ok(Self { blob, unreadable_since, ..Self::of(id, pop) })
            }
            _ => Err(Error::new(ErrorKind::Internal, "read a receipt", "it is not a Storage queue's")),
        }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        let Self { id, pop, blob, unreadable_since } = self;
        let mut receipt = format!("{id}{SEPARATOR}{pop}");
        if let Some(blob) = blob {
            receipt.push(SEPARATOR);
            receipt.push_str(blob);
            if let Some(since) = unreadable_since {
                receipt.push(SEPARATOR);
                receipt.push_str(&since.to_string());
            }
        }
        Receipt::new(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        let blob = Some(".reprieve/messages/1");
        for (blob, unreadable_since) in [(None, None), (blob, None), (blob, Some(1_700_000_000_123))] {
            let parts =
                ReceiptParts { blob, unreadable_since, ..ReceiptParts::of("d0c1", "AgAAAAMAAAA+/8=") };
            let receipt = parts.receipt();
            assert!(ReceiptParts::read(&receipt).unwrap() == parts);
        }
    }

    #[test]
    fn a_foreign_receipt_is_refused() {
        assert!(ReceiptParts::read(&Receipt::new("17")).is_err());
    }
}
