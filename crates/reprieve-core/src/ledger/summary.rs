//! The figures of the ledger over a time: what `reprieve report` shows.

use std::collections::BTreeMap;

use serde::Serialize;

use super::entry::{HealingAction, How, Interruption};
use super::lives::{Life, lives, moments};
use super::reasons::{FailureGroup, group, normalise};
use super::store::{AHEAD_MAX_MS, Entries, Odd, contains};
use super::survival::{Point, Spell, curve, curve_at, seen_from};
use crate::ids::JobId;
use crate::ports::WorkerReport;

const HOUR_MS: i64 = 3_600_000;

/// How many jobs, and how many moments, are listed.
const LISTED_MAX: usize = 10;

/// The ages, in hours, at which the survival curve is shown as a table.
pub const AGES_HOURS: [i64; 8] = [1, 3, 6, 12, 24, 48, 96, 168];

/// The figures. All durations are in milliseconds, all times in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Where the time begins.
    pub since_unix_ms: i64,
    /// Where it ends.
    pub until_unix_ms: i64,
    /// When a machine was seen first in it; `None` if none was.
    pub seen_since_unix_ms: Option<i64>,
    /// The boots that were seen in it.
    pub machines: u64,
    /// For how long they were seen, summed.
    pub seen_ms: i64,
    /// The evictions of machines.
    pub evictions: u64,
    /// Those among them that came without any notice, as far as a worker heard.
    pub unannounced: u64,
    /// The evictions by zone.
    pub by_zone: Vec<Share>,
    /// The evictions by size.
    pub by_size: Vec<Share>,
    /// The evictions by the hour of the day, in UTC: 24 of them.
    pub by_hour: Vec<Share>,
    /// The lead times of the evictions that were announced.
    pub lead_ms: Spread,
    /// The times from a Preempt to the last released lease, of workers that held something.
    pub released_ms: Spread,
    /// The share of machines that live for longer than an age; empty without evictions.
    pub survival: Vec<Point>,
    /// The youngest age at which a machine was seen, in milliseconds: all shares are of those that reached it.
    pub survival_from_ms: i64,
    /// The same at each of [`AGES_HOURS`] at which a machine was seen.
    pub survival_at: Vec<Point>,
    /// The moments in which more than one machine was evicted, the largest first, ten at most.
    pub together: Vec<Moment>,
    /// How many of all evictions came in such a moment.
    pub evicted_together: u64,
    /// Drains for each kind of notice, and deaths of workers.
    pub interruptions: Vec<Kind>,
    /// The jobs that were interrupted or failed most, ten at most.
    pub jobs: Vec<HitJob>,
    /// The failures by reason, the most frequent first.
    pub failures: Vec<FailureGroup>,
    /// The healing actions, by fault, action and outcome.
    pub healings: Vec<Healed>,
    /// The entries that can't be taken as they are.
    pub odd: Odd,
}

/// The evictions of some of the machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// What they have in common; empty when unknown.
    pub name: String,
    /// The evictions.
    pub evictions: u64,
    /// For how long these machines were seen, summed.
    pub seen_ms: i64,
}

/// Durations, by the nearest rank; zero where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// A tenth is this short or shorter.
    pub p10: u64,
    /// Half of them are.
    pub median: u64,
    /// Nine tenths are.
    pub p90: u64,
    /// The longest.
    pub max: u64,
}

/// A moment in which machines were evicted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// The first eviction.
    pub at_unix_ms: i64,
    /// How long after it the last one came.
    pub lasted_ms: i64,
    /// The machines.
    pub machines: u64,
    /// Their zones.
    pub zones: Vec<String>,
}

/// The interruptions of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// The notice's kind, or `died`.
    pub kind: String,
    /// How many workers were interrupted so.
    pub count: u64,
    /// The jobs that they held.
    pub held: u64,
    /// The work that was lost.
    pub work_lost_ms: u64,
    /// The work of these deliveries that was kept.
    pub work_kept_ms: u64,
}

