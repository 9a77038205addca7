use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

/// A number that equals only one with the same bits.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Bits(f64);

impl PartialEq for Bits {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SmallBits(f32);

impl PartialEq for SmallBits {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair(i8, Bits);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(Bits),
    Line(i64, u64),
    Tree { name: String, branches: Vec<Shape> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Empty,
    Full { bits: Bits, next: Option<Box<Tagged>> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Numbers {
    flag: bool,
    signed: (i8, i16, i32, i64, i128),
    unsigned: (u8, u16, u32, u64, u128),
    float: Bits,
    small: SmallBits,
}

/// A wide type, with what a team's state may consist of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wide {
    numbers: Numbers,
    letter: char,
    text: String,
    bytes: Vec<u8>,
    floats: Vec<Bits>,
    maybe: Option<Numbers>,
    by_place: BTreeMap<(i32, String), Vec<Option<u16>>>,
    by_name: HashMap<String, Shape>,
    names: BTreeSet<String>,
    shape: Shape,
    tagged: Tagged,
    pair: Pair,
    unit: Unit,
    nothing: (),
    array: [u16; 3],
    took: Duration,
    result: Result<u32, String>,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let signed = any::<(i8, i16, i32, i64, i128)>();
    let unsigned = any::<(u8, u16, u32, u64, u128)>();
    (any::<bool>(), signed, unsigned, any::<u64>(), any::<u32>()).prop_map(
        |(flag, signed, unsigned, float, small)| Numbers {
            flag,
            signed,
            unsigned,
            float: Bits(f64::from_bits(float)),
            small: SmallBits(f32::from_bits(small)),
        },
    )
}

fn bits() -> impl Strategy<Value = Bits> {
    prop_oneof![
        any::<u64>().prop_map(|bits| Bits(f64::from_bits(bits))),
        prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 2.0])
            .prop_map(Bits),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Point),
        bits().prop_map(Shape::Circle),
        any::<(i64, u64)>().prop_map(|(a, b)| Shape::Line(a, b)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        (any::<String>(), prop::collection::vec(inner, 0..3))
            .prop_map(|(name, branches)| Shape::Tree { name, branches })
    })
}

fn tagged() -> impl Strategy<Value = Tagged> {
    let full = (bits(), any::<bool>())
        .prop_map(|(bits, more)| Tagged::Full { bits, next: more.then(|| Box::new(Tagged::Empty)) });
    prop_oneof![Just(Tagged::Empty), full]
}

prop_compose! {
    fn wide()(
        (numbers, letter, text, bytes) in (numbers(), any::<char>(), any::<String>(), any::<Vec<u8>>()),
        floats in prop::collection::vec(bits(), 0..20),
        maybe in prop::option::of(numbers()),
        by_place in prop::collection::btree_map(any::<(i32, String)>(), any::<Vec<Option<u16>>>(), 0..4),
        by_name in prop::collection::hash_map(any::<String>(), shape(), 0..4),
        names in prop::collection::btree_set(any::<String>(), 0..4),
        (shape, tagged) in (shape(), tagged()),
        (small, float) in (any::<i8>(), bits()),
        array in any::<[u16; 3]>(),
        took in any::<Duration>(),
        result in any::<Result<u32, String>>(),
    ) -> Wide {
        let (pair, unit, nothing) = (Pair(small, float), Unit, ());
        Wide {
            numbers, letter, text, bytes, floats, maybe, by_place, by_name, names, shape, tagged, pair, unit, nothing,
            array, took, result,
        }
    }
}

