//! The encodings of a job's values: states as MessagePack with field names, arguments and results
//! as JSON. A value that would come back as another one is refused, with its path.

mod digest;
mod tree;

use std::any::TypeId;
use std::fmt;
use std::io::{self, BufReader, BufWriter, Write};
use std::thread;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::ser::{self, Serializer};
use serde::{Deserialize as _, Serialize};
use serde_json::value::{RawValue, to_raw_value};

pub(crate) use self::digest::Digest;
use self::digest::Digesting;
use self::tree::Tree;
use crate::hash::{ContentHash, Hashing};

/// The longest encoding that is written without being measured before. A longer one is measured
/// first, so that it takes no more memory than its length.
const UNMEASURED_MAX: usize = 64 * 1024;

/// The level of compression: the fastest that is worth its time.
const LEVEL: i32 = 1;

/// An encoded state. Clones share its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    bytes: Bytes,
    hash: ContentHash,
    /// The fingerprint before compression.
    plain: Fingerprint,
    is_packed: bool,
}

/// A state's length and hash when it is encoded, to detect changes. Only states that one process
/// encoded are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    length: u64,
    hash: ContentHash,
}

impl Fingerprint {
    /// The fingerprint of an encoding.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len() as u64, hash: ContentHash::of(bytes) }
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }
}

impl Encoded {
    /// Returns the encoding.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns its hash.
    pub(crate) const fn hash(&self) -> ContentHash {
        self.hash
    }

    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        self.plain
    }

    /// Whether it is compressed.
    pub(crate) const fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Whether the state is the one with this digest.
    pub(crate) fn has_digest(&self, digest: Digest) -> bool {
        let own = if self.is_packed {
            let mut digesting = Digesting::default();
            zstd::stream::copy_decode(&self.bytes[..], &mut digesting).and_then(|()| digesting.finish())
        } else {
            Digest::of_encoding(&self.bytes)
        };
        own.is_ok_and(|own| own == digest)
    }

    /// Returns the length before compression; `None` when it is not compressed.
    pub(crate) fn plain_bytes(&self) -> Option<u64> {
        self.is_packed.then_some(self.plain.length)
    }

    fn plain(bytes: Vec<u8>) -> Self {
        let plain = Fingerprint::of(&bytes);
        Self { bytes: bytes.into(), hash: plain.hash, plain, is_packed: false }
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes)", self.bytes.len())
    }
}

/// Encodes a state as MessagePack. Numbers keep every bit, also those that are infinite or NaN.
///
/// # Errors
/// A sentence with the path of the value that can't be encoded. `Some` of something that is itself
/// encoded as nil is refused, because it would come back as `None`.
pub fn encode_state<T: Serialize + ?Sized>(state: &T) -> Result<Encoded, String> {
    refuse(state, Loss::SomeOfNil)?;
    if let Some(bytes) = encode_short(state) {
        return Ok(Encoded::plain(bytes));
    }
    let mut length = Length(0);
    write(state, &mut length)?;
    let mut bytes = Vec::with_capacity(length.0);
    write(state, &mut bytes)?;
    Ok(Encoded::plain(bytes))
}

/// Encodes a state and compresses it on the way, so that only the compressed bytes take memory.
///
/// # Errors
/// The same as of [`encode_state`].
pub(crate) fn encode_packed<T: Serialize + ?Sized>(state: &T) -> Result<Encoded, String> {
    refuse(state, Loss::SomeOfNil)?;
    let pack = || -> io::Result<_> {
        let encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
        let both = Both { checksum: Checksum::default(), then: encoder };
        let mut buffered = BufWriter::with_capacity(UNMEASURED_MAX, both);
        let written = write(state, &mut buffered);
        let Both { checksum, then } = buffered.into_inner()?;
        Ok((written, checksum.fingerprint(), then.finish()?))
    };
    let (written, plain, bytes) = pack().map_err(|error| error.to_string())?;
    written?;
    Ok(Encoded { hash: ContentHash::of(&bytes), bytes: bytes.into(), plain, is_packed: true })
}

/// Decompresses a state that was `plain_bytes` long before.
///
/// # Errors
/// Why the bytes are no such state.
pub(crate) fn unpack(bytes: &[u8], plain_bytes: u64) -> Result<Bytes, String> {
    let length = usize::try_from(plain_bytes).map_err(|error| error.to_string())?;
    let plain = zstd::bulk::decompress(bytes, length).map_err(|error| error.to_string())?;
    if plain.len() == length { Ok(plain.into()) } else { Err("its length is another one".to_owned()) }
}

/// Returns the length of `sample` when it is compressed.
pub(crate) fn packed_length(sample: &[u8]) -> io::Result<usize> {
    zstd::bulk::compress(sample, LEVEL).map(|packed| packed.len())
}