/// A job that was interrupted or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HitJob {
    /// The job.
    pub job: JobId,
    /// How often its worker was interrupted while it ran.
    pub interruptions: u64,
    /// How many of its deliveries failed.
    pub failures: u64,
}

/// Healing actions with the same fault, action and outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Healed {
    /// The layer.
    pub layer: String,
    /// The fault, without numbers, ids and quoted text.
    pub fault: String,
    /// The action.
    pub action: String,
    /// The outcome.
    pub outcome: String,
    /// How many there were.
    pub count: u64,
    /// When the last one was.
    pub last_unix_ms: i64,
    /// How long after they began the faults were found, where that is known.
    pub found_after_ms: Spread,
    /// How long the actions took, where their end was seen.
    pub took_ms: Spread,
}

impl Summary {
    /// The figures of these entries from `since_unix_ms` to `until_unix_ms`, which is now. `reports` are those in the
    /// roster, by which machines that still live are known. Entries of the day after `until_unix_ms` count, because
    /// clocks differ.
    #[must_use]
    pub fn of(entries: &Entries, reports: &[WorkerReport], since_unix_ms: i64, until_unix_ms: i64) -> Self {
        let window = Window { since: since_unix_ms, until: until_unix_ms };
        let all = lives(entries, reports);
        let lives: Vec<&Life> = all.iter().filter(|life| window.sees(life)).collect();
        let evicted: Vec<&Life> = lives.iter().copied().filter(|life| window.has_eviction(life)).collect();
        let interruptions: Vec<&Interruption> =
            entries.interruptions.iter().filter(|it| window.contains(it.at_unix_ms)).collect();
        let leads = evicted.iter().filter_map(|life| life.evicted?.lead_ms).collect();
        let failures: Vec<_> =
            entries.failures.iter().filter(|it| window.contains(it.at_unix_ms)).cloned().collect();
        let (together, evicted_together) = together(&evicted);
        let spells = window.spells(&lives);
        Self {
            since_unix_ms,
            until_unix_ms,
            seen_since_unix_ms: lives.iter().map(|life| life.seen_unix_ms.max(since_unix_ms)).min(),
            machines: lives.len() as u64,
            seen_ms: lives.iter().map(|life| window.seen(life)).fold(0, i64::saturating_add),
            evictions: evicted.len() as u64,
            unannounced: evicted
                .iter()
                .filter(|life| life.evicted.is_some_and(|it| it.lead_ms.is_none()))
                .count() as u64,
            by_zone: window.shares(&lives, |life| &life.machine.zone),
            by_size: window.shares(&lives, |life| &life.machine.size),
            by_hour: window.hours(&lives),
            lead_ms: Spread::of(leads),
            released_ms: Spread::of(interruptions.iter().filter_map(|it| released(it)).collect()),
            survival: curve(&spells),
            survival_from_ms: seen_from(&spells),
            survival_at: curve_at(&spells, &AGES_HOURS.map(|hours| hours * HOUR_MS)),
            together,
            evicted_together,
            interruptions: kinds(&interruptions),
            jobs: hit(&interruptions, &failures),
            failures: group(&failures),
            healings: healed(entries, window),
            odd: entries.odd(until_unix_ms),
        }
    }

    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machines == 0
            && self.interruptions.is_empty()
            && self.failures.is_empty()
            && self.healings.is_empty()
    }

    /// The work that interruptions cost, and that they did not, in milliseconds.
    #[must_use]
    pub fn work(&self) -> (u64, u64) {
        let sum = |of: fn(&Kind) -> u64| self.interruptions.iter().map(of).fold(0, u64::saturating_add);
        (sum(|kind| kind.work_lost_ms), sum(|kind| kind.work_kept_ms))
    }
}