proptest! {
    #[test]
    fn a_digest_is_the_same_of_an_encoding_in_pieces_and_of_its_tree(state in wide(), piece in 1_usize..9) {
        let encoded = encode_state(&state).unwrap();
        let whole = Digest::of_encoding(encoded.bytes()).unwrap();
        let mut digesting = Digesting::default();
        for piece in encoded.bytes().chunks(piece) {
            digesting.write_all(piece).unwrap();
        }
        prop_assert_eq!(digesting.finish().unwrap(), whole);
        prop_assert_eq!(decode_state::<Tree>(encoded.bytes()).unwrap().digest(), whole);
        let cut = &encoded.bytes()[..encoded.bytes().len() - 1];
        prop_assert!(Digest::of_encoding(cut).is_err());
        prop_assert!(Digest::of_encoding(&[&encoded.bytes()[..], &[0xc0]].concat()).is_err());
    }

    #[test]
    fn any_state_comes_back_bit_for_bit(state in wide()) {
        let bytes = encode_state(&state).unwrap();
        prop_assert_eq!(decode_state::<Wide>(bytes.bytes()).unwrap(), state);
    }

    #[test]
    fn a_state_with_a_changed_length_is_refused(state in wide(), more in any::<Vec<u8>>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = encode_state(&state).unwrap().bytes().to_vec();
        prop_assert!(decode_state::<Wide>(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.extend(&more);
        prop_assert_eq!(decode_state::<Wide>(&bytes).is_ok(), more.is_empty());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _refused = decode_state::<Wide>(&bytes);
    }

    #[test]
    fn finite_numbers_come_back_bit_for_bit_from_json(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        let json = encode_json(&number);
        prop_assert_eq!(json.is_ok(), number.is_finite());
        if let Ok(json) = json {
            prop_assert_eq!(serde_json::from_str::<f64>(json.get()).unwrap().to_bits(), bits);
        }
    }
}

proptest! {
    #[test]
    fn a_sound_state_makes_the_round_trip(state in wide()) {
        prop_assert!(encode_checked(&state).is_ok());
        prop_assert!(comes_back(&state).unwrap());
        prop_assert_eq!(round_trip(state.clone()), Ok(state));
    }
}

/// Each instance iterates in another order.
#[test]
fn the_order_of_a_map_or_a_set_is_no_difference() {
    let map: HashMap<u32, HashSet<u32>> = (0..50).map(|key| (key, (0..20).collect())).collect();
    assert_eq!(round_trip(map.clone()), Ok(map));
}

#[derive(Debug, Serialize, Deserialize)]
struct Grid {
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cell {
    #[serde(with = "rounded")]
    heat: f64,
}

mod rounded {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(heat: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(heat / 3.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(f64::deserialize(deserializer)?.round())
    }
}

#[test]
fn a_state_that_comes_back_as_another_one_is_refused_with_the_path() {
    let cell = |heat| Cell { heat };
    assert!(round_trip(Grid { cells: vec![cell(0.0)] }).is_ok());
    let refused = round_trip(Grid { cells: vec![cell(0.0), cell(9.0)] }).unwrap_err();
    assert!(refused.starts_with("cells[1].heat comes back as another value"), "{refused}");
}

#[test]
fn a_state_that_cannot_be_decoded_is_refused_with_the_path() {
    /// Internally tagged enums can't hold a 128-bit number.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Large(u128),
    }
    let refused = round_trip(vec![Either::Large(1)]).map(|_| ()).unwrap_err();
    assert!(refused.starts_with("it can't be read again: [0]"), "{refused}");
}

#[test]
fn a_million_floats_come_back_from_both_encodings() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let floats: Vec<f64> = (0..100_000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from_bits(0x3FF0_0000_0000_0000 | seed >> 12) - 1.0
        })
        .collect();
    assert_eq!(decode_state::<Vec<f64>>(encode_state(&floats).unwrap().bytes()).unwrap(), floats);
    assert_eq!(serde_json::from_str::<Vec<f64>>(encode_json(&floats).unwrap().get()).unwrap(), floats);
}

#[derive(Serialize, Deserialize)]
struct Best {
    rounds: Vec<Round>,
}

#[derive(Serialize, Deserialize)]
#[expect(clippy::option_option, reason = "it is what the encoding would lose")]
struct Round {
    loss: f64,
    label: Option<Option<u8>>,
}

#[test]
fn what_a_state_would_lose_is_refused_with_its_path() {
    let rounds = |label| vec![Round { loss: 1.0, label: Some(Some(1)) }, Round { loss: 1.0, label }];
    for label in [None, Some(Some(0))] {
        assert!(encode_state(&Best { rounds: rounds(label) }).is_ok(), "{label:?}");
    }
    let refused = encode_state(&Best { rounds: rounds(Some(None)) }).unwrap_err();
    assert!(refused.starts_with("rounds[1].label: `Some` of `None`"), "{refused}");
    assert!(encode_state(&Some(())).unwrap_err().starts_with("`Some` of"), "the whole value");
    assert!(encode_state(&BTreeMap::from([("a", Some(()))])).unwrap_err().starts_with("a: "));
}

#[test]
fn what_a_result_would_lose_is_refused_with_its_path() {
    for loss in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let best = Best { rounds: vec![Round { loss, label: None }] };
        let refused = encode_json(&best).unwrap_err();
        assert!(refused.starts_with("rounds[0].loss: NaN and infinite numbers"), "{refused}");
        assert!(encode_state(&best).is_ok());
    }
    assert!(encode_json(&f32::NAN).is_err());
}

