//! Watches whether the jobs that run move: by a step, a save, or progress that they report.
//!
//! It only shows the jobs that do not. A step may rightly take long, and a worker that cancelled it by a guess would
//! be worse than the fault: for that there is [`Limits::step_timeout`](super::Limits::step_timeout).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::kind::Kind;
use super::shared::Shared;
use crate::clock::unix_millis_before;
use crate::context::JobRun;
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
            self.seen.values_mut().for_each(|seen| seen.since += gap);
        }
        let running = shared.running.all();
        self.seen.retain(|number, _| running.contains_key(number));
        let mut stalled = BTreeMap::new();
        for (number, (kind, run)) in running {
            // It waits for a slot before that.
            let Some(began) = get(&run.began) else { continue };
            let moves = Moves::of(&run);
            let seen = self.seen.entry(number).or_insert_with(|| Seen { moves: moves.clone(), since: began });
            if seen.moves == moves {
                let (still, progress) = (now - seen.since, moves.progress);
                if still >= kind.stalls_after() && run.stall(unix_millis_before(still)) {
                    tracing::warn!(job = %run.job, kind = kind.name, steps = moves.steps, ?still, done = progress.done, total = progress.total, "a job has made no step, no save and no progress for long; it may hang");
                }
            } else {
                kind.moves.note(now - seen.since);
                if run.go_on() {
                    tracing::info!(job = %run.job, kind = kind.name, after = ?(now - seen.since), "a job that had not moved for long moves again");
                }
                *seen = Seen { moves, since: now };
            }
            *stalled.entry(kind.name).or_insert(0) += i64::from(run.stalled_since().is_some());
        }
        show(shared, &stalled);
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
