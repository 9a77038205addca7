//! How often machines lost work, and for how long they were seen: what the interval of checkpoints follows from.
//!
//! It is counted for all machines of a store together. The interval follows the square root of the rate: where half of
//! the machines lose work five times as often as the other half, one rate for both costs 7 % more than the best intervals
//! do. A rate for each size and zone would rest on a part of the losses, and cost about as much by chance.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::entry::{Boot, Entry};
use crate::checkpoint::Losses;
use crate::ports::WorkerReport;

const DAY_MS: i64 = 86_400_000;

/// How many days count, with the present one. Rates change with prices and with the season: a month has enough losses
/// for most fleets, and is gone when the rates of its beginning no longer hold.
pub const WINDOW_DAYS: i64 = 30;

/// Losses of one machine within this time are one: its workers die or drain together, and whatever jobs they had lost
/// work once.
const ONE_LOSS_MS: i64 = 5 * 60_000;

/// Losses of work and the time of machines, by the day. Workers keep it in the store, so that one of them counts for all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// When it was made, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// What was counted, by the day since the Unix epoch, in UTC.
    days: BTreeMap<i64, Losses>,
}

impl Count {
    /// All that counts at a time: the last [`WINDOW_DAYS`].
    #[must_use]
    pub fn losses(&self, now_unix_ms: i64) -> Losses {
        let days = self.days.range(first_day(now_unix_ms)..=day(now_unix_ms));
        days.fold(Losses::default(), |sum, (_, losses)| sum + *losses)
    }
}

/// A count that is being made, of one entry after the other: it keeps three times of each machine, so that it takes
/// little memory however long the ledger is.
#[derive(Debug, Default)]
pub struct Counting {
    machines: HashMap<String, Seen>,
}

/// What is known of a machine in one boot, in milliseconds since the Unix epoch.
#[derive(Debug)]
struct Seen {
    first: i64,
    last: i64,
    losses: Vec<i64>,
}

impl Counting {
    /// Adds an entry of the ledger, in any order.
    pub fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Boot(Boot { boot, at_unix_ms, seen_unix_ms, worked_on_unix_ms, .. }) => {
                let seen = self.see(boot, *at_unix_ms);
                // The roster forgets a machine that ended without an interruption after a day.
                seen.last = seen.last.max((*seen_unix_ms).max(*worked_on_unix_ms).unwrap_or(*at_unix_ms));
            }
            Entry::Interruption(it) => {
                let seen = self.see(&it.boot, it.at_unix_ms);
                seen.last = seen.last.max(it.until_unix_ms());
                if it.lost_work() {
                    seen.losses.push(it.at_unix_ms);
                }
            }
            Entry::Failure(_) | Entry::Healing(_) => {}
        }
    }

    fn see(&mut self, boot: &str, at: i64) -> &mut Seen {
        let new = || Seen { first: at, last: at, losses: Vec::new() };
        let seen = self.machines.entry(boot.to_owned()).or_insert_with(new);
        (seen.first, seen.last) = (seen.first.min(at), seen.last.max(at));
        seen
    }

    /// Ends the count with the reports in the roster, which tell until when machines were seen. A machine that is in no
    /// entry has no beginning, and is left out.
    #[must_use]
    pub fn end(mut self, reports: &[WorkerReport], now_unix_ms: i64) -> Count {
        for report in reports {
            let life = if report.boot.is_empty() { report.worker.as_str() } else { &report.boot };
            if let Some(seen) = self.machines.get_mut(life) {
                seen.last = seen.last.max(report.at_unix_ms);
            }
        }
        let mut count = Count { at_unix_ms: now_unix_ms, days: BTreeMap::new() };
        let since = first_day(now_unix_ms) * DAY_MS;
        for Seen { first, last, losses } in self.machines.into_values() {
            for (day, ms) in by_day(first.max(since), last.min(now_unix_ms)) {
                let known = count.days.entry(day).or_default();
                known.vm_ms = known.vm_ms.saturating_add(ms);
            }
            for at in apart(losses).into_iter().filter(|at| (since..=now_unix_ms).contains(at)) {
                count.days.entry(day(at)).or_default().count += 1;
            }
        }
        count
    }
}

fn day(unix_ms: i64) -> i64 {
    unix_ms.div_euclid(DAY_MS)
}

