//! The encoding of a record: a first line with checksum and format, the record as JSON, and the
//! states and manifests that are kept inside.
//!
//! ```text
//! reprieve-record <crc32> <format> <JSON bytes>\n{JSON}{state and manifest of the first checkpoint}{of the second}
//! ```
//! The checksum covers everything after it, including the format, and is at the same place in every
//! format. So a flipped bit is reported as damage, never as a newer format. The first line and the
//! JSON are text, so that `head` shows them.

use std::fmt;

use super::{Place, Record};

const MAGIC: &[u8] = b"reprieve-record ";
const CRC_BYTES: usize = 8;
const FORMAT: u32 = 1;

/// Why bytes can't be read as a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Bytes are missing, superfluous or changed.
    Damaged(&'static str),
    /// A newer version of this library wrote them, in this format.
    NewerFormat(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(how) => write!(f, "the record is damaged: {how}"),
            Self::NewerFormat(format) => {
                write!(f, "the record has format {format}, and this version reads formats up to {FORMAT}")
            }
        }
    }
}

/// Encodes a record.
#[must_use]
pub fn seal(record: &Record) -> Vec<u8> {
    // A record consists of strings and numbers, which always have a JSON form.
    let json = serde_json::to_vec(record).unwrap_or_default();
    let mut rest = format!(" {FORMAT} {}\n", json.len()).into_bytes();
    rest.extend_from_slice(&json);
    for checkpoint in &record.checkpoints {
        let manifest = checkpoint.attachments.iter().map(|part| &part.place);
        for place in std::iter::once(&checkpoint.place).chain(manifest) {
            if let Place::Inside(bytes) = place {
                rest.extend_from_slice(bytes);
            }
        }
    }
    let mut bytes = Vec::with_capacity(MAGIC.len() + CRC_BYTES + rest.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(format!("{:08x}", crc32fast::hash(&rest)).as_bytes());
    bytes.append(&mut rest);
    bytes
}

/// Decodes a record.
///
/// # Errors
/// [`Unreadable`] when the bytes are damaged or have a newer format.
pub fn open(bytes: &[u8]) -> Result<Record, Unreadable> {
    use Unreadable::Damaged;
    let after_magic = bytes.strip_prefix(MAGIC).ok_or(Damaged("the header is missing"))?;
    let (crc, rest) = after_magic.split_at_checked(CRC_BYTES).ok_or(Damaged("the header is cut off"))?;
    let crc = std::str::from_utf8(crc).ok().and_then(|crc| u32::from_str_radix(crc, 16).ok());
    if crc != Some(crc32fast::hash(rest)) {
        return Err(Damaged("the checksum does not match"));
    }
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Damaged("the first line is incomplete"))?;
    let line = std::str::from_utf8(&rest[..end]).map_err(|_| Damaged("the first line is not text"))?;
    let mut words = line.split(' ').skip(1);
    match words.next().and_then(|format| format.parse().ok()) {
        Some(FORMAT) => {}
        Some(format) if format > FORMAT => return Err(Unreadable::NewerFormat(format)),
        _ => return Err(Damaged("the format is not a number")),
    }
    let length: usize = words.next().and_then(|n| n.parse().ok()).ok_or(Damaged("the length is missing"))?;
    let (json, mut states) =
        rest[end + 1..].split_at_checked(length).ok_or(Damaged("shorter than the declared length"))?;
    let mut record: Record = serde_json::from_slice(json).map_err(|_| Damaged("the JSON can't be read"))?;
    for checkpoint in &mut record.checkpoints {
        let manifest = checkpoint.attachments.iter_mut().map(|part| (part.bytes, &mut part.place));
        for (length, place) in std::iter::once((checkpoint.bytes, &mut checkpoint.place)).chain(manifest) {
            if let Place::Inside(bytes) = place {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (own, rest) =
                    states.split_at_checked(length).ok_or(Damaged("a checkpoint is cut off"))?;
                *bytes = own.to_vec();
                states = rest;
            }
        }
    }
    if states.is_empty() { Ok(record) } else { Err(Damaged("longer than the declared length")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::record;
    use super::*;

    #[test]
    fn the_checksum_distinguishes_a_newer_format_from_damage() {
        let rest = b" 2 whatever\n";
        let newer = [MAGIC, format!("{:08x}", crc32fast::hash(rest)).as_bytes(), rest].concat();
        assert_eq!(open(&newer), Err(Unreadable::NewerFormat(2)));
        for damaged in
            [&b""[..], b"{\"a\":1}\n", b"reprieve-record 00000000 2 whatever\n", b"reprieve-record 0"]
        {
            assert!(matches!(open(damaged), Err(Unreadable::Damaged(_))), "{damaged:?}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        let whole = seal(&record(&[b"newest", b"before it"]));
        for at in 0..whole.len() {
            assert!(matches!(open(&whole[..at]), Err(Unreadable::Damaged(_))), "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                // A changed case of a hexadecimal digit leaves the checksum the same number.
                if !changed.eq_ignore_ascii_case(&whole) {
                    assert!(matches!(open(&changed), Err(Unreadable::Damaged(_))), "bit {bit} at {at}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_sealed_frame_opens(states in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..3)) {
            let states: Vec<&[u8]> = states.iter().map(Vec::as_slice).collect();
            let record = record(&states);
            let mut bytes = seal(&record);
            prop_assert_eq!(open(&bytes), Ok(record));
            bytes.push(0);
            prop_assert!(open(&bytes).is_err());
        }
    }
}
