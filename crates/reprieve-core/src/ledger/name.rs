//! The names of entries. They are those of records, so that every backend stores and lists them, and no job has
//! such an id.
//!
//! | name | one for |
//! |---|---|
//! | `reprieve-ledger.boot.BOOT` | each boot |
//! | `reprieve-ledger.end.WORKER.died-TIME` | each death of a worker, by the time of its last report; `died` without one |
//! | `reprieve-ledger.end.WORKER.drain-N` | the N-th drain of a worker |
//! | `reprieve-ledger.failure.YYYYMMDD.UNIQUE` | each failed delivery |
//! | `reprieve-ledger.healing.YYYYMMDD.UNIQUE` | each healing action |
//!
//! Whoever writes a boot or a death finds the same name, so that creating the record makes it one. Boots and ends
//! are few, and a report needs also those of machines that started long before: they are read whole. Failures may be
//! many, and are read by their days.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::entry::{Boot, Entry, How};
use crate::chance;
use crate::error::Result;
use crate::hash::ContentHash;
use crate::ids::{JobId, WorkerId};
use crate::names::LEDGER_IDS;

/// Whether this is the name of an entry, and not the id of a job: lists of records have both.
#[must_use]
pub fn is_entry(name: &JobId) -> bool {
    name.as_str().starts_with(LEDGER_IDS)
}

/// The parts of the ledger.
pub(super) const BOOTS: &str = "boot.";
pub(super) const ENDS: &str = "end.";
pub(super) const FAILURES: &str = "failure.";
pub(super) const HEALINGS: &str = "healing.";

/// A name for the entry. Those of failures and of healing actions differ each time. `number` tells the interruptions
/// of one worker apart: it counts its drains, and is the time of the last report before a death. A worker that was
/// frozen may be taken for dead, go on, and die.
pub(super) fn of(entry: &Entry, number: u64) -> Result<JobId> {
    let unique = |part: &str, at_unix_ms: i64| format!("{part}{}.{}", day(at_unix_ms), chance::id().simple());
    parse(&match entry {
        Entry::Boot(Boot { boot, .. }) => format!("{BOOTS}{}", safe(boot)),
        Entry::Interruption(interruption) => {
            let ends = ends_of(&interruption.worker);
            match interruption.how {
                How::Died(_) if number == 0 => format!("{ends}died"),
                How::Died(_) => format!("{ends}died-{number}"),
                How::Drained(_) => format!("{ends}drain-{number}"),
            }
        }
        Entry::Failure(failure) => unique(FAILURES, failure.at_unix_ms),
        Entry::Healing(healing) => unique(HEALINGS, healing.at_unix_ms),
    })
}

/// The beginning of the names of one worker's interruptions, without that of the ledger.
pub(super) fn ends_of(worker: &WorkerId) -> String {
    format!("{ENDS}{}.", safe(worker.as_str()))
}

/// The most days that are listed one by one. Beyond, the whole part is: it is not kept for much longer.
const DAYS_MAX: usize = 31;

/// The beginnings of the names of `part` on the days from `since` to `until`, without that of the ledger: one for
/// each day, or one for all.
pub(super) fn days(part: &str, since_unix_ms: i64, until_unix_ms: i64) -> Vec<String> {
    let (first, last) = (date(since_unix_ms), date(until_unix_ms));
    let days = first.series(jiff::Span::new().days(1)).take_while(|date| *date <= last);
    let days: Vec<_> = days.take(DAYS_MAX + 1).map(|date| format!("{part}{}.", shown(date))).collect();
    if days.len() > DAYS_MAX { vec![part.to_owned()] } else { days }
}

fn parse(name: &str) -> Result<JobId> {
    JobId::parse(format!("{LEDGER_IDS}{name}"))
}

/// A part of a name: the id itself, if it may stand there, or its hash.
fn safe(id: &str) -> String {
    let fits = !id.is_empty()
        && id.len() <= 64
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        // Record names that differ in case only are the same on some disks.
        && !id.bytes().any(|byte| byte.is_ascii_uppercase());
    if fits { id.to_owned() } else { ContentHash::of(id.as_bytes()).to_string()[..32].to_owned() }
}

/// The day of a time, in UTC.
fn day(unix_ms: i64) -> String {
    shown(date(unix_ms))
}

fn date(unix_ms: i64) -> Date {
    let at = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    at.to_zoned(TimeZone::UTC).date()
}

fn shown(date: Date) -> String {
    date.strftime("%Y%m%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Death, Failure, Interruption, Machine};
    use crate::report::DrainReport;

    const NEW_YEAR: i64 = 1_767_225_600_000;

    fn interruption(worker: &str, how: How) -> Entry {
        Entry::Interruption(Box::new(Interruption {
            worker: WorkerId::new(worker),
            boot: String::new(),
            machine: Machine::default(),
            queue: String::new(),
            at_unix_ms: 0,
            jobs: Vec::new(),
            how,
        }))
    }

    #[test]
    fn boots_and_ends_have_one_name_and_failures_one_each() {
        let boot = |id: &str| {
            let (boot, worker) = (id.to_owned(), WorkerId::unique());
            let machine = Machine::default();
            let boot =
                Boot { boot, worker, at_unix_ms: 0, machine, seen_unix_ms: None, worked_on_unix_ms: None };
            of(&Entry::Boot(boot), 0).unwrap().to_string()
        };
        assert_eq!(boot("5d2f-01"), "reprieve-ledger.boot.5d2f-01");
        assert_eq!(boot("a/b").len(), "reprieve-ledger.boot.".len() + 32);
        assert!(boot("a/b") != boot("a.b") && boot("A") != boot("a"));
        let end = |how| of(&interruption("w7", how), 2).unwrap().to_string();
        assert_eq!(end(How::Died(Death::default())), "reprieve-ledger.end.w7.died-2");
        let died = interruption("w7", How::Died(Death::default()));
        assert_eq!(of(&died, 0).unwrap().to_string(), "reprieve-ledger.end.w7.died");
        assert_eq!(end(How::Drained(DrainReport::default())), "reprieve-ledger.end.w7.drain-2");
        let failure = Entry::Failure(Failure {
            job: JobId::unique(),
            kind: String::new(),
            delivery: 1,
            reason: String::new(),
            poisoned: false,
            worker: WorkerId::unique(),
            at_unix_ms: NEW_YEAR - 1,
        });
        let (one, other) = (of(&failure, 0).unwrap(), of(&failure, 0).unwrap());
        assert!(one != other && one.as_str().starts_with("reprieve-ledger.failure.20251231."), "{one}");
    }

    #[test]
    fn days_are_named_from_the_first_to_the_last() {
        let day = 86_400_000;
        assert_eq!(days("f.", NEW_YEAR - 1, NEW_YEAR), ["f.20251231.", "f.20260101."]);
        assert_eq!(days("f.", NEW_YEAR, NEW_YEAR + day - 1), ["f.20260101."]);
        assert_eq!(days("f.", NEW_YEAR, NEW_YEAR - day).len(), 0);
        assert_eq!(days("f.", NEW_YEAR, NEW_YEAR + 30 * day).len(), 31);
        assert_eq!(days("f.", 0, NEW_YEAR), ["f."]);
    }
}
