//! Looks at the machine once a second, and holds work back while memory or disk run out.
//!
//! Under pressure the running jobs are asked to save, once in an episode, and go on; nothing is received, and what
//! was received and has not begun goes back to the queue. A worker without a running job takes one at a time: the
//! memory may be another program's, and then waiting would free none of it.
//!
//! With a memory reserve, a job begins only while what it takes leaves the reserve. What jobs of a kind take is set,
//! or measured while they are the only ones that run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::kind::Kind;
use super::shared::Shared;
use crate::mutex::get;
use crate::pressure::{Cause, Machine, MemoryReserve, OnPressure, Pool, Readings, Turn, too_much_memory};
use crate::telemetry::ByCause;

/// How often the machine is looked at. Memory can run out within seconds.
const EVERY: Duration = Duration::from_secs(1);

/// The longest time for one look: files that do not answer must not end the looks.
const LOOK: Duration = Duration::from_secs(10);

/// After how long a first job of a kind is believed to have shown what jobs of its kind take.
const TRIAL: Duration = Duration::from_mins(1);

/// Looks at the machine without end.
pub(super) async fn watch(shared: Arc<Shared>, machine: Arc<dyn Machine>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        ticks.tick().await;
        if let Ok(readings) = timeout(LOOK, machine.read()).await {
            if std::mem::take(&mut is_first) {
                shared.warn_of_too_much(&readings);
            }
            shared.look_at(readings);
        }
        shared.pressure.note_look();
    }
}

impl Shared {
    /// Whether nothing new is to be taken while a job runs.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.settings.on_pressure == OnPressure::Save && self.pressure.is_on()
    }

    fn warn_of_too_much(&self, readings: &Readings) {
        let kinds = self.kinds.iter().filter_map(|kind| Some((kind.name, kind.limits.memory?)));
        for sentence in too_much_memory(&readings.memory, self.settings.memory_reserve, kinds) {
            tracing::warn!("{sentence}");
        }
    }

    fn look_at(&self, readings: Readings) {
        let begun = self.begun();
        let running = begun.iter().map(|(kind, _)| Arc::clone(&kind.measured)).collect::<Vec<_>>();
        let measures = self.settings.memory_reserve.is_some();
        let turns = self.pressure.look(readings, measures.then_some(running.as_slice()));
        self.pressure.note_seen(expected_bytes(&begun));
        for turn in turns {
            self.follow(&turn);
        }
    }

    fn follow(&self, turn: &Turn) {
        let saves = self.settings.on_pressure == OnPressure::Save;
        let (cause, begins) = match turn {
            Turn::Begins { cause, why, is_first } => {
                let cause = cause.as_str();
                if saves {
                    tracing::warn!(
                        cause,
                        why,
                        "the machine is under pressure; saving the running jobs, and taking no new work while one runs"
                    );
                } else {
                    tracing::warn!(
                        cause,
                        why,
                        "the machine is under pressure; --on-pressure is show, so the worker goes on"
                    );
                }
                // Once in an episode: a disk that is nearly full must not be filled by saves.
                if *is_first && saves {
                    self.rules.modify(|rules| rules.saves += 1);
                }
                (cause, true)
            }
            Turn::Ends { cause, is_last } => {
                let cause = cause.as_str();
                if *is_last {
                    tracing::info!(cause, "the machine is under no pressure any more");
                } else {
                    tracing::info!(cause, "one cause of pressure is over, and another is not");
                }
                (cause, false)
            }
        };
        let gauge = self.telemetry.pressure.get_or_create(&ByCause { cause });
        gauge.set(i64::from(begins));
    }

    /// Shows every cause as absent, so that a metric is there before the first pressure.
    pub(super) fn show_no_pressure(&self) {
        for cause in Cause::ALL {
            self.telemetry.pressure.get_or_create(&ByCause { cause: cause.as_str() }).set(0);
        }
    }

    /// The jobs that have begun: each one's kind, and when.
    fn begun(&self) -> Vec<(Arc<Kind>, Instant)> {
        let running = self.running.all();
        running.into_values().filter_map(|(kind, run)| Some((kind, get(&run.began)?))).collect()
    }

    /// Whether one more job of the kind may begin here now. Must be asked on the control thread, right before it
    /// begins, so that no two jobs get the same memory; also before anything that it takes in vain if not.
    ///
    /// # Errors
    /// Why it must wait.
    pub(super) fn has_room_for(&self, kind: &Kind) -> Result<(), String> {
        // One job may run whatever there is. If it were too much, no machine of the fleet might ever run it.
        if self.guarded.load(Relaxed) == 0 {
            return Ok(());
        }
        if self.is_under_pressure() {
            return Err(format!("its worker's machine was under pressure: {}", self.pressure.why()));
        }
        match self.settings.memory_reserve {
            Some(reserve) => self.leaves_reserve(kind, reserve),
            None => Ok(()),
        }
    }

    fn leaves_reserve(&self, kind: &Kind, reserve: MemoryReserve) -> Result<(), String> {
        if !self.pressure.knows_memory() {
            return Ok(());
        }
        let begun = self.begun();
        let is_known = kind.limits.memory.is_some() || kind.runs.mean().is_some();
        let mut own =
            begun.iter().filter(|(other, _)| other.name == kind.name).map(|(_, began)| began.elapsed());
        if !is_known && own.clone().next().is_some() && !own.any(|ran| ran >= TRIAL) {
            return Err("the first job of its kind shows how much memory they take".to_owned());
        }
        let next = kind.memory().unwrap_or_default();
        let short = self.pressure.shortage(reserve, expected_bytes(&begun), next);
        let Some(Pool { name, available_bytes, .. }) = short else {
            return Ok(());
        };
        let (left_mib, needs_mib) = (available_bytes >> 20, next >> 20);
        if self.pressure.is_shortage_news() {
            tracing::info!(
                kind = kind.name,
                place = name,
                left_mib,
                needs_mib,
                "one more job would take memory of the reserve; deferring it"
            );
        }
        Err(format!(
            "{left_mib} MiB of memory of {name} were left, and the job takes {needs_mib} MiB beside the reserve"
        ))
    }
}

/// Returns the expected peak memory of these jobs, in bytes.
fn expected_bytes(begun: &[(Arc<Kind>, Instant)]) -> u64 {
    begun.iter().filter_map(|(kind, _)| kind.memory()).fold(0, u64::saturating_add)
}
