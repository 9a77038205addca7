//! Finds which workers have died, and writes their deaths into the ledger. The [`bookkeeper`](super::bookkeeper) has it
//! done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::books::{Books, TRY};
use super::reporter::{Monitor, report_every};
use super::shared::Shared;
use crate::clock::unix_millis;
use crate::error::{Error, Result};
use crate::ids::WorkerId;
use crate::ledger::{Death, Entry, How, Interruption, Ledger, Machine};
use crate::ports::{InFlight, Roster, WorkerReport};
use crate::retry::unanswered;

/// How long ago a worker may have died whose last report is read. Rosters keep a report for a day.
const REPORTS_MAX_AGE: Duration = Duration::from_hours(24);

/// A worker may have died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// When it last wrote a record, by its own clock.
    pub(super) wrote_unix_ms: Option<i64>,
    /// When to look. A worker that lives has published a report again by then.
    pub(super) look_at: Instant,
    /// How many looks may fail though the store answers.
    pub(super) looks_left: u32,
}

impl Suspicion {
    /// Returns it for another look after one that failed, if there is to be one: always while the store does not answer.
    pub(super) fn again(self, error: &Error, look_at: Instant, books: &Books) -> Option<Self> {
        let looks_left =
            if error.is_temporary() { self.looks_left } else { self.looks_left.saturating_sub(1) };
        if looks_left == 0 {
            tracing::warn!(%error, "failed to write down the death of a worker; reports may lack it");
            books.count("error");
            return None;
        }
        Some(Self { look_at, looks_left, ..self })
    }
}

/// For how long a worker publishes nothing that has died: it missed several reports.
pub(super) fn silence(roster: &dyn Roster) -> Duration {
    report_every(roster) * 3
}

/// For how much longer the store must take each report of this worker until silence means death: after an outage those that
/// live need time to report again.
pub(super) fn unsure_for(roster: &dyn Roster, monitor: &Monitor) -> Duration {
    silence(roster).saturating_sub(monitor.store_answers_for().unwrap_or_default())
}

/// A look at the roster, to find which workers have died.
pub(super) struct Inquest<'a> {
    pub(super) shared: &'a Shared,
    pub(super) ledger: &'a Ledger,
    pub(super) queue: &'a str,
    pub(super) monitor: &'a Monitor,
}