/// The lives of the machines that a [`Summary`] of this time counts: seen in it, cut to it, and evicted only if that was
/// in it. When a machine booted stays as it is.
#[must_use]
pub fn lives_within(
    entries: &Entries,
    reports: &[WorkerReport],
    since_unix_ms: i64,
    until_unix_ms: i64,
) -> Vec<Life> {
    let window = Window { since: since_unix_ms, until: until_unix_ms };
    let cut = |life: Life| {
        let (from, to) = window.part(&life);
        let evicted = life.evicted.filter(|_| window.has_eviction(&life));
        Life { seen_unix_ms: from, until_unix_ms: to.max(from), evicted, ..life }
    };
    lives(entries, reports).into_iter().filter(|life| window.sees(life)).map(cut).collect()
}

/// The time of a summary.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: i64,
    until: i64,
}

impl Window {
    const fn contains(self, at: i64) -> bool {
        contains(self.since, self.until, at)
    }

    const fn end(self) -> i64 {
        self.until.saturating_add(AHEAD_MAX_MS)
    }

    /// The part of the window in which the machine was seen.
    fn part(self, life: &Life) -> (i64, i64) {
        (life.seen_unix_ms.max(self.since), life.until_unix_ms.min(self.end()))
    }

    fn sees(self, life: &Life) -> bool {
        life.until_unix_ms >= self.since && life.seen_unix_ms <= self.end()
    }

    fn has_eviction(self, life: &Life) -> bool {
        life.evicted.is_some() && self.contains(life.until_unix_ms)
    }

    /// For how long the machine was seen.
    fn seen(self, life: &Life) -> i64 {
        let (from, to) = self.part(life);
        to.saturating_sub(from).max(0)
    }

    fn shares(self, lives: &[&Life], name: fn(&Life) -> &String) -> Vec<Share> {
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        for life in lives {
            let name = name(life);
            let none = || Share { name: name.clone(), evictions: 0, seen_ms: 0 };
            let share = shares.entry(name).or_insert_with(none);
            share.evictions += u64::from(self.has_eviction(life));
            share.seen_ms = share.seen_ms.saturating_add(self.seen(life));
        }
        shares.into_values().collect()
    }

    fn hours(self, lives: &[&Life]) -> Vec<Share> {
        let share = |hour: i64| Share { name: format!("{hour:02}"), evictions: 0, seen_ms: 0 };
        let mut hours: Vec<_> = (0..24).map(share).collect();
        let hour_of = |at: i64| usize::try_from(at.div_euclid(HOUR_MS).rem_euclid(24)).unwrap_or_default();
        for life in lives {
            let (mut from, to) = self.part(life);
            while from < to {
                let next = (from.div_euclid(HOUR_MS) + 1) * HOUR_MS;
                hours[hour_of(from)].seen_ms += next.min(to) - from;
                from = next;
            }
            if self.has_eviction(life) {
                hours[hour_of(life.until_unix_ms)].evictions += 1;
            }
        }
        hours
    }

    /// The spells of these machines in the window, as ages. A machine whose boot is not in the ledger has none.
    fn spells(self, lives: &[&Life]) -> Vec<Spell> {
        let known = lives.iter().filter_map(|life| Some((*life, life.born_unix_ms?)));
        let ends: Vec<_> = known
            .clone()
            .filter(|(life, _)| self.has_eviction(life))
            .map(|(life, _)| life.until_unix_ms)
            .collect();
        let mut numbers = moments(&ends).into_iter();
        let spell = |(life, born): (&Life, i64)| {
            let (from, to) = self.part(life);
            let evicted_in = if self.has_eviction(life) { numbers.next() } else { None };
            Spell { entered_ms: from.saturating_sub(born), left_ms: to.saturating_sub(born), evicted_in }
        };
        known.map(spell).collect()
    }
}

impl Spread {
    /// The spread of these durations.
    #[must_use]
    pub fn of(mut durations: Vec<u64>) -> Self {
        durations.sort_unstable();
        let rank = |percent: usize| (durations.len() * percent).div_ceil(100).saturating_sub(1);
        let at = |percent: usize| durations.get(rank(percent)).copied().unwrap_or_default();
        Self {
            count: durations.len() as u64,
            min: at(0),
            p10: at(10),
            median: at(50),
            p90: at(90),
            max: at(100),
        }
    }
}