fn first_day(now_unix_ms: i64) -> i64 {
    day(now_unix_ms) - (WINDOW_DAYS - 1)
}

/// The parts of a time by their days.
fn by_day(from: i64, to: i64) -> impl Iterator<Item = (i64, u64)> {
    let mut from = from;
    std::iter::from_fn(move || {
        let end = day(from).saturating_add(1).saturating_mul(DAY_MS).min(to);
        let ms = u64::try_from(end.saturating_sub(from)).ok().filter(|ms| *ms > 0)?;
        let day = day(from);
        from = end;
        Some((day, ms))
    })
}

/// The times of losses of one machine that are further apart than [`ONE_LOSS_MS`].
fn apart(mut losses: Vec<i64>) -> Vec<i64> {
    losses.sort_unstable();
    let mut before = None;
    losses.retain(|at| {
        let is_another = before.is_none_or(|before| at.saturating_sub(before) > ONE_LOSS_MS);
        if is_another {
            before = Some(*at);
        }
        is_another
    });
    losses
}

#[cfg(test)]
mod tests {
    use super::super::lives::tests::{MINUTE, boot, died, drained, interrupted, seen};
    use super::*;
    use crate::ids::WorkerId;
    use crate::ledger::{How, Interruption};
    use crate::report::DrainReport;

    const HOUR: i64 = 60 * MINUTE;
    /// Noon of some day.
    const NOON: i64 = 20_000 * DAY_MS + 12 * HOUR;

    fn in_minutes(unix_ms: i64) -> i64 {
        unix_ms / MINUTE
    }

    fn cut(work_lost_ms: u64, abandoned: u64) -> How {
        How::Drained(DrainReport { abandoned, work_lost_ms, ..DrainReport::default() })
    }

    fn count(interruptions: Vec<Interruption>, reports: &[WorkerReport], now: i64) -> Count {
        let mut counting = Counting::default();
        counting.add(&Entry::Boot(boot("a", in_minutes(NOON), in_minutes(NOON), "1")));
        for it in interruptions {
            counting.add(&Entry::Interruption(Box::new(it)));
        }
        counting.end(reports, now)
    }

    /// The losses and hours of a machine that started at noon and had these interruptions, in minutes after.
    fn losses(interruptions: Vec<(i64, How)>, last_seen: Option<i64>) -> (u64, f64) {
        let at = |minute: i64| in_minutes(NOON) + minute;
        let interruptions =
            interruptions.into_iter().map(|(minute, how)| interrupted("a", at(minute), how)).collect();
        let reports: Vec<_> =
            last_seen.into_iter().map(|minute| seen("a", at(minute))).chain([seen("b", at(0))]).collect();
        let Losses { count, vm_ms } = count(interruptions, &reports, NOON + DAY_MS).losses(NOON + DAY_MS);
        #[expect(clippy::cast_precision_loss, reason = "hours")]
        let hours = vm_ms as f64 / HOUR as f64;
        (count, hours)
    }

    #[test]
    fn times_at_the_ends_of_all_time_count_without_an_overflow() {
        let mut counting = Counting::default();
        for at in [i64::MIN, NOON, i64::MAX] {
            let mut lost = interrupted("a", in_minutes(NOON), died());
            lost.at_unix_ms = at;
            counting.add(&Entry::Interruption(Box::new(lost)));
        }
        assert_eq!(counting.end(&[], NOON + DAY_MS).losses(NOON + DAY_MS).count, 1);
    }

    #[test]
    fn an_interruption_counts_if_it_cost_work() {
        for (how, counts) in [
            (died(), 1),
            (cut(1, 0), 1),
            (cut(0, 1), 1),
            (cut(0, 0), 0),
            (drained("Preempt", 30_000), 0),
            (drained("Signal", 0), 0),
        ] {
            assert_eq!(losses(vec![(90, how.clone())], None), (counts, 1.5), "{how:?}");
        }
    }

    #[test]
    fn machines_that_live_count_as_long_as_they_were_seen() {
        assert_eq!(losses(vec![], None), (0, 0.0));
        assert_eq!(losses(vec![], Some(180)), (0, 3.0));
        assert_eq!(losses(vec![(60, died())], Some(180)), (1, 3.0), "a process died, its machine went on");
        // Over midnight, and only until now.
        assert_eq!(losses(vec![], Some(18 * 60)), (0, 18.0));
        assert_eq!(losses(vec![], Some(100 * 60)), (0, 24.0), "by a clock that is ahead");
    }

