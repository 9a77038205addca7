//! The first difference between what an undisturbed and a disturbed run left behind.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::points::Disturbance;
use super::world::{ENDLESS, End, NOWHERE, Seen};
use crate::shorten::shorten;

/// The longest value that a message shows, in bytes.
const SHOWN_BYTES_MAX: usize = 200;

/// How a disturbed job differs from the undisturbed one, or why the undisturbed one was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    kind: &'static str,
    disturbance: Disturbance,
    /// The number of steps of the undisturbed run.
    steps: Option<usize>,
    finding: Box<Finding>,
}

/// What to look for when a job does not end.
const UNFINISHED: &str = "What does the step wait for? A lock or a permit that a step on another worker holds over an await: \
                          each process has its own, see `Harness::with`. A message or a task that nothing ends. A thread \
                          that waits for its step: it holds the clock. Or it polls for what never comes, or goes on in the same \
                          state: `Harness::within` limits the simulated time. Or it only takes longer: see \
                          `Harness::patience`.";

/// The same for a run that moves.
const GETS_NOWHERE: &str = "Perhaps it only takes longer: see `Harness::patience`. Else it polls for what never comes, or goes on in \
                            the same state: `Harness::within` limits the simulated time.";

/// The same for one that does more than it may.
const HAS_NO_END: &str =
    "Does it end, also where a step is run again? If so, give it less to do: a test does not wait for more.";

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Finding {
    /// The job did not end.
    pub(super) is_unfinished: bool,
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) seen: String,
}

impl Difference {
    pub(super) fn new(
        kind: &'static str,
        disturbance: Disturbance,
        steps: Option<usize>,
        mut finding: Finding,
    ) -> Self {
        shorten(&mut finding.expected, SHOWN_BYTES_MAX);
        shorten(&mut finding.seen, SHOWN_BYTES_MAX);
        Self { kind, disturbance, steps, finding: Box::new(finding) }
    }

    /// The number of the step that was disturbed, from 1, as counted in the undisturbed run; `None`
    /// if no single step was.
    #[must_use]
    pub const fn step(&self) -> Option<u64> {
        self.disturbance.step()
    }

    /// How the job was disturbed, such as "killed at the end of step 3 of 10, with nothing saved".
    #[must_use]
    pub fn disturbance(&self) -> String {
        self.disturbance.describe(self.steps)
    }

    /// What differs, such as "the result, at `rows[2]`".
    #[must_use]
    pub fn what(&self) -> &str {
        &self.finding.what
    }

    /// The value in the undisturbed run, shortened.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.finding.expected
    }

    /// The value in the disturbed run, shortened.
    #[must_use]
    pub fn seen(&self) -> &str {
        &self.finding.seen
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { what, expected, seen, .. } = &*self.finding;
        write!(f, "the job {:?}, {}: {what} differs", self.kind, self.disturbance())?;
        write!(f, "\n  expected: {expected}\n  seen:     {seen}")?;
        match self.steps {
            _ if self.finding.seen.contains(NOWHERE) => write!(f, "\n{GETS_NOWHERE}"),
            _ if self.finding.is_unfinished && self.finding.seen.contains(ENDLESS) => {
                write!(f, "\n{HAS_NO_END}")
            }
            _ if self.finding.is_unfinished => write!(f, "\n{UNFINISHED}"),
            // A run that can't be compared needs no advice.
            None => Ok(()),
            Some(_) => write!(f, "\n{}", self.disturbance.advice()),
        }
    }
}

impl std::error::Error for Difference {}

/// Compares two runs, and what was observed in them.
pub(super) fn compare(
    (expected, expected_observed): (&Seen, &[Vec<u8>]),
    (seen, observed): (&Seen, &[Vec<u8>]),
) -> Option<Finding> {
    if expected.end != seen.end {
        return Some(Finding {
            what: "how it ends".to_owned(),
            expected: expected.end.to_string(),
            seen: seen.end.to_string(),
            is_unfinished: matches!(seen.end, End::Unfinished(_)),
        });
    }
    compare_stored("the result", expected.world.result_json.as_ref(), seen.world.result_json.as_ref())
        .or_else(|| compare_failed(expected, seen))
        .or_else(|| compare_blobs(expected, seen))
        .or_else(|| {
            let pairs = expected_observed.iter().zip(observed);
            pairs
                .into_iter()
                .find_map(|(expected, seen)| compare_stored("what is observed", Some(expected), Some(seen)))
        })
}