#[test]
fn a_state_that_does_not_fit_is_described_by_path_and_without_its_value() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Other {
        rounds: Vec<BTreeMap<String, u8>>,
    }
    let other = Other { rounds: vec![BTreeMap::from([("loss".to_owned(), 1), ("label".to_owned(), 7)])] };
    let best: Best = decode_state(encode_state(&other).unwrap().bytes()).expect("numbers fit");
    assert_eq!(best.rounds[0].label, Some(Some(7)));
    let texts = BTreeMap::from([("rounds", vec![BTreeMap::from([("loss", "a secret")])])]);
    let refused = decode_state::<Best>(encode_state(&texts).unwrap().bytes()).err().unwrap();
    assert_eq!(refused, "rounds[0].loss: a text is stored, and the type expects another");
    assert_eq!(misfit_of(&[1; 20]), "a list is stored, and the type expects another");
    assert_eq!(misfit_of(&None::<u8>), "expected u8");
    let refused = decode_state::<Shape>(encode_state(&"a secret").unwrap().bytes()).unwrap_err();
    assert!(refused.contains("expected one of `Point`") && !refused.contains("secret"), "{refused}");
}

fn misfit_of<T: Serialize>(stored: &T) -> String {
    decode_state::<u8>(encode_state(stored).unwrap().bytes()).unwrap_err()
}

#[test]
fn a_field_that_was_added_with_a_default_still_loads() {
    #[derive(Serialize)]
    struct Old {
        at: u32,
    }
    #[derive(Deserialize)]
    struct New {
        at: u32,
        #[serde(default)]
        seen: Vec<u8>,
    }
    let new: New = decode_state(encode_state(&Old { at: 3 }).unwrap().bytes()).unwrap();
    assert_eq!((new.at, new.seen), (3, vec![]));
}

#[test]
fn a_misfit_of_arguments_is_reported_without_its_value() {
    let error = serde_json::from_str::<u64>("\"a secret\"").unwrap_err();
    assert_eq!(without_value(&error), "expected u64 at line 1 column 10");
}

#[test]
fn a_long_encoding_takes_no_more_memory_than_its_length() {
    for floats in [10, 7_000, 7_300, 300_000] {
        let state = vec![0.1_f64; floats];
        let encoded = encode_state(&state).unwrap();
        assert_eq!(decode_state::<Vec<f64>>(encoded.bytes()).unwrap(), state);
        assert_eq!(encoded.fingerprint(), fingerprint(&state).unwrap());
        let bytes = Vec::from(encoded.bytes().clone());
        assert!(bytes.len() < UNMEASURED_MAX || bytes.capacity() == bytes.len(), "{floats} floats");
    }
}

#[test]
fn raw_bytes_are_a_state_that_is_stored_as_it_is() {
    let state = Bytes::from(vec![7_u8; 1 << 20]);
    let encoded = encode_state(&state).unwrap();
    assert!(encoded.bytes().len() <= state.len() + 5, "{encoded:?}");
    assert_eq!(decode_state::<Bytes>(encoded.bytes()).unwrap(), state);
    assert_eq!(round_trip(state.clone()).unwrap(), state);
}

#[test]
fn a_compressed_state_comes_back_and_has_the_fingerprint_of_the_plain_one() {
    for length in [0, 1, 100_000] {
        let state: Vec<f64> = (0..length).map(|number| f64::from(number % 7)).collect();
        let (plain, packed) = (encode_state(&state).unwrap(), encode_packed(&state).unwrap());
        assert_eq!(packed.fingerprint(), plain.fingerprint());
        assert_eq!(packed.plain_bytes(), Some(plain.bytes().len() as u64));
        let length = plain.bytes().len() as u64;
        assert_eq!(unpack(packed.bytes(), length).unwrap(), plain.bytes());
        assert!(unpack(packed.bytes(), length + 1).is_err());
        assert!(unpack(&packed.bytes()[..packed.bytes().len() - 1], length).is_err());
    }
    let refused = encode_packed(&Some(())).unwrap_err();
    assert!(refused.starts_with("`Some` of"), "{refused}");
}

/// A list in a list, so deep.
fn nested(levels: usize) -> serde_json::Value {
    (0..levels).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]))
}