    #[test]
    fn workers_of_a_machine_that_die_together_are_one_loss_and_those_of_others_are_more() {
        assert_eq!(losses(vec![(60, died()), (61, cut(5, 0)), (65, died())], None).0, 1);
        assert_eq!(losses(vec![(70, died()), (60, died()), (64, died())], None).0, 2);
        let wave = ["a", "b", "c"].map(|machine| interrupted(machine, in_minutes(NOON) + 60, died()));
        assert_eq!(count(wave.into(), &[], NOON + DAY_MS).losses(NOON + DAY_MS).count, 3);
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let interruptions = vec![
            interrupted("a", in_minutes(NOON) + 60, died()),
            interrupted("a", in_minutes(NOON + DAY_MS), died()),
        ];
        let hours = |now: i64| {
            let losses = count(interruptions.clone(), &[], now).losses(now);
            (losses.count, losses.vm_ms / 3_600_000)
        };
        assert_eq!(hours(NOON + DAY_MS), (2, 24));
        assert_eq!(hours(NOON + 29 * DAY_MS), (2, 24));
        assert_eq!(hours(NOON + 30 * DAY_MS), (1, 12));
        assert_eq!(hours(NOON + 31 * DAY_MS), (0, 0));
        let count = count(interruptions.clone(), &[], NOON + DAY_MS);
        assert_eq!(count.losses(NOON + 30 * DAY_MS).count, 1, "an old count, too");
    }

    #[test]
    fn a_machine_counts_until_its_boot_was_last_renewed_when_the_roster_has_forgotten_it() {
        let renewed = |seen: i64, worked_on: Option<i64>| {
            let mut counting = Counting::default();
            let at = |minute: i64| NOON + minute * MINUTE;
            counting.add(&Entry::Boot(Boot {
                seen_unix_ms: Some(at(seen)),
                worked_on_unix_ms: worked_on.map(at),
                ..boot("a", in_minutes(NOON), in_minutes(NOON), "1")
            }));
            counting.add(&Entry::Interruption(Box::new(interrupted("a", in_minutes(NOON) + 60, died()))));
            counting.end(&[], NOON + 2 * DAY_MS).losses(NOON + 2 * DAY_MS)
        };
        let hours = |hours: u64| Losses { count: 1, vm_ms: hours * 3_600_000 };
        assert_eq!(renewed(120, None), hours(2));
        assert_eq!(renewed(30, None), hours(1), "its interruption was later");
        assert_eq!(renewed(120, Some(180)), hours(3), "another of its workers worked on");
        assert_eq!(renewed(100 * 24 * 60, None), hours(48), "by a clock that is ahead");
    }

    #[test]
    fn a_machine_without_a_boot_counts_from_its_first_interruption_and_by_its_worker() {
        let death = |minute| Interruption {
            boot: "w".to_owned(),
            ..interrupted("b", in_minutes(NOON) + minute, died())
        };
        let report = WorkerReport {
            worker: WorkerId::new("w"),
            boot: String::new(),
            ..seen("", in_minutes(NOON) + 60)
        };
        let counted = count(vec![death(30)], &[report], NOON + DAY_MS).losses(NOON + DAY_MS);
        assert_eq!(counted, Losses { count: 1, vm_ms: 30 * 60_000 });
    }

    #[test]
    fn a_count_is_kept_as_json_and_one_of_another_version_is_read_as_far_as_it_goes() {
        let count = count(vec![interrupted("a", in_minutes(NOON) + 60, died())], &[], NOON + 2 * HOUR);
        let json = serde_json::to_string(&count).unwrap();
        assert_eq!(json, r#"{"at_unix_ms":1728050400000,"days":{"20000":{"count":1,"vm_ms":3600000}}}"#);
        assert_eq!(serde_json::from_str::<Count>(&json).unwrap(), count);
        let newer = json.replace("\"days\"", "\"zones\":{},\"days\"");
        assert_eq!(serde_json::from_str::<Count>(&newer).unwrap(), count);
    }
}
