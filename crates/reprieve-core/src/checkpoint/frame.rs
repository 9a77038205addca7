//! One checkpoint as bytes: a header that says whose it is and whether it is whole, and the payload.
//!
//! ```text
//! reprieve-checkpoint 1 <crc32> <header bytes> <payload bytes>\n{header as JSON}{payload}
//! ```
//! The first line is text and the header is JSON so that a person with nothing but `head -1` can read them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attempts::Baseline;
use crate::ids::{Fence, JobId};

const MAGIC: &str = "reprieve-checkpoint";
const FORMAT: u32 = 1;
/// Longer than any first line this format writes: magic, format, checksum and two lengths.
const FIRST_LINE_BYTES_MAX: usize = 96;

/// Who saved a checkpoint, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// The version of the payload's shape: [`Job::SCHEMA`](crate::Job::SCHEMA) of the binary that saved it.
    pub schema: u32,
    /// Which owner of the job saved it.
    pub fence: Fence,
    /// Its number, rising by one with each save of the job.
    pub sequence: u64,
    /// Tells this writer from any other with the same fence, and a write whose answer was lost from somebody else's.
    pub nonce: String,
    /// What to remember of the job's deliveries: see [`Baseline`](crate::attempts::Baseline).
    pub crashed: u32,
    /// The same.
    pub interrupted: u32,
    /// The same.
    pub accounted: u32,
    /// When it was saved, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
}

impl Header {
    /// What it remembers of the job's deliveries.
    #[must_use]
    pub const fn baseline(&self) -> Baseline {
        Baseline { crashed: self.crashed, interrupted: self.interrupted, accounted: self.accounted }
    }
}

/// Why bytes are not a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Bytes are missing, too many, or not those that were written.
    Damaged(&'static str),
    /// It was written by a newer version of this library.
    NewerFormat(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(how) => write!(f, "it is damaged: {how}"),
            Self::NewerFormat(format) => {
                write!(f, "it has format {format}, and this version reads formats up to {FORMAT}")
            }
        }
    }
}

/// Puts header and payload together.
#[must_use]
pub fn seal(header: &Header, payload: &[u8]) -> Vec<u8> {
    // A header of strings and numbers always has a JSON form.
    let header = serde_json::to_vec(header).unwrap_or_default();
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header);
    crc.update(payload);
    let first = format!("{MAGIC} {FORMAT} {:08x} {} {}\n", crc.finalize(), header.len(), payload.len());
    let mut bytes = Vec::with_capacity(first.len() + header.len() + payload.len());
    bytes.extend_from_slice(first.as_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(payload);
    bytes
}

/// Takes header and payload apart, if they are whole; the payload keeps the memory, which may be a lot.
pub(super) fn unseal(mut bytes: Vec<u8>) -> Result<(Header, Vec<u8>), Unreadable> {
    let (header, payload) = open(&bytes)?;
    let before = bytes.len() - payload.len();
    bytes.drain(..before);
    Ok((header, bytes))
}

/// Takes header and payload apart, if they are whole.
pub fn open(bytes: &[u8]) -> Result<(Header, &[u8]), Unreadable> {
    use Unreadable::Damaged;
    let end = bytes
        .iter()
        .take(FIRST_LINE_BYTES_MAX)
        .position(|b| *b == b'\n')
        .ok_or(Damaged("it has no first line"))?;
    let first = std::str::from_utf8(&bytes[..end]).map_err(|_| Damaged("its first line is not text"))?;
    let mut words = first.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(Damaged("its first line does not begin a checkpoint"));
    }
    match words.next().and_then(|format| format.parse().ok()) {
        Some(FORMAT) => {}
        Some(format) if format > FORMAT => return Err(Unreadable::NewerFormat(format)),
        _ => return Err(Damaged("its format is no number")),
    }
    let crc = words.next().and_then(|crc| u32::from_str_radix(crc, 16).ok()).ok_or(Damaged("no checksum"))?;
    let mut length = || words.next().and_then(|n| n.parse::<usize>().ok());
    let (header_len, payload_len) = length().zip(length()).ok_or(Damaged("its first line has no lengths"))?;
    let rest = &bytes[end + 1..];
    if header_len.checked_add(payload_len) != Some(rest.len()) {
        return Err(Damaged("it has not the length it was written with"));
    }
    if crc32fast::hash(rest) != crc {
        return Err(Damaged("its checksum does not match"));
    }
    let (header, payload) = rest.split_at(header_len);
    let header = serde_json::from_slice(header).map_err(|_| Damaged("its header can't be read"))?;
    Ok((header, payload))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::checkpoint) fn header(fence: u32, sequence: u64, nonce: &str) -> Header {
        Header {
            job: JobId::parse("j1").unwrap(),
            kind: "k".into(),
            schema: 1,
            fence: Fence::new(0, fence),
            sequence,
            nonce: nonce.into(),
            crashed: 0,
            interrupted: 0,
            accounted: 0,
            at_unix_ms: 0,
        }
    }

    #[test]
    fn a_checkpoint_of_a_newer_format_is_told_from_a_damaged_one() {
        assert_eq!(open(b"reprieve-checkpoint 2 whatever\n"), Err(Unreadable::NewerFormat(2)));
        assert!(matches!(open(b""), Err(Unreadable::Damaged(_))));
        assert!(matches!(open(b"{\"a\":1}\n"), Err(Unreadable::Damaged(_))));
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_nothing_shorter_longer_or_changed_does(
            payload in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0_usize..1000,
            flip in 0_usize..1000,
            bit in 0_u8..8,
        ) {
            let whole = seal(&header(3, 9, "n"), &payload);
            prop_assert_eq!(open(&whole).unwrap(), (header(3, 9, "n"), &payload[..]));
            prop_assert!(open(&whole[..cut % whole.len()]).is_err());
            let mut longer = whole.clone();
            longer.push(0);
            prop_assert!(open(&longer).is_err());
            let mut changed = whole.clone();
            let at = flip % whole.len();
            changed[at] ^= 1 << bit;
            // The checksum's own letters may change case and still be the same number.
            if !changed.eq_ignore_ascii_case(&whole) {
                prop_assert!(open(&changed).is_err(), "a flipped bit at {} was not seen", at);
            }
        }
    }
}
