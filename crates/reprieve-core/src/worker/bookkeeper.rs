//! Writes the worker's entries of the ledger in the background: that its machine booted, the deliveries that failed,
//! and the deaths of other workers that it finds. A drain's own entry is the [`reporter`](super::reporter)'s.
//!
//! Nothing waits for it. What can't be written while the store is away is tried again until the worker ends; then it
//! is logged, counted and lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::books::{Describing, Note, Notes};
use super::reporter::{Monitor, report_every};
use super::shared::Shared;
use crate::clock::unix_millis;
use crate::error::{Error, Result};
use crate::ids::WorkerId;
use crate::ledger::{Boot, Death, Entry, How, Interruption, Ledger, Machine, NamedEntry};
use crate::ports::{InFlight, Roster, WorkerReport};
use crate::process::in_process;
use crate::record::Vanished;
use crate::retry::unanswered;

/// The longest time for one entry.
const TRY: Duration = Duration::from_secs(10);

/// The longest time for a look at the roster after a death.
const LOOK: Duration = Duration::from_secs(30);

/// How many entries are written at a time, so that they leave the store to the jobs.
const AT_ONCE: usize = 16;

/// After how long entries that could not be written are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// How many of them are kept: far more than there are of one worker in an outage, in which no delivery fails.
const UNWRITTEN_MAX: usize = 256;

/// How many deaths may wait for a look. Any job of a worker that died leads to it again.
const DEATHS_MAX: usize = 256;

/// How many looks a death is given if the store fails.
const LOOKS_MAX: u32 = 5;

/// How long ago a worker may have died whose last report is read. Rosters keep a report for a day.
const REPORTS_MAX_AGE: Duration = Duration::from_hours(24);

/// How often it is written that the machine lives: often enough to know of a machine that vanishes without a trace, once
/// its last report has gone, to an hour for how long it was seen.
const RENEW_EVERY: Duration = Duration::from_hours(1);

/// The first such time after the start. Each next one is as long after as the worker has run, so that of a short life
/// half is known at least.
const RENEW_FIRST: Duration = Duration::from_mins(1);

/// Writes the entries.
pub(super) struct Bookkeeper {
    shared: Arc<Shared>,
    ledger: Ledger,
    /// The worker's queue, as its reports name it.
    queue: String,
    notes: Notes,
    /// Until it is known what the machine is.
    describing: Option<Describing>,
    monitor: Monitor,
    renewal: Renewal,
    work: JoinSet<Done>,
    /// Entries that could not be written, and when they are tried again.
    unwritten: VecDeque<NamedEntry>,
    again_at: Instant,
    /// The workers of which a delivery vanished; `None` for those that no record names.
    suspects: BTreeMap<Option<WorkerId>, Suspicion>,
}

/// When it is to be written next that the machine lives.
struct Renewal {
    at: Instant,
    every: Duration,
    /// When the worker started.
    since_unix_ms: i64,
    /// When it last went back to work after a drain. Written each time, for the case that a write failed.
    worked_on_unix_ms: Option<i64>,
}

/// What has come of the work in the background.
#[derive(Debug)]
enum Done {
    /// An entry was written, or never can be.
    Written,
    /// The store did not take an entry.
    Unwritten(NamedEntry),
    /// Those of whom it is not known yet whether they have died.
    Looked(Vec<(Option<WorkerId>, Suspicion)>),
}

/// A worker may have died.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspicion {
    wrote_unix_ms: Option<i64>,
    /// When to look. A worker that lives has published a report again by then.
    look_at: Instant,
    looks_left: u32,
}

