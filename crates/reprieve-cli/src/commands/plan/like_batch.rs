//! `--like-batch`: a batch like the one in a store, by what the store has kept of it.
//!
//! | kept | by | so it is measured |
//! |---|---|---|
//! | results, with their times | jobs that return something, for 30 days | how many jobs were done, and until when |
//! | jobs that were completed | the reports of workers, for a day | how many jobs were done, where they leave no result |
//! | when machines were seen | the ledger, for 90 days | the time of machines in the batch, and the rate of evictions |
//! | the mean time of a save | the reports of workers, for a day | what a save costs |
//!
//! No store keeps the times of single jobs, so a job's time is the time of machines divided by the jobs: it includes saves
//! and waiting, and is too long rather than too short.

use std::time::Duration;

use reprieve::ports::{Page, WorkerReport};
use reprieve::{Client, Result, StoreArgs, clock};
use reprieve_core::ledger::{Ledger, Life, lives};
use reprieve_plan::measured::{Export, Seen};
use reprieve_plan::plan::Source;

use super::args::{BatchArgs, FleetArgs};
use super::batch::{Batch, invalid};
use super::text::span;
use super::values::millis;
use crate::format::count;

/// How long rosters keep the report of a worker that is gone.
const REPORT_AGE_MAX: Duration = Duration::from_hours(24);

const RESULTS: &str = "results/";

/// What a store has kept of a batch.
#[derive(Debug)]
pub(super) struct LikeBatch {
    pub(super) batch: Batch,
    /// The machines of the ledger, for the rate of evictions; `None` if there are none.
    pub(super) machines: Option<Export>,
}

/// Jobs that were done, and in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Done {
    jobs: u64,
    from_unix_ms: i64,
    until_unix_ms: i64,
}

impl LikeBatch {
    /// Reads the store. Flags of the batch come before what is measured.
    ///
    /// # Errors
    /// The store's; [`Invalid`](reprieve::ErrorKind::Invalid) if it has kept too little.
    pub(super) async fn read(store: &StoreArgs, args: &BatchArgs, fleet: &FleetArgs) -> Result<Self> {
        let client = Client::open_existing(store).await?;
        let now = clock::unix_millis();
        let since = now.saturating_sub(i64::try_from(millis(args.since)).unwrap_or(i64::MAX)).max(0);
        let blobs = &client.store().blobs;
        let listed = Page::all(async |at: Option<String>| blobs.page(RESULTS, at.as_deref()).await).await?;
        let results =
            listed.iter().filter_map(|blob| Some((job(blob.name.as_str())?, blob.modified_unix_ms)));
        let roster = &client.store().roster;
        let mut reports = roster.reports(REPORT_AGE_MAX).await?;
        reports.extend(roster.departed(REPORT_AGE_MAX).await?);
        let entries = Ledger::new(client.store().records.clone()).read(since).await?;
        let lives = lives(&entries, &reports);
        let done = done(results, since).or_else(|| completed(&reports, &lives)).ok_or_else(|| {
            invalid(format!(
                "no job was done in this store in the last {}: give a longer --since, or --jobs and --job-time",
                span(millis(args.since))
            ))
        })?;
        Self::of(done, &lives, &reports, args, fleet)
    }

    fn of(
        done: Done,
        lives: &[Life],
        reports: &[WorkerReport],
        args: &BatchArgs,
        fleet: &FleetArgs,
    ) -> Result<Self> {
        let machine_ms = machine_ms(lives, done);
        let measured = machine_ms.saturating_mul(fleet.slots.into()) / done.jobs.max(1);
        let job_ms = args.job_time.map(millis).or_else(|| (measured > 0).then_some(measured)).ok_or_else(|| {
            invalid("the ledger of this store has no machine of that time, so times are not known: give --job-time")
        })?;
        let save_ms = args.save_cost.map(millis).or_else(|| save_ms(reports));
        Ok(Self {
            batch: Batch {
                jobs: args.jobs.unwrap_or(done.jobs),
                job_ms,
                source: source(done.jobs, machine_ms, args),
                save_ms,
                save_source: match args.save_cost {
                    Some(_) => Source::Given,
                    None => {
                        Source::Measured("the workers of this store: the longest mean of a kind".to_owned())
                    }
                },
            },
            machines: export(lives),
        })
    }
}

/// Where the number of jobs and their time are from, of which the flags may give either.
fn source(jobs: u64, machine_ms: u64, args: &BatchArgs) -> Source {
    let jobs = count(jobs, "job");
    let measured =
        format!("this store: {jobs} in {} of machines, waiting and saves included", span(machine_ms));
    match (args.jobs, args.job_time) {
        (None, None) => Source::Measured(measured),
        (Some(_), None) => Source::Measured(format!("{measured}; their number is given")),
        (None, Some(_)) => Source::Measured(format!("this store: {jobs}; their time is given")),
        (Some(_), Some(_)) => Source::Given,
    }
}

/// The job of a result, by the blob's name.
fn job(blob: &str) -> Option<&str> {
    blob.strip_prefix(RESULTS)?.strip_suffix(".json")
}

/// The jobs with a result since then: from when the first one was enqueued, as far as ids tell, until the last was done.
fn done<'a>(results: impl Iterator<Item = (&'a str, i64)>, since: i64) -> Option<Done> {
    let results: Vec<_> = results.filter(|(_, ended)| *ended >= since).collect();
    let until_unix_ms = results.iter().map(|(_, ended)| *ended).max()?;
    let from = |(job, ended): &(&str, i64)| enqueued_unix_ms(job).unwrap_or(since).min(*ended);
    let from_unix_ms = results.iter().map(from).min()?.max(since);
    Some(Done { jobs: results.len() as u64, from_unix_ms, until_unix_ms })
}

