//! The lives of machines: from the entries of their boots and of their workers' interruptions, and from the roster.

use std::collections::BTreeMap;

use super::entry::{Boot, How, Interruption, Machine};
use super::store::Entries;
use crate::ports::WorkerReport;

/// For how long after an eviction a machine may still be seen. Azure's notice is 30 s, a machine may run on for some
/// time, and clocks differ.
const GRACE_MS: i64 = 5 * 60_000;

/// For how long after the last report of a worker that died with its machine another one's may be: for three times the
/// longest interval of their reports.
const DEATH_GRACE_MS: i64 = 60_000;

/// Evictions no further than this from the first of them came together: they are of one moment.
pub(super) const TOGETHER_MS: i64 = 5 * 60_000;

/// The life of a machine in one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The id of the boot.
    pub boot: String,
    /// The machine.
    pub machine: Machine,
    /// When it booted, in milliseconds since the Unix epoch; `None` when only its end is in the ledger.
    pub born_unix_ms: Option<i64>,
    /// When its first worker started.
    pub seen_unix_ms: i64,
    /// When it was evicted, or last seen.
    pub until_unix_ms: i64,
    /// How it was evicted; `None` if it was only not seen any longer, or still lives.
    pub evicted: Option<Eviction>,
}

/// How a machine was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// The lead time of the first notice, in milliseconds; `None` when there was no notice.
    pub lead_ms: Option<u64>,
}

/// Returns the lives of all machines in the ledger, by boot. `reports` are those in the roster.
#[must_use]
pub fn lives(entries: &Entries, reports: &[WorkerReport]) -> Vec<Life> {
    let mut of_boot: BTreeMap<&str, Signs<'_>> = BTreeMap::new();
    for boot in &entries.boots {
        let signs = of_boot.entry(&boot.boot).or_default();
        signs.seen.extend(boot.seen_unix_ms.max(boot.worked_on_unix_ms));
        signs.boot = Some(boot);
    }
    for interruption in &entries.interruptions {
        of_boot.entry(&interruption.boot).or_default().interruptions.push(interruption);
    }
    for report in reports {
        let life = if report.boot.is_empty() { report.worker.as_str() } else { &report.boot };
        if let Some(signs) = of_boot.get_mut(life) {
            signs.seen.push(report.at_unix_ms);
        }
    }
    of_boot.into_iter().map(|(boot, signs)| signs.life(boot)).collect()
}

/// What is known of one boot.
#[derive(Debug, Default)]
struct Signs<'a> {
    boot: Option<&'a Boot>,
    interruptions: Vec<&'a Interruption>,
    /// When its workers reported last, and when that was last written into the ledger.
    seen: Vec<i64>,
}

impl Signs<'_> {
    fn life(mut self, boot: &str) -> Life {
        self.interruptions.sort_by_key(|it| it.at_unix_ms);
        let described = self.boot.map(|boot| &boot.machine);
        let by_drain =
            self.interruptions.iter().map(|it| &it.machine).max_by_key(|it| it.size.len() + it.vm.len());
        let machine = described.or(by_drain).cloned().unwrap_or_default();
        let evicted = self.evicted();
        let last =
            self.seen.iter().copied().chain(self.interruptions.iter().map(|it| it.until_unix_ms())).max();
        let first = self.interruptions.first().map(|it| it.at_unix_ms);
        let seen_unix_ms = self.boot.map(|boot| boot.at_unix_ms).or(first).or(last).unwrap_or_default();
        let born_unix_ms = self.boot.map(|boot| {
            // A clock that was set after the boot may say that a worker started before it.
            boot.machine.booted_unix_ms.map_or(boot.at_unix_ms, |booted| booted.min(boot.at_unix_ms))
        });
        let until = evicted.map(|it| it.0).or(last).unwrap_or(seen_unix_ms);
        Life {
            boot: boot.to_owned(),
            machine,
            born_unix_ms,
            seen_unix_ms,
            until_unix_ms: until.max(seen_unix_ms),
            evicted: evicted.map(|it| it.1),
        }
    }

    /// When and how the machine was evicted: after that it was not seen any more. A worker that was interrupted while
    /// the machine went on, or a notice that was withdrawn, is no eviction.
    fn evicted(&self) -> Option<(i64, Eviction)> {
        let later = |at: i64, grace: i64| {
            let is_later = |seen: i64| seen > at.saturating_add(grace);
            self.seen.iter().any(|seen| is_later(*seen))
                || self.interruptions.iter().any(|it| is_later(it.at_unix_ms))
        };
        let worked_on = self.boot.and_then(|boot| boot.worked_on_unix_ms);
        let was_withdrawn = |it: &Interruption| worked_on.is_some_and(|at| at >= it.at_unix_ms);
        let mut evictions = self.interruptions.iter().filter_map(|it| match &it.how {
            How::Drained(report) if report.notice == "Preempt" && !was_withdrawn(it) => {
                let lead_ms = report.lead_ms.unwrap_or_default();
                let at = it.at_unix_ms.saturating_add(i64::try_from(lead_ms).unwrap_or(i64::MAX));
                (!later(at, GRACE_MS)).then_some((at, Eviction { lead_ms: Some(lead_ms) }))
            }
            How::Died(death) if !death.machine_lives && !later(it.at_unix_ms, DEATH_GRACE_MS) => {
                Some((it.at_unix_ms, Eviction { lead_ms: None }))
            }
            How::Drained(_) | How::Died(_) => None,
        });
        let first = evictions.next()?;
        // Workers of one machine: one may have died before it heard of the notice.
        Some(evictions.fold(first, |first, next| if first.1.lead_ms.is_none() { next } else { first }))
    }
}