/// A variant with several fields is a map with a list.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Cons {
    End,
    More(u8, Box<Cons>),
}

fn cons(levels: usize) -> Cons {
    (0..levels).fold(Cons::End, |inner, _| Cons::More(1, Box::new(inner)))
}

/// On a stack of 2 MiB, as every thread of a runtime has at least.
#[test]
fn a_state_that_is_too_deep_to_be_read_is_refused() {
    let run = || {
        assert_eq!(round_trip(nested(400)).unwrap(), nested(400));
        assert_eq!(round_trip(cons(200)).unwrap(), cons(200));
        for error in [encode_state(&nested(401)).unwrap_err(), encode_state(&cons(201)).unwrap_err()] {
            assert!(error.contains("more than 400 levels deep"), "{error}");
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn json_that_is_too_deep_to_be_read_is_refused() {
    let json = encode_json(&nested(127)).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(json.get()).unwrap(), nested(127));
    let error = encode_json(&nested(128)).unwrap_err();
    assert!(error.contains("more than 127 levels deep"), "{error}");
}

/// A number that comes back as another one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Rounded(#[serde(serialize_with = "rounded")] f64);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
fn rounded<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(number / 2.0)
}

#[test]
fn one_value_of_a_large_map_that_does_not_come_back_is_found() {
    let map: std::collections::HashMap<u32, Rounded> =
        (0..100_000).map(|key| (key, Rounded(if key == 77_777 { 1.0 } else { 0.0 }))).collect();
    assert!(!comes_back(&map).unwrap());
    let error = encode_checked(&map).unwrap_err();
    assert_eq!(round_trip(map).map(|_| ()), Err(error.clone()));
    assert!(error.starts_with("[…] comes back as another value"), "{error}");
}

#[test]
fn a_field_that_is_left_out_or_added_is_named() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Row {
        #[serde(default, skip_serializing_if = "is_seven")]
        level: u8,
    }
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
    fn is_seven(level: &u8) -> bool {
        *level == 7
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct Table {
        row: Row,
    }
    let error = round_trip(Table { row: Row { level: 7 } }).unwrap_err();
    assert!(error.starts_with("row.level comes back as another value"), "{error}");
    let error = round_trip(Row { level: 7 }).unwrap_err();
    assert!(error.starts_with("level comes back as another value"), "{error}");
    let error = round_trip(Rounded(1.0)).unwrap_err();
    assert!(error.starts_with("the whole state comes back as another value"), "{error}");
}

#[test]
fn a_large_map_in_another_order_is_the_same_state() {
    let map: std::collections::HashMap<u32, f64> =
        (0..50_000).map(|key| (key, 1.0 / (f64::from(key) + 1.0))).collect();
    assert!(comes_back(&map).unwrap());
    assert_eq!(round_trip(map.clone()).unwrap(), map);
}

/// The lists with the elements of each list, and of each pair, in one order.
fn in_one_order(lists: &[Vec<(u8, Option<bool>)>]) -> Vec<Vec<Vec<String>>> {
    fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
        list.sort();
        list
    }
    let pair = |(number, truth): &(u8, Option<bool>)| sorted(vec![number.to_string(), format!("{truth:?}")]);
    sorted(lists.iter().map(|list| sorted(list.iter().map(pair).collect())).collect())
}

proptest! {
    /// Two digests are equal exactly if the values are, with all elements in one order.
    #[test]
    fn a_digest_ignores_the_order_and_nothing_else(lists: Vec<Vec<(u8, Option<bool>)>>, seed: u64, change: bool) {
        let mut other = lists.clone();
        if !other.is_empty() {
            let at = usize::try_from(seed).unwrap_or(0) % other.len();
            other.rotate_left(at);
            other[0].reverse();
            if change {
                other[0].push((1, None));
            }
        }
        let (one, another) = (encode_state(&lists).unwrap(), encode_state(&other).unwrap());
        let digest = |encoded: &Encoded| Digest::of_encoding(encoded.bytes()).unwrap();
        prop_assert_eq!(digest(&one) == digest(&another), in_one_order(&lists) == in_one_order(&other));
        let tree = |encoded: &Encoded| decode_state::<Tree>(encoded.bytes()).unwrap();
        let difference = tree(&one).difference(&tree(&another));
        prop_assert_eq!(difference.is_none(), digest(&one) == digest(&another));
    }
}