/// The jobs that workers completed, without a result: while their machines were seen.
fn completed(reports: &[WorkerReport], lives: &[Life]) -> Option<Done> {
    let jobs = reports.iter().map(|report| report.completed).sum();
    let of_reports = || lives.iter().filter(|life| reports.iter().any(|report| report.boot == life.boot));
    let from_unix_ms = of_reports().map(|life| life.seen_unix_ms).min()?;
    let until_unix_ms = of_reports().map(|life| life.until_unix_ms).max()?;
    (jobs > 0).then_some(Done { jobs, from_unix_ms, until_unix_ms })
}

/// When a job was enqueued, if its id says so: an id that the framework made is a UUID of version 7.
fn enqueued_unix_ms(job: &str) -> Option<i64> {
    let digits: String = job.split('-').take(2).collect();
    let is_v7 = job.len() == 36 && job.as_bytes().get(14) == Some(&b'7') && digits.len() == 12;
    if is_v7 { i64::from_str_radix(&digits, 16).ok() } else { None }
}

/// For how long machines were seen while the jobs were done.
fn machine_ms(lives: &[Life], done: Done) -> u64 {
    let seen = |life: &Life| {
        let from = life.seen_unix_ms.max(done.from_unix_ms);
        u64::try_from(life.until_unix_ms.min(done.until_unix_ms).saturating_sub(from)).unwrap_or(0)
    };
    lives.iter().map(seen).fold(0, u64::saturating_add)
}

/// The longest mean time of a save of any kind, on any worker: what a plan takes is never less than some job's.
fn save_ms(reports: &[WorkerReport]) -> Option<u64> {
    let kinds = reports.iter().filter_map(|report| report.intervals.as_ref()).flat_map(|it| &it.kinds);
    kinds.filter_map(|kind| kind.save_ms).max()
}

/// The machines that can be evicted, as an export of the ledger has them.
fn export(lives: &[Life]) -> Option<Export> {
    let (regular, spot): (Vec<_>, Vec<_>) =
        lives.iter().partition(|life| life.machine.priority.eq_ignore_ascii_case("regular"));
    let seen = |life: &&Life| Seen {
        from_ms: life.seen_unix_ms,
        until_ms: life.until_unix_ms,
        evicted: life.evicted.is_some(),
    };
    let seen: Vec<_> = spot.iter().map(seen).collect();
    let regular = u32::try_from(regular.len()).unwrap_or(u32::MAX);
    (!seen.is_empty()).then_some(Export { seen, lives: Vec::new(), regular })
}

#[cfg(test)]
mod tests {
    use reprieve_core::ledger::{Eviction, Machine};

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn life(from: i64, until: i64, evicted: bool) -> Life {
        Life {
            boot: format!("{from}-{until}"),
            machine: Machine::default(),
            born_unix_ms: None,
            seen_unix_ms: from * HOUR,
            until_unix_ms: until * HOUR,
            evicted: evicted.then_some(Eviction { lead_ms: None }),
        }
    }

    #[test]
    fn a_batch_reaches_from_its_first_job_to_its_last_result() {
        // Enqueued at 0x018cc251f400 = 1,704,067,200,000.
        let first = "018cc251-f400-7abc-8def-001122334455";
        assert_eq!(enqueued_unix_ms(first), Some(1_704_067_200_000));
        for other in ["my-job", "018cc251-f400-4abc-8def-001122334455", ""] {
            assert_eq!(enqueued_unix_ms(other), None, "{other}");
        }
        let results = [(first, 1_704_067_200_000 + HOUR), ("mine", 1_704_067_200_000 + 2 * HOUR), ("old", 5)];
        let since = 1_704_067_200_000 - 7 * HOUR;
        let done = |results: &[(&'static str, i64)]| done(results.iter().copied(), since);
        let from =
            |it: Option<Done>| it.map(|it| (it.jobs, it.from_unix_ms - since, it.until_unix_ms - since));
        assert_eq!(from(done(&results[..1])), Some((1, 7 * HOUR, 8 * HOUR)));
        assert_eq!(from(done(&results)), Some((2, 0, 9 * HOUR)), "an id of one's own has no time");
        assert_eq!(done(&results[2..]), None);
    }

    #[test]
    fn machines_count_while_the_batch_ran() {
        let done = Done { jobs: 8, from_unix_ms: 2 * HOUR, until_unix_ms: 6 * HOUR };
        let lives = [life(0, 3, true), life(3, 9, false), life(7, 9, false), life(0, 1, true)];
        assert_eq!(machine_ms(&lives, done), 4 * 3_600_000);
    }

    #[test]
    fn jobs_without_results_are_counted_by_their_workers() {
        let lives = [life(1, 3, false), life(4, 6, false)];
        let report = |boot: &str, completed| WorkerReport {
            boot: boot.to_owned(),
            completed,
            ..WorkerReport::new(reprieve::WorkerId::unique())
        };
        let reports = [report("1-3", 5), report("4-6", 7), report("", 0)];
        let expected = Done { jobs: 12, from_unix_ms: HOUR, until_unix_ms: 6 * HOUR };
        assert_eq!(completed(&reports, &lives), Some(expected));
        assert_eq!(completed(&[report("1-3", 0)], &lives), None);
        assert_eq!(completed(&reports, &[]), None, "no machine is known");
    }
}
