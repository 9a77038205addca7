//! Failures by their reason: the same panic or error counts as one, whatever numbers, ids and names it mentions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::entry::Failure;
use crate::ids::JobId;

/// How a panic's reason begins, before its place.
const PANICKED: &str = "the job panicked at ";

/// How the reason of a job's last failure begins, before that of the failure itself.
pub(crate) const AT_LAST: &str = "failed too often, at last with: ";

/// What the reason of a last timeout ends with, with its numbers left out, after that of the timeout itself.
const REPEATED: [&str; 2] = [", # times", ", and its thread did not return"];

/// The fewest characters of a word of hexadecimal digits that is taken for an id.
const ID_CHARS_MIN: usize = 8;

/// The same of a word of capitals and digits, such as a ULID.
const ID_CAPITALS_MIN: usize = 16;

/// Quotes that differ at their two ends.
const QUOTES: [(char, char); 6] = [('“', '”'), ('„', '“'), ('‘', '’'), ('‚', '‘'), ('«', '»'), ('‹', '›')];

/// Failures with one reason, of jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureGroup {
    /// The kind of the jobs.
    pub kind: String,
    /// The reason, with `#` for each number or id, and `"…"` for each quoted text. That of a job's last failure is as
    /// those before.
    pub reason: String,
    /// How many deliveries failed so.
    pub count: u64,
    /// How many of those were the last, so that the job is in the poison queue.
    pub poisoned: u64,
    /// When the first one failed, in milliseconds since the Unix epoch.
    pub first_unix_ms: i64,
    /// When the last one failed.
    pub last_unix_ms: i64,
    /// A job that failed so: the last one.
    pub example: JobId,
}

/// Groups failures by kind and reason; the most frequent group first.
#[must_use]
pub fn group(failures: &[Failure]) -> Vec<FailureGroup> {
    let mut groups: BTreeMap<(String, String), FailureGroup> = BTreeMap::new();
    for failure in failures {
        let (at, reason) = (failure.at_unix_ms, normalise(&failure.reason));
        let key = (failure.kind.clone(), reason);
        let group = groups.entry(key.clone()).or_insert_with(|| FailureGroup {
            kind: key.0,
            reason: key.1,
            count: 0,
            poisoned: 0,
            first_unix_ms: at,
            last_unix_ms: at,
            example: failure.job.clone(),
        });
        group.count += 1;
        group.poisoned += u64::from(failure.poisoned);
        group.first_unix_ms = group.first_unix_ms.min(at);
        if at >= group.last_unix_ms {
            group.last_unix_ms = at;
            group.example = failure.job.clone();
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    groups
}

/// The reason without what differs from one failure to the next, and without that it was the last one. The place of
/// a panic stays.
#[must_use]
pub fn normalise(reason: &str) -> String {
    let mut normal = without_numbers(reason.strip_prefix(AT_LAST).unwrap_or(reason));
    for end in REPEATED {
        if let Some(rest) = normal.strip_suffix(end) {
            normal.truncate(rest.len());
        }
    }
    normal
}

fn without_numbers(reason: &str) -> String {
    let place =
        reason.strip_prefix(PANICKED).and_then(|rest| rest.find(": ")).map_or(0, |at| PANICKED.len() + at);
    let (place, mut rest) = reason.split_at(place);
    let mut normal = place.to_owned();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let end = if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            push_word(&mut normal, &rest[..end]);
            end
        } else if let Some(end) = quoted(first, rest, is_in_word(&normal)) {
            normal.extend([first, '…']);
            normal.extend(rest[..end].chars().next_back());
            end
        } else {
            normal.push(first);
            first.len_utf8()
        };
        rest = &rest[end..];
    }
    normal
}

fn is_in_word(before: &str) -> bool {
    before.ends_with(|c: char| c.is_alphanumeric() || c == '#')
}

/// The length of the quoted text at the beginning; `None` if there is none. An apostrophe in or after a word is no
/// quote.
fn quoted(quote: char, text: &str, is_in_word: bool) -> Option<usize> {
    let mut ends = text.match_indices(quote).map(|(at, _)| at + 1).skip(1);
    match quote {
        '"' | '`' => ends.next(),
        '\'' if !is_in_word => ends.find(|end| !text[*end..].starts_with(char::is_alphanumeric)),
        _ => {
            let (_, close) = QUOTES.iter().find(|(open, _)| *open == quote)?;
            text.find(*close).map(|at| at + close.len_utf8())
        }
    }
}