/// The time from a Preempt to the last released lease, if the worker held something.
fn released(interruption: &Interruption) -> Option<u64> {
    match &interruption.how {
        How::Drained(report) if report.held > 0 && report.notice == "Preempt" => {
            Some(report.released_after_ms)
        }
        How::Drained(_) | How::Died(_) => None,
    }
}

/// The moments in which several machines were evicted, and how many were in all of them.
fn together(evicted: &[&Life]) -> (Vec<Moment>, u64) {
    let times: Vec<_> = evicted.iter().map(|life| life.until_unix_ms).collect();
    let mut by_moment: BTreeMap<usize, Vec<&Life>> = BTreeMap::new();
    for (life, moment) in evicted.iter().zip(moments(&times)) {
        by_moment.entry(moment).or_default().push(life);
    }
    let mut together: Vec<_> =
        by_moment.into_values().filter(|lives| lives.len() > 1).map(|lives| moment(&lives)).collect();
    let count = together.iter().map(|moment| moment.machines).sum();
    together.sort_by(|a, b| b.machines.cmp(&a.machines).then(b.at_unix_ms.cmp(&a.at_unix_ms)));
    together.truncate(LISTED_MAX);
    (together, count)
}

fn moment(lives: &[&Life]) -> Moment {
    let times = || lives.iter().map(|life| life.until_unix_ms);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    let mut zones: Vec<_> = lives.iter().map(|life| life.machine.zone.clone()).collect();
    zones.sort();
    zones.dedup();
    Moment { at_unix_ms: first, lasted_ms: last.saturating_sub(first), machines: lives.len() as u64, zones }
}

fn kinds(interruptions: &[&Interruption]) -> Vec<Kind> {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for it in interruptions {
        let name = it.notice().unwrap_or("died");
        let (held, work_lost_ms, work_kept_ms) = (0, 0, 0);
        let none = || Kind { kind: name.to_owned(), count: 0, held, work_lost_ms, work_kept_ms };
        let kind = kinds.entry(name).or_insert_with(none);
        kind.count += 1;
        kind.held = kind.held.saturating_add(it.held());
        kind.work_lost_ms = kind.work_lost_ms.saturating_add(it.work_lost_ms());
        kind.work_kept_ms = kind.work_kept_ms.saturating_add(it.work_kept_ms());
    }
    kinds.into_values().collect()
}

fn hit(interruptions: &[&Interruption], failures: &[super::Failure]) -> Vec<HitJob> {
    let mut jobs: BTreeMap<&JobId, (u64, u64)> = BTreeMap::new();
    for job in interruptions.iter().flat_map(|it| &it.jobs) {
        jobs.entry(job).or_default().0 += 1;
    }
    for failure in failures {
        jobs.entry(&failure.job).or_default().1 += 1;
    }
    let hit =
        |(job, (interruptions, failures)): (&JobId, _)| HitJob { job: job.clone(), interruptions, failures };
    let mut jobs: Vec<_> = jobs.into_iter().map(hit).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.interruptions + job.failures));
    jobs.truncate(LISTED_MAX);
    jobs
}