/// Numbers the moments of evictions at these times: one moment while each is no further than [`TOGETHER_MS`] from the
/// first. In a large fleet those that have nothing to do with one another are no further than that from the one before,
/// for days. Returns the number of each.
pub(super) fn moments(times: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&at| times[at]);
    let Some(mut first) = order.first().map(|&at| times[at]) else { return Vec::new() };
    let (mut moments, mut moment) = (vec![0; times.len()], 0);
    for at in order {
        if times[at].saturating_sub(first) > TOGETHER_MS {
            (moment, first) = (moment + 1, times[at]);
        }
        moments[at] = moment;
    }
    moments
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ids::WorkerId;
    use crate::ledger::Death;
    use crate::report::DrainReport;

    pub(crate) const MINUTE: i64 = 60_000;

    pub(crate) fn boot(boot: &str, booted: i64, at: i64, zone: &str) -> Boot {
        let machine =
            Machine { zone: zone.to_owned(), booted_unix_ms: Some(booted * MINUTE), ..Machine::default() };
        let (boot, worker) = (boot.to_owned(), WorkerId::new("w"));
        Boot { boot, worker, at_unix_ms: at * MINUTE, machine, seen_unix_ms: None, worked_on_unix_ms: None }
    }

    pub(crate) fn interrupted(boot: &str, at: i64, how: How) -> Interruption {
        Interruption {
            worker: WorkerId::new(format!("{boot}-{at}")),
            boot: boot.to_owned(),
            machine: Machine::default(),
            queue: String::new(),
            at_unix_ms: at * MINUTE,
            jobs: Vec::new(),
            how,
        }
    }

    pub(crate) fn drained(notice: &str, lead_ms: u64) -> How {
        let notice = notice.to_owned();
        How::Drained(DrainReport { notice, lead_ms: Some(lead_ms), ..DrainReport::default() })
    }

    pub(crate) fn died() -> How {
        How::Died(Death::default())
    }

    pub(crate) fn seen(boot: &str, at: i64) -> WorkerReport {
        let (boot, at_unix_ms) = (boot.to_owned(), at * MINUTE);
        WorkerReport { boot, at_unix_ms, ..WorkerReport::new(WorkerId::unique()) }
    }

    /// Plays one machine that booted at minute 10 and was first seen at minute 12. Returns until when it lived, in
    /// minutes, and with which lead time it was evicted, in seconds: −1 without notice.
    fn life(interruptions: Vec<(i64, How)>, reports: &[i64]) -> (i64, Option<i64>) {
        let interruptions = interruptions.into_iter().map(|(at, how)| interrupted("b", at, how)).collect();
        let entries = Entries { boots: vec![boot("b", 10, 12, "1")], interruptions, ..Entries::default() };
        let reports: Vec<_> = reports.iter().map(|at| seen("b", *at)).chain([seen("other", 999)]).collect();
        let life = lives(&entries, &reports).remove(0);
        assert_eq!((life.born_unix_ms, life.seen_unix_ms), (Some(10 * MINUTE), 12 * MINUTE));
        let lead = |it: Eviction| it.lead_ms.map_or(-1, |lead| i64::try_from(lead / 1_000).unwrap());
        (life.until_unix_ms / MINUTE, life.evicted.map(lead))
    }

    #[test]
    fn a_machine_lives_until_it_is_evicted_or_last_seen() {
        assert_eq!(life(vec![], &[]), (12, None));
        assert_eq!(life(vec![], &[40, 50]), (50, None));
        assert_eq!(life(vec![(30, drained("Preempt", 30_000))], &[]), (30, Some(30)));
        assert_eq!(
            life(vec![(30, drained("Preempt", 30_000))], &[31]),
            (30, Some(30)),
            "seen in its last minute"
        );
        assert_eq!(life(vec![(30, died())], &[30]), (30, Some(-1)));
        assert_eq!(life(vec![(30, drained("Signal", 0))], &[]), (30, None));
        assert_eq!(life(vec![(30, drained("Reboot", 900_000))], &[]), (30, None));
    }

    #[test]
    fn an_interruption_after_which_the_machine_was_seen_is_no_eviction() {
        assert_eq!(life(vec![(30, drained("Preempt", 30_000))], &[60]), (60, None), "withdrawn");
        assert_eq!(life(vec![(30, died())], &[60]), (60, None), "a process died");
        let twice = vec![(30, died()), (90, drained("Preempt", 10_000))];
        assert_eq!(life(twice, &[]), (90, Some(10)));
        let lives = Death { machine_lives: true, ..Death::default() };
        assert_eq!(life(vec![(30, How::Died(lives))], &[]), (30, None));
    }

    #[test]
    fn a_worker_that_went_on_after_it_was_taken_for_dead_dies_when_it_dies() {
        assert_eq!(life(vec![(30, died())], &[32]), (32, None), "it was frozen");
        assert_eq!(life(vec![(30, died()), (60, died())], &[60]), (60, Some(-1)));
        assert_eq!(life(vec![(30, died()), (31, died())], &[]), (31, Some(-1)), "soon after");
    }

    /// The same of a machine whose workers are in no roster any more.
    fn written(interruptions: Vec<(i64, How)>, seen: i64, worked_on: Option<i64>) -> (i64, bool) {
        let interruptions = interruptions.into_iter().map(|(at, how)| interrupted("b", at, how)).collect();
        let renewed = Boot {
            seen_unix_ms: Some(seen * MINUTE),
            worked_on_unix_ms: worked_on.map(|at| at * MINUTE),
            ..boot("b", 10, 12, "1")
        };
        let entries = Entries { boots: vec![renewed], interruptions, ..Entries::default() };
        let life = lives(&entries, &[]).remove(0);
        (life.until_unix_ms / MINUTE, life.evicted.is_some())
    }

    #[test]
    fn what_was_seen_of_a_machine_stays_in_the_ledger() {
        assert_eq!(written(vec![], 70, None), (70, false));
        assert_eq!(written(vec![(30, drained("Preempt", 30_000))], 70, None), (70, false));
        assert_eq!(written(vec![(30, drained("Preempt", 30_000))], 28, None), (30, true));
        let back_at_once = written(vec![(30, drained("Preempt", 30_000))], 31, Some(31));
        assert_eq!(back_at_once, (31, false), "the notice was withdrawn");
        let again = vec![(30, drained("Preempt", 30_000)), (50, drained("Preempt", 30_000))];
        assert_eq!(written(again, 40, Some(31)), (50, true));
    }

    #[test]
    fn the_workers_of_one_machine_make_one_eviction() {
        let three = vec![(30, died()), (30, drained("Preempt", 20_000)), (31, drained("Preempt", 5_000))];
        assert_eq!(life(three, &[]), (30, Some(20)));
    }

    #[test]
    fn evictions_within_five_minutes_of_the_first_are_of_one_moment() {
        let times = [30, 4, 0, 5, 9, 36, 100].map(|minute| minute * MINUTE);
        assert_eq!(moments(&times), [2, 0, 0, 0, 1, 3, 4]);
        assert!(moments(&[]).is_empty());
    }
}
