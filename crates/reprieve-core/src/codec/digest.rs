//! A checksum of an encoded state that does not depend on the order of elements. It is made while the
//! encoding is written, so it takes no memory.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Write};

/// The checksum of a value of any type. Numbers with the same bits are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u64, u64);

impl Digest {
    /// The digest of an encoding.
    ///
    /// # Errors
    /// Where it ends before its value does, or after it.
    pub(super) fn of_encoding(bytes: &[u8]) -> io::Result<Self> {
        let mut digesting = Digesting::default();
        digesting.write_all(bytes)?;
        digesting.finish()
    }

    /// The digest of a number. A state may consist of millions, so it takes a few multiplications and no
    /// hasher.
    pub(super) fn of_number(kind: Number, value: i128) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the halves of the number's bits"
        )]
        let (low, high) = (value as u64, (value >> 64) as u64);
        let half = |seed: u64| mix(low ^ mix(high ^ mix(seed ^ kind as u64)));
        Self(half(SEEDS.0), half(SEEDS.1))
    }

    /// The digest of an entry of a map.
    fn of_entry(key: Self, value: Self) -> Self {
        Self(mix(key.0.wrapping_add(mix(value.0 ^ SEEDS.0))), mix(key.1.wrapping_add(mix(value.1 ^ SEEDS.1))))
    }

    fn of(value: &impl Hash) -> Self {
        let hash = |half: bool| {
            let mut hasher = DefaultHasher::new();
            (half, value).hash(&mut hasher);
            hasher.finish()
        };
        Self(hash(false), hash(true))
    }

    pub(super) fn of_text(text: &str) -> Self {
        Leaf::new(TEXT, text.len() as u64).whole(text.as_bytes())
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Leaf::new(BYTES, bytes.len() as u64).whole(bytes)
    }

    pub(super) fn of_nil() -> Self {
        Self::of(&"nil")
    }

    pub(super) fn of_list(elements: impl Iterator<Item = Self>) -> Self {
        let mut sum = Sum::default();
        elements.for_each(|element| sum.add(element));
        sum.digest(LIST)
    }

    pub(super) fn of_map(entries: impl Iterator<Item = (Self, Self)>) -> Self {
        let mut sum = Sum::default();
        entries.for_each(|(key, value)| sum.add(Self::of_entry(key, value)));
        sum.digest(MAP)
    }
}

const TEXT: &str = "text";
const BYTES: &str = "bytes";
const EXTENSION: &str = "extension";
const LIST: &str = "list";
const MAP: &str = "map";

/// What a number is. Equal values of two kinds are different.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Bool = 1,
    Integer,
    /// The bits of an `f32`.
    Small,
    /// The bits of an `f64`.
    Float,
}

/// Two random numbers, for the two halves of a digest.
const SEEDS: (u64, u64) = (0x9ae1_6a3b_2f90_404f, 0xc3a5_c85c_97cb_3127);

/// Mixes the bits of a number: the finalizer of `SplitMix64`, by which each bit changes half of all others.
/// <https://prng.di.unimi.it/splitmix64.c>
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The sum of the digests of some elements, the same in every order.
#[derive(Debug, Default)]
struct Sum {
    halves: (u64, u64),
    count: u64,
}

impl Sum {
    fn add(&mut self, element: Digest) {
        self.halves.0 = self.halves.0.wrapping_add(element.0);
        self.halves.1 = self.halves.1.wrapping_add(element.1);
        self.count += 1;
    }

    fn digest(self, kind: &str) -> Digest {
        Digest::of(&(kind, self.count, self.halves))
    }
}

/// A text or bytes, of which the rest is to come.
#[derive(Debug)]
struct Leaf {
    halves: [DefaultHasher; 2],
    left: u64,
}

impl Leaf {
    fn new(kind: &str, length: u64) -> Self {
        let halves = [false, true].map(|half| {
            let mut hasher = DefaultHasher::new();
            (half, kind, length).hash(&mut hasher);
            hasher
        });
        Self { halves, left: length }
    }

    /// Takes what belongs to it; returns its length.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let length = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.halves.iter_mut().for_each(|half| half.write(&bytes[..length]));
        self.left -= length as u64;
        length
    }

    fn whole(mut self, bytes: &[u8]) -> Digest {
        self.feed(bytes);
        self.digest()
    }

    fn digest(&self) -> Digest {
        Digest(self.halves[0].finish(), self.halves[1].finish())
    }
}

/// A list or a map of which elements are to come.
#[derive(Debug)]
struct Open {
    sum: Sum,
    left: u64,
    /// For a map: the key whose value is next.
    key: Option<Digest>,
    is_map: bool,
}

/// Makes the digest of the encoding that is written to it.
#[derive(Debug, Default)]
pub(super) struct Digesting {
    /// The beginning of a value: its marker, and what belongs to that.
    head: Vec<u8>,
    leaf: Option<Leaf>,
    open: Vec<Open>,
    whole: Option<Digest>,
}

