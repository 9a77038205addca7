//! The identity of stored bytes.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of stored bytes. A shorter or a linear checksum, such as CRC-32, can be the same for two
/// states: all data of one length that end with their own CRC-32 have the same CRC-32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the bytes of the hash.
    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Hashes bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hashing(Sha256);

impl Hashing {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> ContentHash {
        ContentHash(self.0.finalize().into())
    }
}

impl fmt::Display for ContentHash {
    /// Formats the hash as 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// As hexadecimal digits in JSON, as bytes in MessagePack.
impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(ReadHash)
        } else {
            deserializer.deserialize_bytes(ReadHash)
        }
    }
}

struct ReadHash;

impl Visitor<'_> for ReadHash {
    type Value = ContentHash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("32 bytes, or 64 hexadecimal digits")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<ContentHash, E> {
        bytes.try_into().map(ContentHash).map_err(|_| E::invalid_length(bytes.len(), &self))
    }

    fn visit_str<E: de::Error>(self, digits: &str) -> Result<ContentHash, E> {
        let refused = || E::invalid_value(de::Unexpected::Str(digits), &self);
        let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Option<Vec<u8>> = digits.as_bytes().iter().map(digit).collect();
        let bytes: Vec<u8> = match digits {
            Some(digits) if digits.len() == 64 => {
                digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
            }
            _ => return Err(refused()),
        };
        bytes.try_into().map(ContentHash).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_comes_back_from_json_and_from_messagepack() {
        let hash = ContentHash::of(b"abc");
        let json = serde_json::to_string(&hash).unwrap();
        // The first example of FIPS 180-4.
        assert_eq!(json, "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"");
        assert_eq!(serde_json::from_str::<ContentHash>(&json).unwrap(), hash);
        let packed = rmp_serde::to_vec(&hash).unwrap();
        assert_eq!((packed.len(), rmp_serde::from_slice::<ContentHash>(&packed).unwrap()), (34, hash));
        let mut hashing = Hashing::default();
        b"abc".iter().for_each(|byte| hashing.update(&[*byte]));
        assert_eq!(hashing.finish(), hash);
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for text in ["", "ba78", &"g".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
            assert!(serde_json::from_str::<ContentHash>(&format!("{text:?}")).is_err(), "{text}");
        }
        assert!(rmp_serde::from_slice::<ContentHash>(&[0xc4, 2, 1, 2]).is_err());
    }
}