fn compare_failed(expected: &Seen, seen: &Seen) -> Option<Finding> {
    let (expected, seen) = (&expected.world.failed, &seen.world.failed);
    let job = expected.keys().chain(seen.keys()).find(|job| expected.get(job) != seen.get(job))?;
    let shown = |why: Option<&String>| {
        why.map_or_else(|| "it does not fail".to_owned(), |why| format!("it fails: {why}"))
    };
    Some(Finding {
        what: format!("how the job {job}, which it enqueued, ends"),
        expected: shown(expected.get(job)),
        seen: shown(seen.get(job)),
        ..Finding::default()
    })
}

fn compare_blobs(expected: &Seen, seen: &Seen) -> Option<Finding> {
    let (expected, seen) = (&expected.world.blobs, &seen.world.blobs);
    let names = expected.keys().chain(seen.keys().filter(|name| !expected.contains_key(*name)));
    names
        .into_iter()
        .find_map(|name| compare_stored(&format!("the blob {name:?}"), expected.get(name), seen.get(name)))
}

/// Compares what is stored: as JSON, if both are.
fn compare_stored<'a>(
    what: &str,
    expected: Option<&'a Vec<u8>>,
    seen: Option<&'a Vec<u8>>,
) -> Option<Finding> {
    if expected == seen {
        return None;
    }
    let json = |bytes: Option<&Vec<u8>>| bytes.map(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    if let (Some(Some(one)), Some(Some(other))) = (json(expected), json(seen)) {
        if let Some(finding) = compare_values(what, Some(&one), Some(&other)) {
            return Some(finding);
        }
        // Numbers of more digits than a float has were taken for floats.
        let text = |bytes: Option<&'a Vec<u8>>| bytes.and_then(|bytes| serde_json::from_slice(bytes).ok());
        if let (Some(one), Some(other)) = (text(expected), text(seen))
            && is_same(one, other)
        {
            return None;
        }
    }
    let (expected, seen) = (shown_bytes(expected, seen), shown_bytes(seen, expected));
    Some(Finding { what: what.to_owned(), expected, seen, ..Finding::default() })
}

/// Whether two JSON texts say the same, whatever the order of an object's members, with all digits of their
/// numbers.
fn is_same(one: &RawValue, other: &RawValue) -> bool {
    fn read<'a, T: Deserialize<'a>>(of: &'a RawValue) -> Option<T> {
        serde_json::from_str(of.get()).ok()
    }
    let pair = |one: &RawValue, other: &RawValue| one.get() == other.get() || is_same(one, other);
    match (one.get().as_bytes().first(), other.get().as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => {
            let [one, other] = [one, other].map(read::<BTreeMap<String, &RawValue>>);
            one.zip(other).is_some_and(|(one, other)| {
                one.len() == other.len()
                    && one.iter().zip(&other).all(|((a, one), (b, other))| a == b && pair(one, other))
            })
        }
        (Some(b'['), Some(b'[')) => {
            let [one, other] = [one, other].map(read::<Vec<&RawValue>>);
            one.zip(other).is_some_and(|(one, other)| {
                one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| pair(one, other))
            })
        }
        (Some(b'"'), Some(b'"')) => read::<String>(one) == read::<String>(other),
        _ => one.get() == other.get(),
    }
}

/// Shows a text from a little before its first difference to another, or the length of other bytes.
fn shown_bytes(bytes: Option<&Vec<u8>>, other: Option<&Vec<u8>>) -> String {
    let Some(bytes) = bytes else { return "(not written)".to_owned() };
    let Some(other) = other else { return format!("{} bytes", bytes.len()) };
    let same = bytes.iter().zip(other).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(20);
    match std::str::from_utf8(bytes).ok().and_then(|text| text.get(from..)) {
        Some(text) if from == 0 => format!("{text:?}"),
        Some(text) => format!("…{text:?}"),
        None => format!("{} bytes, the same up to byte {same}", bytes.len()),
    }
}