impl Digesting {
    /// The digest of the value that was written.
    ///
    /// # Errors
    /// When it is not whole.
    pub(super) fn finish(self) -> io::Result<Digest> {
        let is_whole = self.head.is_empty() && self.leaf.is_none() && self.open.is_empty();
        self.whole.filter(|_| is_whole).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Adds a value to the list or the map that it is in.
    fn add(&mut self, mut value: Digest) -> io::Result<()> {
        loop {
            let Some(open) = self.open.last_mut() else {
                let is_second = self.whole.replace(value).is_some();
                return if is_second { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) };
            };
            match (open.is_map, open.key.take()) {
                (true, None) => {
                    open.key = Some(value);
                    return Ok(());
                }
                (true, Some(key)) => open.sum.add(Digest::of_entry(key, value)),
                (false, _) => open.sum.add(value),
            }
            open.left -= 1;
            if open.left > 0 {
                return Ok(());
            }
            let Some(open) = self.open.pop() else { return Ok(()) };
            value = open.sum.digest(if open.is_map { MAP } else { LIST });
        }
    }

    fn open(&mut self, is_map: bool, length: u64) -> io::Result<()> {
        if length == 0 {
            return self.add(Sum::default().digest(if is_map { MAP } else { LIST }));
        }
        self.open.push(Open { sum: Sum::default(), left: length, key: None, is_map });
        Ok(())
    }

    fn begin(&mut self, kind: &str, length: u64) -> io::Result<()> {
        let leaf = Leaf::new(kind, length);
        if length == 0 {
            return self.add(leaf.digest());
        }
        self.leaf = Some(leaf);
        Ok(())
    }

    /// Reads the head, which is complete.
    /// <https://github.com/msgpack/msgpack/blob/master/spec.md#formats>
    fn read_head(&mut self) -> io::Result<()> {
        let head = std::mem::take(&mut self.head);
        let (marker, rest) = (head[0], &head[1..]);
        let number = rest.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        // Sign-extended from its width.
        let shift = 64 - 8 * rest.len().min(8);
        #[expect(clippy::cast_possible_wrap, reason = "the bits of a signed number")]
        let signed = || i128::from((number << shift) as i64 >> shift);
        let integer = |value: i128| Digest::of_number(Number::Integer, value);
        match marker {
            0x00..=0x7f => self.add(integer(marker.into())),
            0x80..=0x8f => self.open(true, (marker & 0x0f).into()),
            0x90..=0x9f => self.open(false, (marker & 0x0f).into()),
            0xa0..=0xbf => self.begin(TEXT, (marker & 0x1f).into()),
            0xc0 => self.add(Digest::of_nil()),
            0xc2 | 0xc3 => self.add(Digest::of_number(Number::Bool, (marker == 0xc3).into())),
            0xc4..=0xc6 => self.begin(BYTES, number),
            // The type of an extension is its first byte.
            0xc7..=0xc9 => self.begin(EXTENSION, number + 1),
            0xca => self.add(Digest::of_number(Number::Small, number.into())),
            0xcb => self.add(Digest::of_number(Number::Float, number.into())),
            0xcc..=0xcf => self.add(integer(number.into())),
            0xd0..=0xd3 => self.add(integer(signed())),
            0xd4..=0xd8 => self.begin(EXTENSION, (1 << (marker - 0xd4)) + 1),
            0xd9..=0xdb => self.begin(TEXT, number),
            0xdc | 0xdd => self.open(false, number),
            0xde | 0xdf => self.open(true, number),
            0xe0..=0xff => self.add(integer(i128::from(marker) - 256)),
            0xc1 => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The length of what belongs to a marker: a number, or the length of what follows.
const fn head_length(marker: u8) -> usize {
    match marker {
        0xc4 | 0xc7 | 0xcc | 0xd0 | 0xd9 => 2,
        0xc5 | 0xc8 | 0xcd | 0xd1 | 0xda | 0xdc | 0xde => 3,
        0xc6 | 0xc9 | 0xca | 0xce | 0xd2 | 0xdb | 0xdd | 0xdf => 5,
        0xcb | 0xcf | 0xd3 => 9,
        _ => 1,
    }
}

impl Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if let Some(leaf) = &mut self.leaf {
                rest = &rest[leaf.feed(rest)..];
                if leaf.left == 0 {
                    let digest = leaf.digest();
                    self.leaf = None;
                    self.add(digest)?;
                }
                continue;
            }
            let marker = self.head.first().unwrap_or(first);
            let missing = head_length(*marker) - self.head.len();
            let (more, after) = rest.split_at(missing.min(rest.len()));
            self.head.extend_from_slice(more);
            rest = after;
            if more.len() == missing {
                self.read_head()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
