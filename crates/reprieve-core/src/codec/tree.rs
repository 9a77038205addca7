//! An encoded state as a tree, to find where two encodings differ.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value of any type. Numbers with the same bits are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Tree {
    Nil,
    Bool(bool),
    Integer(i128),
    Small(u32),
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    /// Returns the path of the first value that differs; `None` when the trees are equal but for
    /// the order of elements, which a set or a map with hashing changes.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        if self.clone().sorted() == other.clone().sorted() {
            return None;
        }
        Some(
            match (self, other) {
                (Self::List(one), Self::List(another)) if one.len() == another.len() => {
                    let mut pairs = one.iter().zip(another).enumerate();
                    pairs.find_map(|(at, (one, other))| Some(format!("[{at}]{}", one.difference(other)?)))
                }
                (Self::Map(one), Self::Map(_)) => one.iter().find_map(|(key, one)| {
                    let path = match other.get(key) {
                        Some(other) => one.difference(other)?,
                        None => String::new(),
                    };
                    Some(match key {
                        Self::Text(name) => format!(".{name}{path}"),
                        _ => format!("[…]{path}"),
                    })
                }),
                _ => None,
            }
            .unwrap_or_default(),
        )
    }

    /// Returns the tree with all elements in one order.
    pub(super) fn sorted(mut self) -> Self {
        self.sort();
        self
    }

    fn get(&self, key: &Self) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    fn sort(&mut self) {
        match self {
            Self::List(elements) => {
                elements.iter_mut().for_each(Self::sort);
                elements.sort();
            }
            Self::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    key.sort();
                    value.sort();
                }
                entries.sort();
            }
            _ => {}
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_f32<E: Error>(self, value: f32) -> Result<Tree, E> {
        Ok(Tree::Small(value.to_bits()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value.to_bits()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Bytes(value.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Tree::Map(map))
    }
}

/// A checksum of a value of any type that does not depend on the order of elements. It is made
/// while the encoding is read, so it takes no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest(u64, u64);

impl Digest {
    const ZERO: Self = Self(0, 0);

    fn of(value: &impl Hash) -> Self {
        let hash = |half: bool| {
            let mut hasher = DefaultHasher::new();
            (half, value).hash(&mut hasher);
            hasher.finish()
        };
        Self(hash(false), hash(true))
    }

    /// Adds an element. The sum is the same in every order.
    fn add(&mut self, element: Self) {
        self.0 = self.0.wrapping_add(element.0);
        self.1 = self.1.wrapping_add(element.1);
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Digested)
    }
}

struct Digested;

macro_rules! leaves {
    ($($name:ident($type:ty);)*) => {
        $(fn $name<E: Error>(self, value: $type) -> Result<Digest, E> {
            AnyValue.$name(value).map(|leaf| Digest::of(&leaf))
        })*
    };
}

impl<'de> Visitor<'de> for Digested {
    type Value = Digest;

    leaves! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f32(f32);
        visit_f64(f64);
        visit_str(&str);
        visit_bytes(&[u8]);
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AnyValue.expecting(f)
    }

    fn visit_unit<E: Error>(self) -> Result<Digest, E> {
        Ok(Digest::of(&Tree::Nil))
    }

    fn visit_none<E: Error>(self) -> Result<Digest, E> {
        Ok(Digest::of(&Tree::Nil))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Digest, A::Error> {
        let (mut sum, mut count) = (Digest::ZERO, 0_u64);
        while let Some(element) = elements.next_element()? {
            sum.add(element);
            count += 1;
        }
        Ok(Digest::of(&("list", count, sum)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Digest, A::Error> {
        let (mut sum, mut count) = (Digest::ZERO, 0_u64);
        while let Some((key, value)) = entries.next_entry::<Digest, Digest>()? {
            sum.add(Digest::of(&(key, value)));
            count += 1;
        }
        Ok(Digest::of(&("map", count, sum)))
    }
}
