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
use crate::clock::{unix_millis, unix_millis_before};
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

/// What the worker saw of its running jobs, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    seen: BTreeMap<u64, Seen>,
}

#[derive(Debug)]
struct Seen {
    moves: Moves,
    /// Since when it has not moved, by the worker's clock.
    since: Duration,
    /// How long it had waited for others when it moved, or was between two steps, at last.
    waited: Duration,
}

impl Seen {
    fn new(run: &JobRun, moves: Moves, since: Duration) -> Self {
        Self { moves, since, waited: run.wait_time.taken() }
    }

    /// Returns for how long the step that runs has stood still by its own fault: without the time in which it waited for
    /// others.
    fn still_in_step(&mut self, run: &JobRun, now: Duration) -> Option<Duration> {
        let waited = run.wait_time.taken();
        let Some(since) = run.time_limit.in_step_since() else {
            self.waited = waited;
            return None;
        };
        let still = now.saturating_sub(since.max(self.since));
        Some(still.saturating_sub(waited.saturating_sub(self.waited)))
    }
}

/// What changes when a job moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moves {
    steps: u64,
    saved: Instant,
    /// How often it has reported progress: a coarse total changes rarely in a long step.
    reports: u64,
}

impl Moves {
    pub(super) fn of(run: &JobRun) -> Self {
        Self {
            steps: run.steps.load(Relaxed),
            saved: get(&run.last_saved),
            reports: run.reports.load(Relaxed),
        }
    }
}

impl Stalls {
    /// Looks which jobs have moved, and says of those that have not for too long, once. Called once a second.
    pub(super) fn look(&mut self, shared: &Shared) {
        // A freeze of the machine is no time in which they could move.
        let (now, now_unix_ms) = (shared.clock.now(), unix_millis());
        let running = shared.running.all();
        self.seen.retain(|number, _| running.contains_key(number));
        let mut stalled = BTreeMap::new();
        for (number, (kind, run)) in running {
            // It waits for a slot before that.
            if get(&run.began).is_none() {
                continue;
            }
            let moves = Moves::of(&run);
            let seen = self.seen.entry(number).or_insert_with(|| {
                run.moved_unix_ms.store(now_unix_ms, Relaxed);
                Seen::new(&run, moves.clone(), now)
            });
            if seen.moves == moves {
                let (still, progress) = (now.saturating_sub(seen.since), run.progress());
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
                let after = now.saturating_sub(seen.since);
                kind.moves.note(after);
                if run.go_on() {
                    tracing::info!(job = %run.job, kind = kind.name, ?after, "a job that had not moved for long moves again");
                }
                run.moved_unix_ms.store(now_unix_ms, Relaxed);
                *seen = Seen::new(&run, moves, now);
            }
            *stalled.entry(kind.name).or_insert(0) += i64::from(run.stalled_since().is_some());
        }
        show(shared, &stalled);
    }
}

/// Lets the job's guardian stop it, once. One that has a deadline is stopped then.
fn stop(shared: &Shared, kind: &Kind, run: &JobRun, still: Duration) {
    if run.has_deadline() {
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
