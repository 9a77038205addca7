//! Looks at the machine's state once a second, and holds work back while memory or disk run out.
//!
//! Under pressure the running jobs are asked to save, once in an episode, and go on; nothing is received, and what
//! was received and has not begun goes back to the queue. A worker without a running job takes one at a time: the
//! memory may be another program's, and then waiting would free none of it.
//!
//! With a memory reserve, a job begins only while what it takes leaves the reserve. What jobs of a kind take is set,
//! or measured while they are the only ones that run.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::kind::Kind;
use super::shared::Shared;
use crate::mutex::get;
use crate::pressure::{
    Cause, Episode, JobMemory, Machine, MachineReport, MemoryReserve, OnPressure, Readings, Turn, shortage,
};
use crate::retry::LogThrottle;
use crate::telemetry::ByCause;

/// How often the machine is looked at. Memory can run out within seconds.
const EVERY: Duration = Duration::from_secs(1);

/// The longest time for one look: a disk that does not answer keeps no other reading back.
const LOOK: Duration = Duration::from_secs(10);

/// For how long a measured use of memory counts.
const MEASURED_KEPT: Duration = Duration::from_hours(24);

/// After how long a first job of a kind is believed to have shown what jobs of its kind take.
const TRIAL: Duration = Duration::from_mins(1);

/// The machine's state, as the worker saw it last.
#[derive(Debug, Default)]
pub(super) struct Pressure(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    episode: Episode,
    readings: Readings,
    growth: Growth,
    shortages: LogThrottle,
}

/// How the memory of this process grows with its jobs.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    /// The least that it used without a job.
    least: Option<u64>,
    /// What it used when it had no job last, and the most since then.
    idle: u64,
    most: u64,
}

/// The memory that jobs of a kind take, as measured: the most, and when.
#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Option<(Instant, u64)>>);

impl Measured {
    fn get(&self) -> Option<u64> {
        get(&self.0).filter(|(at, _)| at.elapsed() < MEASURED_KEPT).map(|(_, bytes)| bytes)
    }

    fn note(&self, bytes: u64) {
        if self.get().is_none_or(|most| most <= bytes) {
            crate::mutex::set(&self.0, Some((Instant::now(), bytes)));
        }
    }
}

impl Growth {
    /// Notes what the process uses while these jobs run.
    fn note(&mut self, own_bytes: u64, running: &[Arc<Kind>]) {
        let Some(kind) = running.first() else {
            let least = self.least.map_or(own_bytes, |least| least.min(own_bytes));
            *self = Self { least: Some(least), idle: own_bytes, most: own_bytes };
            return;
        };
        // Memory that ended jobs have left in the process is not measured again: only a new maximum is.
        if own_bytes <= self.most || self.least.is_none() {
            return;
        }
        self.most = own_bytes;
        if running.iter().all(|other| other.name == kind.name) {
            kind.measured.note((own_bytes - self.idle) / running.len() as u64);
        }
    }
}

impl Kind {
    /// Returns what one of its jobs takes, in bytes, as far as that is known.
    pub(super) fn memory(&self) -> Option<u64> {
        self.limits.memory.max(self.measured.get())
    }
}

impl Pressure {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the machine is under pressure.
    pub(super) fn is_on(&self) -> bool {
        self.lock().episode.is_on()
    }

    /// Returns the machine's state, for reports; `None` before the first look.
    pub(super) fn shown(&self, on: OnPressure) -> Option<MachineReport> {
        let state = self.lock();
        let (pressure, shown) = (state.episode.shown(), state.readings.shown.clone());
        let report = MachineReport { acts: on == OnPressure::Save, pressure, shown };
        (state.readings != Readings::default() || state.episode.is_on()).then_some(report)
    }
}

/// Looks at the machine without end.
pub(super) async fn watch(shared: Arc<Shared>, machine: Arc<dyn Machine>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Ok(readings) = timeout(LOOK, machine.read()).await {
            shared.look_at(readings);
        }
    }
}

