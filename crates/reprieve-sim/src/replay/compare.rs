//! Where the report of the ledger differs from the counts of the journal, and where the fleet broke a promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display, Formatter};
use std::time::Duration;

use reprieve_core::ledger::{How, Spread};

use super::Replay;
use super::jobs::Habit;
use super::journal::Happened;
use super::process::STALL_AFTER;
use super::tally::{Evicted, Interrupted, Life, Tally, held};
use crate::fleet::What;

/// A worker that is not cut off reports every ten seconds, and its last report may be so old when it dies.
const REPORT_EVERY: Duration = Duration::from_secs(11);

/// The network between a worker and its store, and the looks of its control loop.
const NETWORK: Duration = Duration::from_millis(200);

/// Machines that are evicted no later than this after the first of them are said to go together.
const TOGETHER: Duration = Duration::from_mins(5);

/// How many of the jobs that were hit most a report lists.
const LISTED_MAX: usize = 10;

const HOUR: Duration = Duration::from_hours(1);

/// Collects what differs.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    #[expect(clippy::needless_pass_by_value, reason = "both are made for this one comparison")]
    fn same<T: PartialEq + Debug>(&mut self, what: impl Display, reported: T, counted: T) {
        if reported != counted {
            self.0.push(format!("{what}: the report says {reported:?}, the journal {counted:?}"));
        }
    }

    fn near(&mut self, what: impl Display, reported: Duration, counted: Duration, within: Duration) {
        if reported.abs_diff(counted) > within {
            self.0.push(format!(
                "{what}: the report says {reported:?}, the journal {counted:?}, within {within:?}"
            ));
        }
    }

    fn holds(&mut self, holds: bool, otherwise: impl Display) {
        if !holds {
            self.0.push(otherwise.to_string());
        }
    }
}

/// How many held jobs a report may tell, where last reports may not tell of all.
#[derive(Clone, Copy, Default)]
struct Range {
    least: u64,
    most: u64,
}

impl Range {
    fn of<'a>(interruptions: impl Iterator<Item = &'a Interrupted>) -> Self {
        let mut range = Self::default();
        for it in interruptions {
            it.possible_jobs().into_iter().for_each(|job| range.add(it, job));
        }
        range
    }

    fn add(&mut self, interrupted: &Interrupted, job: usize) {
        self.least += u64::from(!interrupted.unsure.contains_key(&job));
        self.most += 1;
    }

    const fn contains(self, reported: u64) -> bool {
        self.least <= reported && reported <= self.most
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.least, self.most)
    }
}

