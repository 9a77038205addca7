//! Watches whether the jobs that run move: by a step, a save, or progress that they report.
//!
//! It shows the jobs that do not. A step may rightly take long, and a worker that cancelled it by a guess would be
//! worse than the fault: only where [`Limits::stall_after`](super::Limits::stall_after) says how long is too long, it
//! lets the job's guardian stop it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::kind::Kind;
use super::shared::Shared;
use crate::clock::unix_millis_before;
use crate::context::{Hang, JobRun};
use crate::healing::{Action, HealingAction, Layer};
use crate::mutex::get;
use crate::ports::Progress;
use crate::telemetry::ByKind;

/// A job stalls when it has not moved for this many times as long as jobs of its kind take at the longest between
/// two moves, or this time, whichever is longer.
const TIMES: u32 = 10;
const AT_LEAST: Duration = Duration::from_mins(5);

/// The same while no job of its kind has moved in this worker: its first step may be a long one.
const UNKNOWN: Duration = Duration::from_hours(1);

/// A look that comes so much later than the one before follows a freeze of the machine, in which nothing moves.
const GAP: Duration = Duration::from_secs(10);

/// What the worker saw of its running jobs, by their numbers.
#[derive(Debug)]
pub(super) struct Stalls {
    seen: BTreeMap<u64, Seen>,
    looked: Instant,
}

#[derive(Debug)]
struct Seen {
    moves: Moves,
    since: Instant,
    /// Its calls to the store that have failed, and since when none has: an outage is no fault of the job.
    outages: u64,
    undisturbed_since: Instant,
}

impl Seen {
    fn new(run: &JobRun, moves: Moves, since: Instant) -> Self {
        Self { moves, since, outages: run.outages.load(Relaxed), undisturbed_since: since }
    }

    /// Returns for how long the step that runs has stood still by its own fault.
    fn still_in_step(&mut self, run: &JobRun, now: Instant) -> Option<Duration> {
        let outages = run.outages.load(Relaxed);
        if std::mem::replace(&mut self.outages, outages) != outages {
            self.undisturbed_since = now;
        }
        let since = run.time_limit.in_step_since()?.max(self.since).max(self.undisturbed_since);
        Some(now.saturating_duration_since(since))
    }

    /// A freeze of the machine is no time in which it could move.
    fn skip(&mut self, gap: Duration) {
        self.since += gap;
        self.undisturbed_since += gap;
    }
}

/// What changes when a job moves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moves {
    steps: u64,
    saved: Instant,
    progress: Progress,
}

impl Moves {
    fn of(run: &JobRun) -> Self {
        Self { steps: run.steps.load(Relaxed), saved: get(&run.last_saved), progress: run.progress() }
    }
}

impl Stalls {
    pub(super) fn new() -> Self {
        Self { seen: BTreeMap::new(), looked: Instant::now() }
    }

    /// Looks which jobs have moved, and says of those that have not for too long, once. Called once a second.
    pub(super) fn look(&mut self, shared: &Shared) {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.looked, now);
        if gap > GAP {
            self.seen.values_mut().for_each(|seen| seen.skip(gap));
        }
        let running = shared.running.all();
        self.seen.retain(|number, _| running.contains_key(number));
        let mut stalled = BTreeMap::new();
        for (number, (kind, run)) in running {
            // It waits for a slot before that.
            let Some(began) = get(&run.began) else { continue };
            let moves = Moves::of(&run);
            let seen = self.seen.entry(number).or_insert_with(|| Seen::new(&run, moves.clone(), began));
            if seen.moves == moves {
                let (still, progress) = (now - seen.since, moves.progress);
                if still >= kind.stalls_after() && run.stall(unix_millis_before(still)) {
                    let place = shared.place_of(&run);
                    tracing::warn!(job = %run.job, kind = kind.name, place, steps = moves.steps, ?still, done = progress.done, total = progress.total, "a job has made no step, no save and no progress for long; it may hang");
                }
                let in_step = seen.still_in_step(&run, now);
                if let Some((still, limit)) = in_step.zip(kind.limits.stall_after)
                    && still >= limit
                {
                    stop(shared, &kind, &run, still);
                }
            } else {
                kind.moves.note(now - seen.since);
                if run.go_on() {
                    tracing::info!(job = %run.job, kind = kind.name, after = ?(now - seen.since), "a job that had not moved for long moves again");
                }
                *seen = Seen::new(&run, moves, now);
            }
            *stalled.entry(kind.name).or_insert(0) += i64::from(run.stalled_since().is_some());
        }
        show(shared, &stalled);
    }
}

/// Lets the job's guardian stop it, once. One that is interrupted yields already.
fn stop(shared: &Shared, kind: &Kind, run: &JobRun, still: Duration) {
    if run.interrupted.is_cancelled() {
        return;
    }
    let hang = Hang { still, place: shared.place_of(run) };
    let (place, Progress { done, total }) = (hang.place.clone(), run.progress());
    if run.hung.set(hang).is_ok() {
        let why = format!(
            "no save and no progress for {} s in {place}, at {done} of {total} (kind {})",
            still.as_secs(),
            kind.name
        );
        let action = HealingAction::new(Layer::Job, Action::StopJob, run.job.as_str(), why);
        shared.books.healing(&HealingAction { found_after: Some(still), ..action });
    }
}

fn show(shared: &Shared, stalled: &BTreeMap<&str, i64>) {
    for kind in &shared.kinds {
        let of_kind = ByKind { kind: kind.name.to_owned() };
        let count = stalled.get(kind.name).copied().unwrap_or_default();
        shared.telemetry.stalled_jobs.get_or_create(&of_kind).set(count);
    }
}

impl Kind {
    /// For how long one of its jobs may not move before that is shown.
    fn stalls_after(&self) -> Duration {
        self.moves.longest().map_or(UNKNOWN, |longest| longest.saturating_mul(TIMES).max(AT_LEAST))
    }
}