impl Bookkeeper {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: &str,
        notes: Notes,
        machine: Describing,
        monitor: Monitor,
    ) -> Self {
        let ledger = Ledger::new(Arc::clone(&shared.store.records));
        let renewal = Renewal {
            at: Instant::now() + RENEW_FIRST,
            every: RENEW_FIRST,
            since_unix_ms: unix_millis(),
            worked_on_unix_ms: None,
        };
        Self {
            shared,
            ledger,
            queue: queue.to_owned(),
            notes,
            describing: Some(machine),
            monitor,
            renewal,
            work: JoinSet::new(),
            unwritten: VecDeque::new(),
            again_at: Instant::now(),
            suspects: BTreeMap::new(),
        }
    }

    /// Writes until the worker ends.
    pub(super) async fn run(mut self) {
        loop {
            let look_at = self.suspects.values().map(|suspicion| suspicion.look_at).min();
            let far = Instant::now() + Duration::from_hours(1);
            tokio::select! {
                biased;
                Some(done) = self.work.join_next() => self.note(done.unwrap_or(Done::Written)),
                machine = described(self.describing.as_mut()) => {
                    self.describing = None;
                    self.booted(machine);
                }
                () = sleep_until(self.renewal.at), if self.describing.is_none() => {
                    self.renew();
                    self.renewal.next();
                }
                () = sleep_until(look_at.unwrap_or(far)), if look_at.is_some() => self.look(),
                () = sleep_until(self.again_at), if self.may_try_again() => self.try_again(),
                note = self.notes.next(), if self.work.len() < AT_ONCE => match note {
                    Some(Note::Entry(entry)) => self.write(*entry),
                    Some(Note::Vanished(vanished)) => self.suspect(vanished),
                    Some(Note::WorkedOn(at_unix_ms)) => {
                        self.renewal.worked_on_unix_ms = Some(at_unix_ms);
                        self.renew();
                    }
                    Some(Note::Look) => self.look_early(),
                    Some(Note::Flush(done)) => {
                        self.look_early();
                        self.finish().await;
                        // Whoever asked may have given up.
                        let _sent = done.send(());
                    }
                    None => return,
                },
            }
        }
    }

    fn booted(&mut self, machine: Machine) {
        self.shared.books.describe(machine);
        self.write(Entry::Boot(self.boot()));
    }

    /// This machine's boot, as far as this worker saw it.
    fn boot(&self) -> Boot {
        Boot {
            boot: self.shared.life().to_owned(),
            worker: self.shared.worker.clone(),
            at_unix_ms: self.renewal.since_unix_ms,
            machine: self.shared.books.machine(),
            seen_unix_ms: None,
            worked_on_unix_ms: self.renewal.worked_on_unix_ms,
        }
    }

    /// Writes that the machine lives, and when the worker went back to work.
    fn renew(&mut self) {
        let boot = Boot { seen_unix_ms: Some(unix_millis()), ..self.boot() };
        let (shared, ledger, every) = (Arc::clone(&self.shared), self.ledger.clone(), self.renewal.every / 2);
        self.work.spawn(in_process(async move {
            shared.books.renew(&ledger, boot, every, TRY).await;
            Done::Written
        }));
    }

    fn write(&mut self, entry: Entry) {
        let is_boot = matches!(entry, Entry::Boot(_));
        match NamedEntry::new(entry, 0) {
            Ok(entry) => self.try_to_write(entry),
            Err(error) => lose(&self.shared, is_boot, &error),
        }
    }

    fn try_to_write(&mut self, entry: NamedEntry) {
        let (shared, ledger) = (Arc::clone(&self.shared), self.ledger.clone());
        self.work.spawn(in_process(async move {
            let began = Instant::now();
            match timeout(TRY, ledger.put(&entry, None)).await {
                Ok(Ok(_)) => {
                    shared.books.took(began.elapsed());
                    shared.books.count("ok");
                }
                Ok(Err(error)) if !error.is_temporary() => {
                    lose(&shared, entry.is_boot(), &error);
                    return Done::Written;
                }
                Ok(Err(_)) | Err(_) => return Done::Unwritten(entry),
            }
            if entry.is_boot() {
                shared.books.boot_written();
            } else {
                shared.books.ended();
            }
            Done::Written
        }));
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Written => {}
            Done::Unwritten(entry) if self.unwritten.len() >= UNWRITTEN_MAX => {
                give_up(&self.shared, entry.is_boot(), "dropped");
            }
            Done::Unwritten(entry) => {
                if self.unwritten.is_empty() {
                    tracing::info!(again_after = ?AGAIN, "failed to write an entry of the ledger; trying again");
                }
                self.unwritten.push_back(entry);
                self.again_at = Instant::now() + AGAIN;
            }
            Done::Looked(left) => self.suspects.extend(left),
        }
    }

    fn may_try_again(&self) -> bool {
        !self.unwritten.is_empty() && self.work.len() < AT_ONCE
    }

    /// Tries the oldest of the entries that could not be written.
    fn try_again(&mut self) {
        if let Some(entry) = self.unwritten.pop_front() {
            self.try_to_write(entry);
        }
    }

    /// Waits for the work in the background, and tries once more what could not be written: the worker ends.
    async fn finish(&mut self) {
        let mut last = std::mem::take(&mut self.unwritten);
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Unwritten(entry)) = done {
                last.push_back(entry);
            }
        }
        for entry in last {
            self.try_to_write(entry);
        }
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Unwritten(entry)) = done {
                tracing::warn!(
                    "failed to write an entry of the ledger before the worker's end; reports will lack it"
                );
                give_up(&self.shared, entry.is_boot(), "error");
            }
        }
    }

    fn suspect(&mut self, Vanished { worker, wrote_unix_ms }: Vanished) {
        if self.suspects.len() >= DEATHS_MAX && !self.suspects.contains_key(&worker) {
            return self.shared.books.count("dropped");
        }
        let look_at = Instant::now() + silence(&*self.shared.store.roster);
        let new = Suspicion { wrote_unix_ms, look_at, looks_left: LOOKS_MAX };
        let known = self.suspects.entry(worker).or_insert(new);
        known.wrote_unix_ms = known.wrote_unix_ms.max(wrote_unix_ms);
    }

    /// Looks who of the suspects has died.
    fn look(&mut self) {
        let now = Instant::now();
        let is_due = |_: &Option<WorkerId>, suspicion: &mut Suspicion| suspicion.look_at <= now;
        let due: BTreeMap<_, _> = self.suspects.extract_if(.., is_due).collect();
        let look = self.hold(due.clone());
        self.work.spawn(in_process(async move {
            if look.await {
                return Done::Looked(Vec::new());
            }
            let again = now + LOOK * 2;
            let left = due.into_iter().filter(|(_, suspicion)| suspicion.looks_left > 1);
            let again = |(worker, it): (_, Suspicion)| {
                (worker, Suspicion { look_at: again, looks_left: it.looks_left - 1, ..it })
            };
            Done::Looked(left.map(again).collect())
        }));
    }

    /// Looks at all of them before their time: who is silent by now has died, and of the others this worker may never
    /// know if its own machine goes. Not just after an outage of the store: those that live had no time to report.
    fn look_early(&mut self) {
        let answers_for = self.monitor.store_answers_for().unwrap_or_default();
        if self.suspects.is_empty() || answers_for < silence(&*self.shared.store.roster) {
            return;
        }
        let suspects = std::mem::take(&mut self.suspects);
        let look = self.hold(suspects.clone());
        self.work.spawn(in_process(async move {
            let _looked = look.await;
            // Those that seemed to live are looked at again when that is sure.
            Done::Looked(suspects.into_iter().collect())
        }));
    }

    /// Looks at the roster after these deaths. Returns whether it could.
    fn hold(
        &self,
        suspects: BTreeMap<Option<WorkerId>, Suspicion>,
    ) -> impl Future<Output = bool> + Send + 'static {
        let (shared, ledger, queue) = (Arc::clone(&self.shared), self.ledger.clone(), self.queue.clone());
        async move {
            let inquest = Inquest { shared: &shared, ledger: &ledger, queue: &queue };
            let held = timeout(LOOK, inquest.hold(&suspects)).await;
            match &held {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "failed to look which workers died; looking again"),
                Err(_) => tracing::debug!("timed out looking which workers died; looking again"),
            }
            matches!(held, Ok(Ok(())))
        }
    }
}