fn compare_values(what: &str, expected: Option<&Value>, seen: Option<&Value>) -> Option<Finding> {
    let (path, at_expected, at_seen) = first_difference(expected, seen)?;
    let shown = |value: Option<&Value>| value.map_or_else(|| "(nothing)".to_owned(), Value::to_string);
    let (whole_expected, whole_seen) = (shown(expected), shown(seen));
    let what = if path.is_empty() {
        what.to_owned()
    } else {
        format!("{what}, at `{}`,", path.trim_start_matches('.'))
    };
    Some(if whole_expected.len().max(whole_seen.len()) <= SHOWN_BYTES_MAX {
        Finding { what, expected: whole_expected, seen: whole_seen, ..Finding::default() }
    } else {
        Finding { what, expected: shown(at_expected), seen: shown(at_seen), ..Finding::default() }
    })
}

/// Two values that differ, with their path.
type Differing<'a> = (String, Option<&'a Value>, Option<&'a Value>);

/// Returns the first place at which two values differ. The order of an object's members does not
/// matter.
fn first_difference<'a>(expected: Option<&'a Value>, seen: Option<&'a Value>) -> Option<Differing<'a>> {
    if expected == seen {
        return None;
    }
    let below = |name: String, (path, expected, seen): Differing<'a>| (name + &path, expected, seen);
    let inner = match (expected, seen) {
        (Some(Value::Object(expected)), Some(Value::Object(seen))) => {
            let mut names = expected.keys().chain(seen.keys());
            names.find_map(|name| {
                first_difference(expected.get(name), seen.get(name))
                    .map(|found| below(format!(".{name}"), found))
            })
        }
        (Some(Value::Array(expected)), Some(Value::Array(seen))) => (0..expected.len().max(seen.len()))
            .find_map(|index| {
                first_difference(expected.get(index), seen.get(index))
                    .map(|found| below(format!("[{index}]"), found))
            }),
        _ => None,
    };
    inner.or_else(|| Some((String::new(), expected, seen)))
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::DeadLettered(reason) => write!(f, "dead-lettered: {reason}"),
            Self::Unfinished(why) => write!(f, "not done: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_found_with_its_path_and_maps_are_unordered() {
        let find = |expected: Value, seen: Value| {
            first_difference(Some(&expected), Some(&seen)).map(|(path, ..)| path)
        };
        assert_eq!(find(json!({"a": 1, "b": [2]}), json!({"b": [2], "a": 1})), None);
        assert_eq!(find(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]})).unwrap(), ".a[1].b");
        assert_eq!(find(json!([1, 2]), json!([1, 2, 2])).unwrap(), "[2]");
        assert_eq!(find(json!(1), json!(1.5)).unwrap(), "");
    }

    #[test]
    fn numbers_of_many_digits_are_compared_whole_and_members_in_any_order() {
        let find = |expected: &str, seen: &str| {
            compare_stored("it", Some(&expected.into()), Some(&seen.into())).is_some()
        };
        let big = "340282366920938463463374607431768211";
        for (expected, seen, differs) in [
            (format!("{big}012"), format!("{big}021"), true),
            (format!("[{{\"a\": {big}012}}]"), format!("[{{\"a\":{big}012}}]"), false),
            (format!("{{\"a\":{big}1,\"b\":\"é\"}}"), format!("{{\"b\":\"\\u00e9\",\"a\":{big}1}}"), false),
            (format!("{{\"a\":[{big}1]}}"), format!("{{\"a\":[{big}2]}}"), true),
        ] {
            assert_eq!(find(&expected, &seen), differs, "{expected} {seen}");
        }
    }

    #[test]
    fn a_long_value_is_shown_where_it_differs() {
        let long = |last: u32| json!((0..200).chain([last]).collect::<Vec<_>>());
        let found = compare_values("the result", Some(&long(1)), Some(&long(2))).unwrap();
        assert_eq!(found.what, "the result, at `[200]`,");
        assert_eq!((found.expected.as_str(), found.seen.as_str()), ("1", "2"));
    }

    #[test]
    fn bytes_are_shown_from_where_they_differ() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let (one, other) = (bytes(&("a".repeat(50) + "bc")), bytes(&("a".repeat(50) + "xc")));
        assert_eq!(shown_bytes(Some(&one), Some(&other)), format!("…{:?}", "a".repeat(20) + "bc"));
        assert_eq!(shown_bytes(Some(&vec![255, 1]), Some(&vec![255, 2])), "2 bytes, the same up to byte 1");
        assert_eq!(shown_bytes(None, Some(&one)), "(not written)");
    }
}