fn healed(entries: &Entries, window: Window) -> Vec<Healed> {
    let mut groups: BTreeMap<(&str, String, &str, &str), Vec<&HealingAction>> = BTreeMap::new();
    for it in entries.healings.iter().filter(|it| window.contains(it.at_unix_ms)) {
        groups.entry((&it.layer, normalise(&it.fault), &it.action, &it.outcome)).or_default().push(it);
    }
    let healed =
        |((layer, fault, action, outcome), of_group): ((&str, String, &str, &str), Vec<&HealingAction>)| {
            Healed {
                layer: layer.to_owned(),
                fault,
                action: action.to_owned(),
                outcome: outcome.to_owned(),
                count: of_group.len() as u64,
                last_unix_ms: of_group.iter().map(|it| it.at_unix_ms).max().unwrap_or_default(),
                found_after_ms: Spread::of(of_group.iter().filter_map(|it| it.found_after_ms).collect()),
                took_ms: Spread::of(of_group.iter().filter_map(|it| it.took_ms).collect()),
            }
        };
    groups.into_iter().map(healed).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lives::tests::{MINUTE, boot, died, drained, interrupted, seen};
    use super::*;
    use crate::ids::WorkerId;
    use crate::ledger::{Boot, Death};

    #[test]
    fn a_spread_is_by_the_nearest_rank() {
        let of = |durations: &[u64]| {
            let it = Spread::of(durations.to_vec());
            [it.count, it.min, it.p10, it.median, it.p90, it.max]
        };
        assert_eq!(of(&[]), [0; 6]);
        assert_eq!(of(&[7]), [1, 7, 7, 7, 7, 7]);
        assert_eq!(of(&[30, 10, 20, 40]), [4, 10, 10, 20, 40, 40]);
        let eleven: Vec<u64> = (1..=11).collect();
        assert_eq!(of(&eleven), [11, 1, 2, 6, 10, 11]);
    }

    /// Four machines from minute 0 to 240. a (zone 1) is evicted at 90 with 30 s of notice, b (zone 2) dies at 92, c
    /// (zone 1) lives, d (zone 2) was scaled in at 60.
    fn fleet() -> (Entries, Vec<WorkerReport>) {
        let boots =
            vec![boot("a", 0, 0, "1"), boot("b", 0, 2, "2"), boot("c", 0, 0, "1"), boot("d", 0, 0, "2")];
        let interruptions = vec![
            interrupted("a", 90, drained("Preempt", 30_000)),
            interrupted("b", 92, died()),
            interrupted("d", 60, drained("Signal", 0)),
        ];
        (Entries { boots, interruptions, ..Entries::default() }, vec![seen("c", 240)])
    }

    #[test]
    fn evictions_are_counted_by_zone_and_hour_with_the_time_that_machines_were_seen() {
        let (entries, reports) = fleet();
        let it = Summary::of(&entries, &reports, 0, 300 * MINUTE);
        assert_eq!((it.machines, it.evictions, it.unannounced), (4, 2, 1));
        assert_eq!(it.seen_since_unix_ms, Some(0));
        let late = Summary::of(&entries, &reports, -9_000 * MINUTE, 300 * MINUTE);
        assert_eq!(late.seen_since_unix_ms, Some(0), "not where the time begins");
        assert_eq!(Summary::of(&Entries::default(), &[], 0, MINUTE).seen_since_unix_ms, None);
        // 90.5 + 90 + 240 + 60 minutes.
        assert_eq!(it.seen_ms, 480 * MINUTE + MINUTE / 2);
        let zone =
            |at: usize| (it.by_zone[at].name.as_str(), it.by_zone[at].evictions, it.by_zone[at].seen_ms);
        assert_eq!(zone(0), ("1", 1, 330 * MINUTE + MINUTE / 2));
        assert_eq!(zone(1), ("2", 1, 150 * MINUTE));
        let hours: Vec<_> = it.by_hour.iter().map(|hour| (hour.evictions, hour.seen_ms / MINUTE)).collect();
        // b is seen from minute 2 on; in the second hour a for 30.5 minutes, b for 32, c for 60.
        assert_eq!(hours[..5], [(0, 238), (2, 122), (0, 60), (0, 60), (0, 0)]);
        assert_eq!((it.lead_ms.count, it.lead_ms.median), (1, 30_000));
        assert_eq!((it.together.len(), it.evicted_together, it.together[0].machines), (1, 2, 2));
        let alive: Vec<_> = it.survival.iter().map(|point| (point.age_ms / MINUTE, point.alive)).collect();
        // d was lost before; of three, one ends at 90.5, then of two one at 92.
        assert_eq!(alive, [(90, 2.0 / 3.0), (92, 1.0 / 3.0)]);
    }

    #[test]
    fn lives_are_cut_to_the_time_and_evicted_only_within_it() {
        let (entries, reports) = fleet();
        let shown = |since: i64, until: i64| -> Vec<_> {
            let lives = lives_within(&entries, &reports, since * MINUTE, until * MINUTE);
            let minutes = |life: &Life| (life.seen_unix_ms / MINUTE, life.until_unix_ms / MINUTE);
            lives.iter().map(|life| (life.boot.clone(), minutes(life), life.evicted.is_some())).collect()
        };
        let life = |boot: &str, from, to, evicted| (boot.to_owned(), (from, to), evicted);
        let all = [
            life("a", 0, 90, true),
            life("b", 2, 92, true),
            life("c", 0, 240, false),
            life("d", 0, 60, false),
        ];
        assert_eq!(shown(0, 300), all);
        let later = [life("b", 91, 92, true), life("c", 91, 240, false)];
        assert_eq!(shown(91, 300), later);
    }

    fn healing(worker: &str, action: &str, fault: &str, at: i64) -> HealingAction {
        HealingAction {
            layer: "slot".to_owned(),
            fault: fault.to_owned(),
            action: action.to_owned(),
            outcome: "begun".to_owned(),
            worker: WorkerId::new(worker),
            boot: String::new(),
            vm: String::new(),
            at_unix_ms: at * MINUTE,
            found_after_ms: None,
            took_ms: None,
        }
    }

    #[test]
    fn healing_is_grouped_by_fault_without_ids() {
        let faults = [
            "01a21889-4730-704f-ba82-fe1c06acf5c5: its thread",
            "01a21889-474f-70ef-a378-8d02717193be: its thread",
        ];
        let healings = faults.map(|fault| healing("w", "mark_stuck", fault, 5)).to_vec();
        let it = Summary::of(&Entries { healings, ..Entries::default() }, &[], 0, 100 * MINUTE);
        let groups: Vec<_> = it.healings.iter().map(|it| (it.fault.as_str(), it.count)).collect();
        assert_eq!(groups, [("#: its thread", 2)]);
    }

    #[test]
    fn a_clock_that_is_ahead_hides_nothing_and_damage_breaks_nothing() {
        let (mut entries, reports) = fleet();
        let now = 100 * MINUTE;
        entries.boots.push(boot("e", 280, 281, "1"));
        entries.interruptions.push(interrupted("e", 290, drained("Preempt", 30_000)));
        entries.interruptions.push(interrupted("f", 9_999, died()));
        entries.unreadable = 2;
        let it = Summary::of(&entries, &reports, 0, now);
        assert_eq!((it.evictions, it.odd.ahead, it.odd.too_far_ahead, it.odd.unreadable), (3, 2, 1, 2));
        assert_eq!(entries.clone().within(0, now).interruptions.len(), 4);
        let lost =
            Death { work_lost_ms: u64::MAX, work_kept_ms: u64::MAX, held: u64::MAX, ..Default::default() };
        for (number, seen) in [(0, i64::MAX), (1, i64::MIN)] {
            let name = format!("g{number}");
            let mut damaged = Boot { seen_unix_ms: Some(seen), ..boot(&name, 0, 5, "1") };
            damaged.machine.booted_unix_ms = Some(i64::MIN);
            entries.boots.push(damaged);
            entries.interruptions.push(interrupted(&name, 7 + number, How::Died(lost.clone())));
        }
        let it = Summary::of(&entries, &reports, 0, now);
        assert_eq!(it.work(), (u64::MAX, u64::MAX));
    }

    #[test]
    fn only_what_lies_in_the_time_counts() {
        let (entries, reports) = fleet();
        let it = Summary::of(&entries, &reports, 91 * MINUTE, 300 * MINUTE);
        assert_eq!((it.machines, it.evictions, it.unannounced), (2, 1, 1));
        assert_eq!(it.seen_ms, 150 * MINUTE);
        assert_eq!(it.interruptions.iter().map(|kind| kind.kind.as_str()).collect::<Vec<_>>(), ["died"]);
        assert!(Summary::of(&entries, &reports, 9_000 * MINUTE, 9_999 * MINUTE).is_empty());
        assert!(Summary::of(&Entries::default(), &[], 0, 1).is_empty());
    }
}