/// Returns the fingerprint that the state has when it is encoded, without keeping its bytes.
///
/// # Errors
/// The same as of [`encode_state`].
pub(crate) fn fingerprint<T: Serialize + ?Sized>(state: &T) -> Result<Fingerprint, String> {
    let mut checksum = BufWriter::with_capacity(UNMEASURED_MAX, Checksum::default());
    write(state, &mut checksum)?;
    Ok(checksum.into_inner().map_err(|error| error.to_string())?.fingerprint())
}

/// Returns a short encoding; `None` for a longer one, and for a state that can't be encoded.
fn encode_short<T: Serialize + ?Sized>(state: &T) -> Option<Vec<u8>> {
    let mut short = Short(Vec::new());
    rmp_serde::encode::write_named(&mut short, state).ok().map(|()| short.0)
}

fn write<T: Serialize + ?Sized>(state: &T, mut to: impl Write) -> Result<(), String> {
    rmp_serde::encode::write_named(&mut to, state).map_err(|error| {
        let mut serializer = rmp_serde::Serializer::new(io::sink()).with_struct_map();
        let found = serde_path_to_error::serialize(state, &mut serializer).err();
        found.map_or_else(|| error.to_string(), |found| at(found.path(), found.inner()))
    })?;
    to.flush().map_err(|error| error.to_string())
}

/// Takes the bytes of a short encoding, and refuses a longer one.
struct Short(Vec<u8>);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > UNMEASURED_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the bytes.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts and hashes the bytes.
#[derive(Debug, Default)]
struct Checksum {
    length: u64,
    hashing: Hashing,
}

impl Checksum {
    fn fingerprint(self) -> Fingerprint {
        Fingerprint { length: self.length, hash: self.hashing.finish() }
    }
}

/// Writes the bytes to both.
struct Both<W> {
    checksum: Checksum,
    then: W,
}

impl<W: Write> Write for Both<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.then.write(bytes)?;
        self.checksum.write_all(&bytes[..written])?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        // The encoder ends its frame once, when everything is written.
        Ok(())
    }
}

impl Write for Checksum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        self.hashing.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes a state.
///
/// # Errors
/// A sentence with the path of the value that does not fit, without the value: it may be long, and
/// is the user's data.
pub fn decode_state<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
    let state = T::deserialize(&mut deserializer).map_err(|error| {
        let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
        let found = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err();
        found.map_or_else(|| misfit(&error), |found| at(found.path(), misfit(found.inner())))
    })?;
    // Nothing may follow. At the end there is no marker to read; anything else is read or refused.
    match bool::deserialize(&mut deserializer) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(state),
        _ => Err("bytes follow after its end".to_owned()),
    }
}

/// Encodes a state, drops it, and returns the decoded one: what the job would continue with on
/// another machine.
///
/// # Errors
/// A sentence with the path of the first value that can't be encoded, can't be decoded, or comes
/// back as another one.
pub(crate) fn round_trip<T: Serialize + DeserializeOwned + 'static>(state: T) -> Result<T, String> {
    if is_raw::<T>() {
        return Ok(state);
    }
    let encoded = encode_state(&state)?;
    drop(state);
    decode_checked(&encoded)
}

/// Decodes a state that was just encoded, and checks that it is the same state.
fn decode_checked<T: Serialize + DeserializeOwned>(encoded: &Encoded) -> Result<T, String> {
    let decoded = decode_state(&encoded.bytes).map_err(|error| format!("it can't be read again: {error}"))?;
    compare(encoded, &decoded)?;
    Ok(decoded)
}

/// Encodes a state, and checks that its decoded form is the same state.
///
/// # Errors
/// The same as of [`round_trip`].
pub(crate) fn encode_checked<T: Serialize + DeserializeOwned + Send + 'static>(
    state: &T,
) -> Result<Encoded, String> {
    let is_long = || encode_short(state).is_none();
    if is_raw::<T>() || is_long() && comes_back(state).unwrap_or(false) {
        return encode_state(state);
    }
    let encoded = encode_state(state)?;
    decode_checked::<T>(&encoded).map(|_| encoded)
}