impl Inquest<'_> {
    /// Writes down the deaths among the suspects. What fails is done again with the whole look, and each death is
    /// written once.
    pub(super) async fn hold(&self, suspects: &BTreeMap<Option<WorkerId>, Suspicion>) -> Result<()> {
        let roster = &*self.shared.store.roster;
        let alive = roster.members(silence(roster)).await?;
        let is_alive = |worker: &WorkerId| {
            *worker == self.shared.worker || alive.iter().any(|member| member.worker == *worker)
        };
        let mut reports = roster.reports(REPORTS_MAX_AGE).await?;
        reports.extend(roster.departed(REPORTS_MAX_AGE).await?);
        // These answers may have come late, after an outage that began meanwhile.
        if !unsure_for(roster, self.monitor).is_zero() {
            return Err(unanswered("look which workers died"));
        }
        let mut found = Vec::new();
        for (worker, Suspicion { wrote_unix_ms, .. }) in suspects {
            let dead: Vec<_> = match worker {
                // A record names the last worker of a crash loop only.
                Some(worker) => std::iter::once(worker).chain(loop_of(worker, &reports)).collect(),
                // No record names it: every silent worker of this queue that held something.
                None => reports
                    .iter()
                    .filter(|report| !report.in_flight.is_empty() && report.queue == self.queue)
                    .map(|report| &report.worker)
                    .collect(),
            };
            for worker in dead.into_iter().filter(|worker| !is_alive(worker)) {
                let wrote = wrote_unix_ms.filter(|_| suspects.contains_key(&Some(worker.clone())));
                if let Some(death) = self.find(worker, wrote, &reports).await? {
                    self.shared.books.death_found(worker);
                    found.push(death);
                }
            }
        }
        self.shared.books.looked_at(suspects.keys());
        let mut outcome = Ok(());
        for (death, number) in found {
            let (worker, entry) = (death.worker.clone(), Entry::Interruption(Box::new(death)));
            let wrote = self.shared.books.write_death(self.ledger, &worker, entry, number, TRY).await;
            outcome = outcome.and(wrote);
        }
        outcome
    }

    /// Returns the entry of a death, and its number, unless it is written, or the worker had drained.
    async fn find(
        &self,
        worker: &WorkerId,
        wrote: Option<i64>,
        reports: &[WorkerReport],
    ) -> Result<Option<(Interruption, u64)>> {
        let report = reports.iter().find(|report| report.worker == *worker);
        let ends = self.ledger.interruptions_of(worker).await?;
        if has_died(&ends, wrote, report) || has_drained(&ends, wrote, report) {
            self.shared.books.death_written(worker);
            return Ok(None);
        }
        let death = self.entry(worker, wrote, report, reports);
        tracing::info!(%worker, vm = death.machine.vm, held = death.held(), "found that a worker has died");
        // All finders see the same last report.
        let number = report.map_or(0, |report| u64::try_from(report.at_unix_ms).unwrap_or(0));
        Ok(Some((death, number)))
    }

    /// The entry of a death.
    fn entry(
        &self,
        worker: &WorkerId,
        wrote: Option<i64>,
        report: Option<&WorkerReport>,
        reports: &[WorkerReport],
    ) -> Interruption {
        let found_unix_ms = unix_millis();
        let at_unix_ms = report.map(|report| report.at_unix_ms).max(wrote).unwrap_or(found_unix_ms);
        let boot = report.map(|report| report.boot.clone()).unwrap_or_default();
        let later = i64::try_from(silence(&*self.shared.store.roster).as_millis()).unwrap_or(i64::MAX);
        let is_here = !boot.is_empty() && boot == self.shared.boot;
        let machine_lives = is_here
            || reports.iter().any(|other| {
                !boot.is_empty() && other.boot == boot && other.at_unix_ms > at_unix_ms.saturating_add(later)
            });
        let in_flight = report.map_or(&[][..], |report| &report.in_flight);
        let work = in_flight.iter().map(|job| work_of(job, at_unix_ms));
        let (work_lost_ms, work_kept_ms) =
            work.fold((0_u64, 0_u64), |sum, job| (sum.0.saturating_add(job.0), sum.1.saturating_add(job.1)));
        let held = in_flight.len() as u64;
        let vm = report.map(|report| report.vm.clone()).unwrap_or_default();
        Interruption {
            worker: worker.clone(),
            boot: if boot.is_empty() { worker.to_string() } else { boot },
            machine: Machine { vm, ..Machine::default() },
            queue: report.map(|report| report.queue.clone()).unwrap_or_default(),
            at_unix_ms,
            jobs: in_flight.iter().map(|job| job.job.clone()).collect(),
            how: How::Died(Death { found_unix_ms, machine_lives, held, work_lost_ms, work_kept_ms }),
        }
    }
}

/// The work of a job that was lost, and that was kept, if its worker died at `at_unix_ms`; in milliseconds.
fn work_of(job: &InFlight, at_unix_ms: i64) -> (u64, u64) {
    let ran = job.began_unix_ms.map_or(0, |began| at_unix_ms.saturating_sub(began));
    (u64::try_from(ran).unwrap_or(0).saturating_sub(job.kept_ms), job.kept_ms)
}

/// The other workers that held something on the machine of this one, or held a job that it held: in a crash loop, one
/// dies after the other before it can enter the death of the one before.
fn loop_of<'a>(worker: &WorkerId, reports: &'a [WorkerReport]) -> Vec<&'a WorkerId> {
    let Some(dead) = reports.iter().find(|report| report.worker == *worker) else { return Vec::new() };
    let jobs: BTreeSet<_> = dead.in_flight.iter().map(|held| &held.job).collect();
    let is_of_loop = |other: &&WorkerReport| {
        let is_there = !other.boot.is_empty() && other.boot == dead.boot && !other.in_flight.is_empty();
        other.worker != *worker && (is_there || other.in_flight.iter().any(|held| jobs.contains(&held.job)))
    };
    reports.iter().filter(is_of_loop).map(|other| &other.worker).collect()
}

/// Whether this death is entered already: the worker has shown no later sign of life than an entry knew. One that was
/// frozen may have been taken for dead before.
fn has_died(ends: &[Interruption], wrote: Option<i64>, report: Option<&WorkerReport>) -> bool {
    let seen = report.map(|report| report.at_unix_ms).max(wrote);
    let knew = ends.iter().filter(|end| matches!(end.how, How::Died(_))).map(|end| end.at_unix_ms).max();
    knew.is_some_and(|knew| seen.is_none_or(|seen| seen <= knew))
}