impl Shared {
    /// Whether nothing new is to be taken while a job runs.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.settings.on_pressure == OnPressure::Save && self.pressure.is_on()
    }

    fn look_at(&self, readings: Readings) {
        let running = self.begun();
        let turns = {
            let mut state = self.pressure.lock();
            let turns = state.episode.look(&readings, Instant::now());
            if let Some(own_bytes) =
                readings.own_memory_bytes.filter(|_| self.settings.memory_reserve.is_some())
            {
                let kinds: Vec<_> = running.into_iter().map(|(kind, _)| kind).collect();
                state.growth.note(own_bytes, &kinds);
            }
            state.readings = readings;
            turns
        };
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
    /// begins, so that no two jobs get the same memory.
    ///
    /// # Errors
    /// Why it must wait.
    pub(super) fn has_room_for(&self, kind: &Kind) -> Result<(), String> {
        // One job may run whatever there is. If it were too much, no machine of the fleet might ever run it.
        if self.guarded.load(Relaxed) == 0 {
            return Ok(());
        }
        if self.is_under_pressure() {
            let causes = self.pressure.lock().episode.shown();
            let causes: Vec<_> = causes.into_iter().map(|active| active.why).collect();
            return Err(format!("its worker's machine was under pressure: {}", causes.join("; ")));
        }
        match self.settings.memory_reserve {
            Some(reserve) => self.leaves_reserve(kind, reserve),
            None => Ok(()),
        }
    }

    fn leaves_reserve(&self, kind: &Kind, reserve: MemoryReserve) -> Result<(), String> {
        let begun = self.begun();
        let mut state = self.pressure.lock();
        // Before the first look nothing is known.
        if state.readings.memory.is_empty() {
            return Ok(());
        }
        let own = begun.iter().filter(|(other, _)| other.name == kind.name);
        let is_known = kind.limits.memory.is_some() || kind.runs.mean().is_some();
        let mut own = own.map(|(_, began)| began.elapsed());
        if !is_known && own.clone().next().is_some() && !own.any(|ran| ran >= TRIAL) {
            return Err("the first job of its kind shows how much memory they take".to_owned());
        }
        let running = begun.iter().filter_map(|(kind, _)| kind.memory()).fold(0, u64::saturating_add);
        let own_bytes = state.readings.own_memory_bytes.unwrap_or_default();
        let taken = own_bytes.saturating_sub(state.growth.least.unwrap_or(own_bytes));
        let next = kind.memory().unwrap_or_default();
        let Some(pool) = shortage(&state.readings.memory, reserve, JobMemory { running, taken, next }) else {
            return Ok(());
        };
        let (place, left) = (pool.name.clone(), pool.available_bytes >> 20);
        let needs = next >> 20;
        if state.shortages.is_news() {
            tracing::info!(
                kind = kind.name,
                place,
                left_mib = left,
                needs_mib = needs,
                "one more job would take memory of the reserve; deferring it"
            );
        }
        Err(format!(
            "{left} MiB of memory of {place} were left, and the job takes {needs} MiB beside the reserve"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Limits;

    const MIB: u64 = 1 << 20;

    fn kind(name: &'static str) -> Arc<Kind> {
        Arc::new(Kind::new(name, 1, Limits::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_measured_by_new_maxima_while_only_their_kind_runs() {
        let (large, small, mut growth) = (kind("large"), kind("small"), Growth::default());
        growth.note(500 * MIB, std::slice::from_ref(&large));
        assert_eq!(large.memory(), None, "it began before the process was seen without a job");
        growth.note(100 * MIB, &[]);
        growth.note(700 * MIB, &[Arc::clone(&large), Arc::clone(&large)]);
        assert_eq!(large.memory(), Some(300 * MIB));
        growth.note(700 * MIB, std::slice::from_ref(&large));
        assert_eq!(
            large.memory(),
            Some(300 * MIB),
            "the other has ended, and left its memory to the process"
        );
        growth.note(800 * MIB, &[Arc::clone(&large), Arc::clone(&small)]);
        assert_eq!((large.memory(), small.memory()), (Some(300 * MIB), None), "whose it is is not known");
        growth.note(110 * MIB, &[]);
        growth.note(120 * MIB, std::slice::from_ref(&small));
        assert_eq!(small.memory(), Some(10 * MIB));
        assert_eq!(growth.least, Some(100 * MIB));
        tokio::time::advance(MEASURED_KEPT).await;
        assert_eq!(large.memory(), None, "long past");
    }

    #[test]
    fn what_is_set_counts_unless_more_was_measured() {
        let kind = Kind::new("k", 1, Limits { memory: Some(200 * MIB), ..Limits::default() });
        assert_eq!(kind.memory(), Some(200 * MIB));
        kind.measured.note(100 * MIB);
        assert_eq!(kind.memory(), Some(200 * MIB));
        kind.measured.note(300 * MIB);
        assert_eq!(kind.memory(), Some(300 * MIB));
    }
}