/// Whether the decoded form of a state is the same state. One thread encodes what another decodes, so
/// the state is in memory twice and not also as its encoding.
///
/// # Errors
/// When no thread can be started, or the state can't be encoded or decoded.
fn comes_back<T: Serialize + DeserializeOwned + Send>(state: &T) -> io::Result<bool> {
    let (reader, writer) = io::pipe()?;
    let (written, decoded) = thread::scope(|scope| {
        let decode = || T::deserialize(&mut rmp_serde::Deserializer::new(BufReader::new(reader)));
        let thread = thread::Builder::new().name("check-state".to_owned()).stack_size(STACK_BYTES);
        let decoding = thread.spawn_scoped(scope, decode)?;
        let both = Both { checksum: Checksum::default(), then: writer };
        let mut buffered = BufWriter::with_capacity(UNMEASURED_MAX, both);
        write(state, &mut buffered).map_err(io::Error::other)?;
        let written = buffered.into_inner()?.checksum.fingerprint();
        let decoded = decoding.join().map_err(|_| io::Error::other("it panicked"))?;
        Ok::<_, io::Error>((written, decoded.map_err(io::Error::other)?))
    })?;
    Ok(fingerprint(&decoded) == Ok(written) || same(digest(state), digest(&decoded)))
}

/// The stack of a thread that reads and compares states, which is recursive: an unoptimized build takes
/// several KiB for each level. Memory that is not used is not taken.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// Whether a state is bytes alone, which come back as they are.
fn is_raw<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<Bytes>()
}

/// Fails if the encoding of `decoded` is another one, other than by the order of elements.
fn compare<T: Serialize>(encoded: &Encoded, decoded: &T) -> Result<(), String> {
    let mut rest = Unwritten(&encoded.bytes);
    let written = rmp_serde::encode::write_named(&mut rest, decoded);
    if written.is_ok() && rest.0.is_empty() {
        return Ok(());
    }
    // A map with hashing has another order each time, and may be large: neither another encoding nor its
    // tree is made of it.
    if same(digest(decoded), Digest::of_encoding(&encoded.bytes)) {
        return Ok(());
    }
    let other = encode_state(decoded)?;
    let path = decode_state::<Tree>(&encoded.bytes)?.difference(&decode_state(&other.bytes)?);
    path.map_or(Ok(()), |path| {
        let value = if path.is_empty() { "the whole state" } else { path.trim_start_matches('.') };
        Err(format!("{value} comes back as another value from its `Serialize` and `Deserialize`"))
    })
}

/// Returns the digest of a state, which does not depend on the order of elements.
///
/// # Errors
/// When the state can't be encoded.
pub(crate) fn digest<T: Serialize>(state: &T) -> io::Result<Digest> {
    let mut digesting = Digesting::default();
    write(state, &mut digesting).map_err(io::Error::other)?;
    digesting.finish()
}

fn same(one: io::Result<Digest>, other: io::Result<Digest>) -> bool {
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// The bytes that are expected next. Writing others fails.
struct Unwritten<'a>(&'a [u8]);

impl Write for Unwritten<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes arguments or a result as JSON.
///
/// # Errors
/// A sentence with the path of the value that has no JSON form. NaN and the infinities have none.
pub(crate) fn encode_json<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, String> {
    refuse(value, Loss::NonFinite)?;
    to_raw_value(value).map_err(|error| error.to_string())
}

/// Describes why a value does not fit, without the value.
pub(crate) fn without_value(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    match text.find(", expected ") {
        Some(at) => text[at + 2..].to_owned(),
        None => text,
    }
}

/// Describes why a state does not fit, without its values.
fn misfit(error: &rmp_serde::decode::Error) -> String {
    let text = without_value(error);
    let Some(marker) = text.strip_prefix("wrong msgpack marker ") else { return text };
    let found = match marker.trim_start_matches("Fix").trim_end_matches(|c: char| !c.is_alphabetic()) {
        "Str" => "a text",
        "Pos" | "Neg" | "U" | "I" => "a whole number",
        "F" => "a number",
        "True" | "False" => "a truth value",
        "Array" => "a list",
        "Map" => "a struct or map",
        _ => "bytes",
    };
    format!("{found} is stored, and the type expects another")
}

fn at(path: &serde_path_to_error::Path, error: impl fmt::Display) -> String {
    // The path of the whole value is a dot.
    if path.iter().next().is_none() { error.to_string() } else { format!("{path}: {error}") }
}

fn refuse<T: Serialize + ?Sized>(value: &T, loss: Loss) -> Result<(), String> {
    // The path costs time, so it is looked for only when it is needed. An error of the value's own
    // is left to the encoder.
    let levels_left = loss.levels_max();
    match value.serialize(Lossy { loss, levels_left }) {
        Err(Refused::Lossy) => {
            let found = serde_path_to_error::serialize(value, Lossy { loss, levels_left }).err();
            Err(found.map_or_else(|| loss.to_string(), |found| at(found.path(), loss)))
        }
        Err(Refused::TooDeep) => Err(format!(
            "it is nested more than {levels_left} levels deep (a variant with several fields counts twice), and \
             could not be read again; use a list of parts that refer to each other by number"
        )),
        _ => Ok(()),
    }
}

