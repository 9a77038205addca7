//! An encoded state as a tree, to find where two encodings differ.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::digest::{Digest, Number};

/// A value of any type. Numbers with the same bits are equal.
#[derive(Debug, PartialEq, Eq)]
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
    /// Returns the path of the first value that differs, empty for the whole value; `None` when the
    /// trees are equal but for the order of elements, which a set or a map with hashing changes.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        if self.digest() == other.digest() {
            return None;
        }
        Some(match (self, other) {
            (Self::List(one), Self::List(another)) => in_lists(one, another).unwrap_or_default(),
            (Self::Map(one), Self::Map(another)) => in_maps(one, another).unwrap_or_default(),
            _ => String::new(),
        })
    }

    /// Returns the digest, the same as if it were read from the tree's encoding.
    pub(super) fn digest(&self) -> Digest {
        match self {
            Self::List(elements) => Digest::of_list(elements.iter().map(Self::digest)),
            Self::Map(entries) => {
                Digest::of_map(entries.iter().map(|(key, value)| (key.digest(), value.digest())))
            }
            Self::Nil => Digest::of_nil(),
            Self::Bool(value) => Digest::of_number(Number::Bool, (*value).into()),
            Self::Integer(value) => Digest::of_number(Number::Integer, *value),
            Self::Small(bits) => Digest::of_number(Number::Small, (*bits).into()),
            Self::Float(bits) => Digest::of_number(Number::Float, (*bits).into()),
            Self::Text(text) => Digest::of_text(text),
            Self::Bytes(bytes) => Digest::of_bytes(bytes),
        }
    }
}

/// The path of the first element that the other list lacks.
fn in_lists(one: &[Tree], another: &[Tree]) -> Option<String> {
    let mut unmatched: HashMap<Digest, usize> = HashMap::new();
    for element in another {
        *unmatched.entry(element.digest()).or_default() += 1;
    }
    let is_lacking = |element: &Tree| match unmatched.get_mut(&element.digest()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    let at = one.iter().position(is_lacking)?;
    let path = another.get(at).and_then(|other| one[at].difference(other)).unwrap_or_default();
    Some(format!("[{at}]{path}"))
}

/// The path of the first entry that has another value in the other map, or that only one of them
/// has.
fn in_maps(one: &[(Tree, Tree)], another: &[(Tree, Tree)]) -> Option<String> {
    let by_key = |entries: &[(Tree, Tree)]| -> HashMap<Digest, usize> {
        entries.iter().enumerate().map(|(at, (key, _))| (key.digest(), at)).collect()
    };
    let (in_one, in_another) = (by_key(one), by_key(another));
    let changed = one.iter().find_map(|(key, value)| {
        let path = match in_another.get(&key.digest()) {
            Some(at) => value.difference(&another[*at].1)?,
            None => String::new(),
        };
        Some((key, path))
    });
    let added = || another.iter().find(|(key, _)| !in_one.contains_key(&key.digest()));
    let (key, path) = changed.or_else(|| added().map(|(key, _)| (key, String::new())))?;
    Some(match key {
        Tree::Text(name) => format!(".{name}{path}"),
        _ => format!("[…]{path}"),
    })
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