/// Adds a word: as `#` if it looks like an id, else with `#` for each number in it.
fn push_word(normal: &mut String, word: &str) {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let has_digit = digits.bytes().any(|byte| byte.is_ascii_digit());
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_capitals = || digits.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let is_id = is_hex && (word.len() >= ID_CHARS_MIN || word.len() > digits.len())
        || word.len() >= ID_CAPITALS_MIN && is_capitals();
    if has_digit && is_id {
        return normal.push('#');
    }
    let mut in_number = false;
    for c in word.chars() {
        if !c.is_ascii_digit() {
            normal.push(c);
        } else if !in_number {
            normal.push('#');
        }
        in_number = c.is_ascii_digit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkerId;

    #[test]
    fn what_differs_each_time_is_left_out_of_a_reason() {
        for (reason, normal) in [
            ("timed out after 30 s", "timed out after # s"),
            ("row 17 of 240", "row # of #"),
            ("HTTP 503 from 10.0.0.7:8080", "HTTP # from #.#.#.#:#"),
            ("no blob 0190f3a2-7c1e-7abc-8def-001122334455", "no blob #"),
            ("etag deadbeef01 is gone", "etag # is gone"),
            ("deadbeef is a word", "deadbeef is a word"),
            ("segment at 0x7ffe", "segment at #"),
            ("no such file \"in/17.png\"", "no such file \"…\""),
            ("an open \"quote", "an open \"quote"),
            ("keine Datei „in/a.png“, “b”, ‘c’ und «d»", "keine Datei „…“, “…”, ‘…’ und «…»"),
            ("user 01J9ZK3V5XQW8RTYBNM0P4HSDF is gone", "user # is gone"),
            ("HTTP2_PROTOCOL_ERROR in E1001", "HTTP#_PROTOCOL_ERROR in E#"),
            ("no 'in/17.png' and no `b`", "no '…' and no `…`"),
            ("can't open 'it\'s'; the jobs' end isn't 'x'", "can't open '…'; the jobs' end isn't '…'"),
            ("failed too often, at last with: not yet", "not yet"),
            (
                "failed too often, at last with: the job panicked at a.rs:1:5: 7",
                "the job panicked at a.rs:1:5: #",
            ),
            (
                "the job ran for longer than its timeout of 5s, 3 times",
                "the job ran for longer than its timeout of #s",
            ),
            (
                "a step took longer than its timeout of 2s, and its thread did not return, 3 times",
                "a step took longer than its timeout of #s",
            ),
            ("vm_12 failed in part-3", "vm_# failed in part-#"),
            (
                "the job panicked at src/main.rs:17:5: index 9 of 4",
                "the job panicked at src/main.rs:17:5: index # of #",
            ),
            ("the job panicked: 7", "the job panicked: #"),
            (
                "failed too often, at last with: the job panicked at src/main.rs:17:5: index 9 of 4",
                "the job panicked at src/main.rs:17:5: index # of #",
            ),
            ("é 5", "é #"),
            ("", ""),
        ] {
            assert_eq!(normalise(reason), normal);
        }
    }

    #[test]
    fn groups_have_a_count_the_first_the_last_and_a_job() {
        let failure = |job: &str, kind: &str, reason: &str, at_unix_ms, poisoned| Failure {
            job: JobId::parse(job).unwrap(),
            kind: kind.to_owned(),
            delivery: 1,
            reason: reason.to_owned(),
            poisoned,
            worker: WorkerId::new("w"),
            at_unix_ms,
        };
        let groups = group(&[
            failure("a", "resize", "row 5", 70, false),
            failure("b", "resize", "row 8", 90, true),
            failure("c", "crop", "row 5", 60, false),
            failure("d", "resize", "row 1", 10, false),
        ]);
        let shown: Vec<_> = groups
            .iter()
            .map(|it| {
                (
                    it.kind.as_str(),
                    it.count,
                    it.poisoned,
                    it.first_unix_ms,
                    it.last_unix_ms,
                    it.example.as_str(),
                )
            })
            .collect();
        assert_eq!(shown, [("resize", 3, 1, 10, 90, "b"), ("crop", 1, 0, 60, 60, "c")]);
    }
}