/// How deep a state may be nested. The decoder reads up to 1,023 lists and maps within each other,
/// and an unoptimized build needs up to 4 KiB of the stack for each; a thread has at least 2 MiB.
const STATE_LEVELS_MAX: u16 = 400;

/// How deep JSON may be nested: `serde_json` reads no more.
const JSON_LEVELS_MAX: u16 = 127;

/// A value that an encoding does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    SomeOfNil,
    NonFinite,
}

impl Loss {
    /// How deep a value may be nested for the encoding that has this loss.
    const fn levels_max(self) -> u16 {
        match self {
            Self::SomeOfNil => STATE_LEVELS_MAX,
            Self::NonFinite => JSON_LEVELS_MAX,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SomeOfNil => {
                "`Some` of `None` or of `()` would come back as `None`; use an enum with a variant for each case"
            }
            Self::NonFinite => "NaN and infinite numbers have no JSON form; use an `Option` or a text",
        })
    }
}

#[derive(Debug)]
enum Refused {
    Lossy,
    TooDeep,
    Own,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Own
    }
}

/// Looks for a loss in a value, and writes nothing. Returns whether the value is encoded as nil.
#[derive(Debug, Clone, Copy)]
struct Lossy {
    loss: Loss,
    levels_left: u16,
}

impl Lossy {
    /// The same for the parts of a value.
    fn deeper(self) -> Result<Self, Refused> {
        let levels_left = self.levels_left.checked_sub(1).ok_or(Refused::TooDeep)?;
        Ok(Self { levels_left, ..self })
    }

    fn number(self, is_finite: bool) -> Result<bool, Refused> {
        if self.loss == Loss::NonFinite && !is_finite { Err(Refused::Lossy) } else { Ok(false) }
    }
}

macro_rules! without_loss {
    ($($name:ident($type:ty);)*) => {
        $(fn $name(self, _: $type) -> Result<bool, Refused> {
            Ok(false)
        })*
    };
}

impl Serializer for Lossy {
    type Ok = bool;
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    without_loss! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_unit_struct(&'static str);
    }

    fn serialize_f32(self, number: f32) -> Result<bool, Refused> {
        self.number(number.is_finite())
    }

    fn serialize_f64(self, number: f64) -> Result<bool, Refused> {
        self.number(number.is_finite())
    }

    fn serialize_none(self) -> Result<bool, Refused> {
        Ok(true)
    }

    fn serialize_unit(self) -> Result<bool, Refused> {
        Ok(true)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<bool, Refused> {
        let is_nil = value.serialize(self)?;
        if is_nil && self.loss == Loss::SomeOfNil { Err(Refused::Lossy) } else { Ok(is_nil) }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &str, value: &T) -> Result<bool, Refused> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &str, _: u32, _: &str) -> Result<bool, Refused> {
        Ok(false)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &str,
        _: u32,
        _: &str,
        value: &T,
    ) -> Result<bool, Refused> {
        value.serialize(self.deeper()?).map(|_| false)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refused> {
        self.deeper()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        self.deeper()
    }

    fn serialize_tuple_struct(self, _: &str, _: usize) -> Result<Self, Refused> {
        self.deeper()
    }

    fn serialize_tuple_variant(self, _: &str, _: u32, _: &str, _: usize) -> Result<Self, Refused> {
        self.deeper()?.deeper()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Refused> {
        self.deeper()
    }

    fn serialize_struct(self, _: &str, _: usize) -> Result<Self, Refused> {
        self.deeper()
    }

    fn serialize_struct_variant(self, _: &str, _: u32, _: &str, _: usize) -> Result<Self, Refused> {
        self.deeper()?.deeper()
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<bool, Refused> {
        Ok(false)
    }

    fn is_human_readable(&self) -> bool {
        self.loss == Loss::NonFinite
    }
}

macro_rules! parts {
    ($($part:ident { $($name:ident($($key:ident: $type:ty)?);)* })*) => {
        $(impl ser::$part for Lossy {
            type Ok = bool;
            type Error = Refused;

            $(fn $name<T: Serialize + ?Sized>(&mut self, $($key: $type,)? value: &T) -> Result<(), Refused> {
                value.serialize(*self).map(|_| ())
            })*

            fn end(self) -> Result<bool, Refused> {
                Ok(false)
            }
        })*
    };
}

parts! {
    SerializeSeq { serialize_element(); }
    SerializeTuple { serialize_element(); }
    SerializeTupleStruct { serialize_field(); }
    SerializeTupleVariant { serialize_field(); }
    SerializeMap { serialize_key(); serialize_value(); }
    SerializeStruct { serialize_field(_key: &'static str); }
    SerializeStructVariant { serialize_field(_key: &'static str); }
}

#[cfg(test)]
mod tests;