/// Logs and counts an entry that can't be written.
fn lose(shared: &Shared, is_boot: bool, error: &Error) {
    tracing::warn!(%error, "failed to write an entry of the ledger; reports will lack it");
    give_up(shared, is_boot, "error");
}

/// Counts an entry that is given up. That of the boot is not among those that are open: a renewal may write it.
fn give_up(shared: &Shared, is_boot: bool, result: &'static str) {
    if is_boot {
        return shared.books.count(result);
    }
    shared.books.ended();
    if result == "dropped" { shared.books.drop_one() } else { shared.books.give_up(result) }
}

impl Renewal {
    fn next(&mut self) {
        self.at = Instant::now() + self.every;
        self.every = (self.every * 2).min(RENEW_EVERY);
    }
}

async fn described(describing: Option<&mut Describing>) -> Machine {
    match describing {
        Some(describing) => describing.done().await,
        None => std::future::pending().await,
    }
}

/// For how long a worker publishes nothing that has died: it missed several reports.
fn silence(roster: &dyn Roster) -> Duration {
    report_every(roster) * 3
}

/// A look at the roster, to find which workers have died.
struct Inquest<'a> {
    shared: &'a Shared,
    ledger: &'a Ledger,
    queue: &'a str,
}

impl Inquest<'_> {
    /// Writes down the deaths among the suspects. What fails is done again with the whole look, and each death is
    /// written once.
    async fn hold(&self, suspects: &BTreeMap<Option<WorkerId>, Suspicion>) -> Result<()> {
        let roster = &*self.shared.store.roster;
        let alive = roster.members(silence(roster)).await?;
        let is_alive = |worker: &WorkerId| {
            *worker == self.shared.worker || alive.iter().any(|member| member.worker == *worker)
        };
        let mut reports = roster.reports(REPORTS_MAX_AGE).await?;
        reports.extend(roster.departed(REPORTS_MAX_AGE).await?);
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
        let mut outcome = Ok(());
        for (death, number) in found {
            let (worker, entry) = (death.worker.clone(), Entry::Interruption(Box::new(death)));
            if !self.shared.books.write_death(self.ledger, &worker, entry, number, TRY).await {
                outcome = Err(unanswered("write down a death"));
            }
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