const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Replay {
    /// Returns where the report differs from what the simulation did: nothing, if the ledger is right.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let (tally, mut findings) = (Tally::of(self), Findings::default());
        self.compare_machines(&tally.lives, &mut findings);
        self.compare_together(&tally.lives, &mut findings);
        self.compare_survival(&tally.lives, &mut findings);
        self.compare_interruptions(&tally.interruptions, &mut findings);
        self.compare_drains(&tally.interruptions, &mut findings);
        self.compare_jobs(&tally, &mut findings);
        self.compare_failures(&tally, &mut findings);
        let mut healings: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for healed in &self.summary.healings {
            *healings.entry((&healed.layer, &healed.action)).or_default() += healed.count;
        }
        findings.same("healing actions", healings, tally.healings);
        for healed in &self.summary.healings {
            // From the last good write to the third in a row that failed, of which there is one every ten seconds.
            let (from, to) = match healed.layer.as_str() {
                "job" => (STALL_AFTER, STALL_AFTER + Duration::from_secs(2)),
                _ => (Duration::from_secs(29), Duration::from_secs(31)),
            };
            let found = healed.found_after_ms;
            let is_known = found.count == healed.count && (ms(from)..=ms(to)).contains(&found.max);
            findings.holds(is_known, format!("{} was found after {found:?}", healed.fault));
        }
        findings.0
    }

    fn compare_machines(&self, lives: &[Life], findings: &mut Findings) {
        let summary = &self.summary;
        let evicted: Vec<_> = lives.iter().filter(|life| life.evicted.is_some()).collect();
        findings.same("machines", summary.machines, lives.len() as u64);
        findings.same("boots", self.entries.boots.len(), lives.len());
        findings.same("evictions", summary.evictions, evicted.len() as u64);
        let unheard = evicted.iter().filter(|life| life.evicted == Some(Evicted { lead: None })).count();
        findings.same("evictions without notice", summary.unannounced, unheard as u64);
        let mut zones: BTreeMap<&str, u64> = BTreeMap::new();
        for life in lives {
            *zones.entry(life.zone).or_default() += u64::from(life.evicted.is_some());
        }
        let reported = summary.by_zone.iter().map(|it| (it.name.as_str(), it.evictions)).collect();
        findings.same("evictions by zone", reported, zones);
        let reported: Vec<_> = summary.by_size.iter().map(|it| (it.name.as_str(), it.evictions)).collect();
        findings.same("evictions by size", reported, vec![(self.plan.trace.size(), evicted.len() as u64)]);
        let leads = evicted.iter().filter_map(|life| life.evicted?.lead).map(ms);
        findings.same("lead times", summary.lead_ms, Spread::of(leads.collect()));
        let seen = lives.iter().map(|life| life.until.saturating_sub(life.started)).sum();
        let reported = millis(summary.seen_ms.unsigned_abs());
        findings.near(
            "machine hours",
            reported,
            seen,
            REPORT_EVERY * u32::try_from(lives.len()).unwrap_or(0),
        );
        for (number, hour) in (0..).zip(&summary.by_hour) {
            // One that came unheard is known by its last report.
            let is_in = |at: Duration| at.as_secs() / 3_600 % 24 == number;
            let sure =
                evicted.iter().filter(|it| is_in(it.until) && is_in(it.until.saturating_sub(REPORT_EVERY)));
            let maybe =
                evicted.iter().filter(|it| is_in(it.until) || is_in(it.until.saturating_sub(REPORT_EVERY)));
            let counted = sure.count() as u64..=maybe.count() as u64;
            let otherwise = format!("evictions in hour {number}: {} are not {counted:?}", hour.evictions);
            findings.holds(counted.contains(&hour.evictions), otherwise);
        }
    }

    fn compare_together(&self, lives: &[Life], findings: &mut Findings) {
        let mut times: Vec<_> = lives.iter().filter(|it| it.evicted.is_some()).map(|it| it.until).collect();
        times.sort_unstable();
        let (mut together, mut left) = (Vec::new(), times.as_slice());
        while let Some(first) = left.first() {
            let machines = left.partition_point(|at| at.saturating_sub(*first) <= TOGETHER);
            together.extend((machines > 1).then_some(machines));
            left = left.split_at(machines).1;
        }
        findings.same(
            "evicted together",
            self.summary.evicted_together,
            together.iter().sum::<usize>() as u64,
        );
        let mut counted: Vec<_> = together.iter().map(|machines| *machines as u64).collect();
        counted.sort_unstable_by_key(|machines| std::cmp::Reverse(*machines));
        counted.truncate(10);
        let reported: Vec<_> = self.summary.together.iter().map(|moment| moment.machines).collect();
        findings.same("moments of several evictions", reported, counted);
    }

    /// The product of Kaplan and Meier at each half hour at which no machine ends within the time of a report.
    #[expect(clippy::cast_precision_loss, reason = "machines are few")]
    fn compare_survival(&self, lives: &[Life], findings: &mut Findings) {
        let spells: Vec<_> = lives
            .iter()
            .map(|it| {
                (
                    it.started.saturating_sub(it.booted),
                    it.until.saturating_sub(it.booted),
                    it.evicted.is_some(),
                )
            })
            .collect();
        let mut deaths: Vec<_> = spells.iter().filter(|it| it.2).map(|it| it.1).collect();
        deaths.sort_unstable();
        for age in (1..=20).map(|half| HOUR * half / 2) {
            if spells.iter().any(|(_, left, _)| left.abs_diff(age) <= REPORT_EVERY) {
                continue;
            }
            let mut alive = 1.0;
            for death in deaths.iter().filter(|death| **death <= age) {
                let at_risk =
                    spells.iter().filter(|(entered, left, _)| entered < death && left >= death).count();
                alive *= 1.0 - 1.0 / at_risk as f64;
            }
            let ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            let point = self.summary.survival.iter().rev().find(|point| point.age_ms <= ms);
            let reported = point.map_or(1.0, |point| point.alive);
            // Machines that end in the same seconds may be ordered otherwise.
            let otherwise =
                format!("the share alive at {age:?}: the report says {reported}, the journal {alive}");
            findings.holds((reported - alive).abs() < 0.005, otherwise);
        }
    }

    fn compare_interruptions(&self, counted: &[Interrupted], findings: &mut Findings) {
        let entries = self.entries.interruptions.iter();
        let mut reported: Vec<_> = entries
            .map(|it| (it.worker.as_str().to_owned(), it.notice().unwrap_or("died").to_owned()))
            .collect();
        let mut of_journal: Vec<_> =
            counted.iter().map(|it| (format!("p{}", it.process), it.kind.to_owned())).collect();
        reported.sort();
        of_journal.sort();
        findings.same("interruptions", reported, of_journal);
        for kind in &self.summary.interruptions {
            let of_kind: Vec<_> = counted.iter().filter(|it| it.kind == kind.kind).collect();
            let held = Range::of(of_kind.iter().copied());
            findings.holds(
                held.contains(kind.held),
                format!("held by {}: the report says {}, the journal {held}", kind.kind, kind.held),
            );
            let jobs: u32 = of_kind.iter().map(|it| u32::try_from(it.jobs.len()).unwrap_or(0)).sum();
            // What a dead worker did after its last report is not known to anybody.
            let within = if kind.kind == "died" { REPORT_EVERY * jobs } else { NETWORK * 2 * jobs };
            let unsure = || of_kind.iter().flat_map(|it| it.unsure.values());
            let (lost, kept) =
                (of_kind.iter().map(|it| it.lost).sum(), of_kind.iter().map(|it| it.kept).sum());
            let within_lost = within + unsure().map(|work| work.lost).sum::<Duration>();
            findings.near(
                format!("work lost by {}", kind.kind),
                millis(kind.work_lost_ms),
                lost,
                within_lost,
            );
            let within_kept = within + unsure().map(|work| work.kept).sum::<Duration>();
            findings.near(
                format!("work kept of {}", kind.kind),
                millis(kind.work_kept_ms),
                kept,
                within_kept,
            );
        }
    }

    fn compare_drains(&self, counted: &[Interrupted], findings: &mut Findings) {
        let mut released = Vec::new();
        for entry in &self.entries.interruptions {
            let of = counted.iter().find(|it| format!("p{}", it.process) == entry.worker.as_str());
            let Some(of) = of else { continue };
            let id = |job: &usize| self.plan.jobs[*job].id();
            let unsure: Vec<_> = of.unsure.keys().map(id).collect();
            let mut jobs: Vec<_> = of.jobs.iter().map(id).collect();
            let mut reported: Vec<_> = entry.jobs.iter().map(|job| job.as_str().to_owned()).collect();
            for of_either in [&mut jobs, &mut reported] {
                of_either.retain(|job| !unsure.contains(job));
                of_either.sort();
            }
            findings.same(format!("jobs of p{}", of.process), reported, jobs);
            let How::Drained(report) = &entry.how else { continue };
            let reported = (report.released_saved, report.released_cut, report.finished);
            let counted = (of.saved, of.cut, of.finished);
            findings.same(format!("p{} saved, cut and finished", of.process), reported, counted);
            let others = report.released_unstarted
                + report.released_unconfirmed
                + report.leases_lost
                + report.abandoned;
            findings.same(format!("p{} left otherwise", of.process), others, 0);
            if let Some(last) = of.released.filter(|_| report.held > 0 && of.kind == "Preempt") {
                let took = last.saturating_sub(of.at);
                findings.near(
                    format!("p{} released after", of.process),
                    millis(report.released_after_ms),
                    took,
                    NETWORK,
                );
                released.push(report.released_after_ms);
            }
        }
        findings.same(
            "times from a notice to the last release",
            self.summary.released_ms,
            Spread::of(released),
        );
    }

    fn compare_jobs(&self, tally: &Tally, findings: &mut Findings) {
        let mut interruptions: BTreeMap<usize, Range> = BTreeMap::new();
        for it in &tally.interruptions {
            for job in it.possible_jobs() {
                interruptions.entry(job).or_default().add(it, job);
            }
        }
        let failures_of = |job: usize| tally.failures_of.get(&job).copied().unwrap_or_default();
        // Where the list is short, it has all.
        let mut fewest = if self.summary.jobs.len() < LISTED_MAX { 0 } else { u64::MAX };
        let mut among = BTreeSet::new();
        for hit in &self.summary.jobs {
            let march = self.plan.jobs.iter().find(|march| march.id() == hit.job.as_str());
            let of_job =
                march.and_then(|march| interruptions.get(&march.number)).copied().unwrap_or_default();
            let failures = march.map(|march| failures_of(march.number)).unwrap_or_default();
            among.extend(march.map(|march| march.number));
            findings.holds(
                of_job.contains(hit.interruptions) && hit.failures == failures,
                format!("{} was hit {of_job} times and failed {failures} times: {hit:?}", hit.job),
            );
            fewest = fewest.min(hit.interruptions + hit.failures);
        }
        findings.same("listed jobs, each once", self.summary.jobs.len(), among.len());
        for march in self.plan.jobs.iter().filter(|march| !among.contains(&march.number)) {
            let least = interruptions.get(&march.number).map_or(0, |it| it.least) + failures_of(march.number);
            let otherwise = format!("{} was hit {least} times, and is not among those hit most", march.id());
            findings.holds(least <= fewest, otherwise);
        }
    }

    fn compare_failures(&self, tally: &Tally, findings: &mut Findings) {
        let reported: BTreeMap<_, _> = self
            .summary
            .failures
            .iter()
            .map(|it| ((it.kind.as_str(), it.reason.as_str()), (it.count, it.poisoned)))
            .collect();
        let counted = tally.failures.iter().map(|(of, it)| (*of, (it.count, it.poisoned))).collect();
        findings.same("failures by reason", reported, counted);
    }

    /// Returns the promises that the fleet broke: none.
    #[must_use]
    pub fn broken(&self) -> Vec<String> {
        let mut findings = Findings::default();
        self.check_jobs(&mut findings);
        self.check_repairs(&mut findings);
        self.check_deaf_and_silent(&mut findings);
        self.check_pressure(&mut findings);
        findings.0
    }

    /// Nothing is lost: each job has its result, or its letter.
    fn check_jobs(&self, findings: &mut Findings) {
        for march in &self.plan.jobs {
            let result = self.results.get(&march.number).map(|it| String::from_utf8_lossy(it).into_owned());
            let expected = (!matches!(march.habit, Habit::Panics(_))).then(|| march.result().to_string());
            let fits = match (&result, &expected) {
                (Some(result), Some(expected)) => result.contains(expected.as_str()),
                (result, expected) => result == expected,
            };
            findings.holds(fits, format!("the result of {} is {result:?}, and not {expected:?}", march.id()));
        }
        let poisoned = self.plan.jobs.iter().filter(|march| matches!(march.habit, Habit::Panics(_))).count();
        findings.holds(self.letters.len() == poisoned, format!("{} dead letters", self.letters.len()));
    }

    /// A machine is repaired if its disk is faulty, once, and not while the store is away.
    fn check_repairs(&self, findings: &mut Findings) {
        let of = |which: fn(&Happened) -> Option<usize>| -> Vec<_> {
            self.journal.iter().filter_map(|it| Some((it.at, which(&it.what)?))).collect()
        };
        let faulty = of(|it| if let Happened::Faulty { machine } = it { Some(*machine) } else { None });
        let unhealthy = of(|it| if let Happened::Unhealthy { machine } = it { Some(*machine) } else { None });
        let repaired = of(|it| if let Happened::Repaired { machine } = it { Some(*machine) } else { None });
        let machines = |of: &[(Duration, usize)]| of.iter().map(|it| it.1).collect::<Vec<_>>();
        findings.holds(faulty.len() == 1, format!("{} machines were to be faulty", faulty.len()));
        findings.holds(
            machines(&unhealthy) == machines(&faulty) && machines(&repaired) == machines(&faulty),
            format!("faulty {faulty:?}, reported {unhealthy:?}, repaired {repaired:?}"),
        );
        let (from, to) = self.plan.outage();
        let is_within = unhealthy.iter().any(|(at, _)| (from..to).contains(at));
        findings.holds(!is_within, "a machine was reported while the store was away");
        for ((fault, _), (seen, _)) in faulty.iter().zip(&unhealthy) {
            // After an outage the others have a minute to report.
            let (began, within) = if (from..to).contains(fault) { (to, 150) } else { (*fault, 75) };
            findings.holds(
                seen.saturating_sub(began) <= Duration::from_secs(within),
                format!("a fault at {began:?} was reported at {seen:?}"),
            );
        }
    }

    /// A worker whose metadata service does not answer receives nothing, and one that reports nothing is shown.
    fn check_deaf_and_silent(&self, findings: &mut Findings) {
        let started = |process: u32| {
            let it = self
                .journal
                .iter()
                .find(|it| matches!(it.what, Happened::Started { process: of, .. } if of == process));
            it.map_or(Duration::ZERO, |it| it.at)
        };
        let mut heard = 0;
        for noted in &self.journal {
            let Happened::Heard { process } = noted.what else { continue };
            heard += 1;
            let received = self.received(process, started(process), noted.at);
            findings.holds(
                received == 0,
                format!("p{process} received {received} messages before its metadata service answered"),
            );
        }
        findings.holds(heard == 1, format!("{heard} workers waited for the metadata service"));
        let silent = self.journal.iter().filter(|it| matches!(it.what, Happened::ShownSilent { .. })).count();
        findings.holds(silent == 1, format!("{silent} workers were shown as silent"));
    }

    /// A worker under pressure is shown, saves what it runs, and takes nothing new.
    fn check_pressure(&self, findings: &mut Findings) {
        let mut short = 0;
        for noted in &self.journal {
            let Happened::Short { machine, of: Some(cause) } = &noted.what else { continue };
            short += 1;
            let on_it = |it: &Happened| match it {
                Happened::Started { machine: of, process } if of == machine => Some(*process),
                _ => None,
            };
            let process = self
                .journal
                .iter()
                .take_while(|it| it.at <= noted.at)
                .filter_map(|it| on_it(&it.what))
                .last();
            let Some(process) = process else { continue };
            let is_shown = self.journal.iter().any(|it| {
                matches!(&it.what, Happened::ShownPressed { process: of, by } if *of == process && by == cause)
            });
            findings.holds(is_shown, format!("p{process} was not shown as short of {cause}"));
            let from = noted.at + Duration::from_secs(3);
            let received = self.received(process, from, noted.at + Duration::from_mins(10));
            findings.holds(
                received == 0,
                format!("p{process} received {received} messages while short of {cause}"),
            );
            let running = held(&self.calls, process, noted.at).len();
            let saved = self.saved(process, noted.at, noted.at + Duration::from_secs(90));
            findings.holds(
                saved >= running,
                format!("p{process} saved {saved} of {running} jobs when short of {cause}"),
            );
        }
        findings.holds(short == 2, format!("{short} machines were short of something"));
    }

    fn received(&self, process: u32, from: Duration, to: Duration) -> usize {
        let calls = self.calls.iter().filter(|it| it.process == Some(process) && (from..to).contains(&it.at));
        calls.filter(|it| matches!(it.what, What::Received { .. })).count()
    }

    fn saved(&self, process: u32, from: Duration, to: Duration) -> usize {
        let calls = self.calls.iter().filter(|it| it.process == Some(process) && (from..to).contains(&it.at));
        let saved = calls.filter_map(|it| match &it.what {
            What::Written { job, saved: true, .. } => Some(*job),
            _ => None,
        });
        saved.collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::ledger::{Death, Entries, Interruption, Machine, Summary};
    use reprieve_core::{JobId, MessageId, WorkerId};

    use super::super::journal::Noted;
    use super::super::plan::Plan;
    use super::super::trace::Trace;
    use super::*;
    use crate::fleet::Event;

    const KILLED_AT: Duration = Duration::from_secs(100);

    /// What a process did that was killed, and the death that the ledger has, with these jobs.
    fn killed(calls: impl IntoIterator<Item = (u64, What)>, reported: &[usize]) -> Replay {
        let plan = Plan::of(Trace::P3);
        let sent = [0, 1].map(|job| {
            let what = What::Sent { job, message: message(job), generation: 0 };
            Event { at: Duration::ZERO, process: None, what }
        });
        let calls = calls.into_iter().map(|(at, what)| Event { at: millis(at), process: Some(1), what });
        let calls = sent.into_iter().chain(calls).collect();
        let journal = [
            (Duration::ZERO, Happened::Started { machine: 0, process: 1 }),
            (KILLED_AT, Happened::Killed { process: 1 }),
        ];
        let death = Interruption {
            worker: WorkerId::new("p1"),
            boot: "boot-0".to_owned(),
            machine: Machine::default(),
            queue: String::new(),
            at_unix_ms: 100_000,
            jobs: reported.iter().map(|job| JobId::parse(plan.jobs[*job].id()).expect("an id")).collect(),
            how: How::Died(Death { held: reported.len() as u64, ..Death::default() }),
        };
        let entries = Entries { interruptions: vec![death], ..Entries::default() };
        let summary = Summary::of(&entries, &[], 0, 200_000);
        Replay {
            plan,
            journal: journal.map(|(at, what)| Noted { at, what }).into(),
            calls,
            entries,
            reports: Vec::new(),
            summary,
            results: BTreeMap::new(),
            letters: Vec::new(),
            lasted: KILLED_AT * 2,
        }
    }

    fn message(job: usize) -> MessageId {
        MessageId::new(format!("m{job}"))
    }

    fn received(job: usize) -> What {
        What::Received { message: message(job), count: 1, lease: Duration::from_secs(200) }
    }

    fn differences(replay: &Replay) -> Vec<String> {
        let (tally, mut findings) = (Tally::of(replay), Findings::default());
        replay.compare_interruptions(&tally.interruptions, &mut findings);
        replay.compare_drains(&tally.interruptions, &mut findings);
        replay.compare_jobs(&tally, &mut findings);
        findings.0
    }

    /// The beginnings of the differences.
    fn found(replay: &Replay) -> Vec<String> {
        let of = |it: &String| it.split([':', ',']).next().unwrap_or_default().to_owned();
        differences(replay).iter().map(of).collect()
    }

    #[test]
    fn a_last_report_may_lack_only_what_came_since_it_may_have_been_written() {
        let differing = ["held by died", "jobs of p1", "march-1 was hit 1 times"].map(str::to_owned);
        for (at, differing) in [(99_400, &[][..]), (94_000, &[]), (93_000, &differing)] {
            let calls = || [(1_000, received(0)), (at, received(1))];
            assert_eq!(found(&killed(calls(), &[0])), differing, "received at {at}");
            assert!(found(&killed(calls(), &[0, 1])).is_empty(), "received at {at}, and told");
        }
    }

    #[test]
    fn a_last_report_may_tell_only_of_what_ended_since_it_may_have_been_written() {
        let hit = "march-1 was hit 0 to 0 times and failed 0 times";
        let differing = ["held by died", "jobs of p1", hit].map(str::to_owned);
        for (at, differing) in [(99_400, &[][..]), (94_000, &[]), (93_000, &differing)] {
            let completed = What::Completed { message: message(1) };
            let calls = [(1_000, received(0)), (1_000, received(1)), (at, completed)];
            assert_eq!(found(&killed(calls, &[0, 1])), differing, "ended at {at}");
        }
    }

    #[test]
    fn what_a_report_tells_twice_or_of_another_worker_is_found() {
        let calls = || [(1_000, received(0)), (1_000, received(1))];
        assert!(found(&killed(calls(), &[0, 1])).is_empty());
        let twice = found(&killed(calls(), &[0, 0, 1]));
        assert_eq!(twice, ["held by died", "jobs of p1", "march-0 was hit 1 to 1 times and failed 0 times"]);
        let mut of_another = killed(calls(), &[0, 1]);
        of_another.entries.interruptions[0].worker = WorkerId::new("p2");
        assert_eq!(found(&of_another), ["interruptions"]);
    }
}