/// Whether the worker's last sign of life is of before the end of a drain of its own: what it held was abandoned
/// then, and the drain's entry says so. All of these times are by that worker's clock.
fn has_drained(ends: &[Interruption], wrote: Option<i64>, report: Option<&WorkerReport>) -> bool {
    let ended = ends.iter().filter_map(|end| match &end.how {
        How::Drained(report) => {
            let took = report.patient_ms.saturating_add(report.quiesced_after_ms);
            Some(end.at_unix_ms.saturating_add(i64::try_from(took).unwrap_or(i64::MAX)))
        }
        How::Died(_) => None,
    });
    let worked = report.filter(|report| report.stage == "start").map(|report| report.at_unix_ms).max(wrote);
    ended.max().is_some_and(|ended| worked.is_none_or(|worked| worked <= ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::DrainReport;

    fn drained(at_unix_ms: i64, took_ms: u64) -> Interruption {
        let report = DrainReport { quiesced_after_ms: took_ms, ..DrainReport::default() };
        let (worker, boot) = (WorkerId::new("w"), String::new());
        let (machine, queue) = (Machine::default(), String::new());
        Interruption { worker, boot, machine, queue, at_unix_ms, jobs: Vec::new(), how: How::Drained(report) }
    }

    fn seen(stage: &str, at_unix_ms: i64) -> WorkerReport {
        WorkerReport { stage: stage.to_owned(), at_unix_ms, ..WorkerReport::new(WorkerId::new("w")) }
    }

    #[test]
    fn a_death_after_a_drain_is_one_only_if_the_worker_had_gone_back_to_work() {
        let ends = [drained(1_000, 100), drained(5_000, 300)];
        for (stage, at, wrote, has) in [
            ("shutdown", 9_000, None, true),
            ("start", 5_200, None, true),
            ("start", 5_301, None, false),
            ("shutdown", 9_000, Some(5_250), true),
            ("shutdown", 9_000, Some(5_400), false),
        ] {
            assert_eq!(has_drained(&ends, wrote, Some(&seen(stage, at))), has, "{stage} {at} {wrote:?}");
        }
        assert!(has_drained(&ends, None, None) && !has_drained(&[], None, None));
    }

    #[test]
    fn a_worker_that_lived_after_it_was_taken_for_dead_dies_again() {
        let died = Interruption { how: How::Died(Death::default()), ..drained(1_000, 0) };
        for (at, wrote, has) in [(1_000, None, true), (1_001, None, false), (900, Some(1_001), false)] {
            assert_eq!(
                has_died(std::slice::from_ref(&died), wrote, Some(&seen("start", at))),
                has,
                "{at} {wrote:?}"
            );
        }
        assert!(has_died(&[died], None, None) && !has_died(&[drained(1_000, 0)], None, None));
    }

    #[test]
    fn a_crash_loop_is_of_one_machine_or_of_one_job() {
        let poison = InFlight::for_tests();
        let of = |worker: &str, boot: &str, in_flight: Vec<InFlight>| WorkerReport {
            boot: boot.to_owned(),
            in_flight,
            ..WorkerReport::new(WorkerId::new(worker))
        };
        let reports = [
            of("last", "a", vec![poison.clone()]),
            of("before", "a", vec![InFlight::for_tests()]),
            of("idle", "a", vec![]),
            of("first", "b", vec![poison]),
            of("another", "b", vec![InFlight::for_tests()]),
        ];
        let found: Vec<_> =
            loop_of(&WorkerId::new("last"), &reports).into_iter().map(WorkerId::as_str).collect();
        assert_eq!(found, ["before", "first"]);
        assert!(loop_of(&WorkerId::new("gone"), &reports).is_empty());
    }

    #[test]
    fn work_is_lost_from_the_last_save_to_the_last_sign_of_life() {
        let job = |began_unix_ms, kept_ms| InFlight { began_unix_ms, kept_ms, ..InFlight::for_tests() };
        assert_eq!(work_of(&job(Some(1_000), 600), 2_000), (400, 600));
        assert_eq!(work_of(&job(Some(1_000), 0), 2_000), (1_000, 0));
        assert_eq!(work_of(&job(None, 0), 2_000), (0, 0), "it had no slot");
        assert_eq!(work_of(&job(Some(3_000), 600), 2_000), (0, 600), "it began after the report");
    }
}
