//! What a receipt of a Storage queue holds.

use reprieve_core::ports::Receipt;
use reprieve_core::{Error, ErrorKind, Result};

/// A message, the pop receipt that holds it, and the blob that its body is in when it is a long one.
#[derive(PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub(crate) id: &'a str,
    pub(crate) pop: &'a str,
    pub(crate) overflow: Option<&'a str>,
}

/// None of the three can contain it: two are base64 or hexadecimal, and the third is a name of ours.
const SEPARATOR: char = '\n';

impl<'a> Held<'a> {
    pub(crate) fn read(receipt: &'a Receipt) -> Result<Self> {
        let mut parts = receipt.as_str().split(SEPARATOR);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(id), Some(pop), overflow) => Ok(Self { id, pop, overflow }),
            _ => {
                Err(Error::new(ErrorKind::Internal, "read a receipt", "it is not one of this kind of queue"))
            }
        }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        let Self { id, pop, overflow } = self;
        let mut receipt = format!("{id}{SEPARATOR}{pop}");
        if let Some(blob) = overflow {
            receipt.push(SEPARATOR);
            receipt.push_str(blob);
        }
        Receipt::new(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        for overflow in [None, Some(".reprieve/messages/1")] {
            let held = Held { id: "d0c1", pop: "AgAAAAMAAAA+/8=", overflow };
            let receipt = held.receipt();
            assert!(Held::read(&receipt).unwrap() == held);
        }
    }

    #[test]
    fn a_foreign_receipt_is_refused() {
        assert!(Held::read(&Receipt::new("17")).is_err());
    }
}
