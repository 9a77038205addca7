//! The state of the machine, as the worker saw it last: whether it is under pressure, and how much memory jobs take.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::measure::Measured;
use crate::pressure::{
    Episode, JobMemory, MachineReport, MemoryReserve, OnPressure, Pool, Readings, Turn, shortage,
};
use crate::retry::LogThrottle;

/// The machine's state, as the worker saw it last.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    state: Mutex<State>,
    /// Cancelled by the first look.
    looked: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    episode: Episode,
    readings: Readings,
    growth: Growth,
    /// The expected peak memory of the jobs that ran at the last look, in bytes.
    seen: u64,
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

impl Growth {
    /// Notes what the process uses while these jobs run, each of which shares the measurements of its kind.
    fn note(&mut self, own_bytes: u64, running: &[Arc<Measured>]) {
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
        if running.iter().all(|other| Arc::ptr_eq(other, kind)) {
            kind.note((own_bytes - self.idle) / running.len() as u64);
        }
    }
}

impl Pressure {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first look at the machine.
    pub(super) async fn looked(&self) {
        self.looked.cancelled().await;
    }

    /// Notes that the machine was looked at, whether or not it answered.
    pub(super) fn note_look(&self) {
        self.looked.cancel();
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

    /// Takes a look at the machine while jobs with these measurements run, and returns what changes.
    pub(super) fn look(&self, readings: Readings, running: Option<&[Arc<Measured>]>) -> Vec<Turn> {
        let mut state = self.lock();
        if let (Some(own_bytes), Some(running)) = (readings.own_memory_bytes, running) {
            state.growth.note(own_bytes, running);
        }
        let turns = state.episode.look(&readings, Instant::now());
        state.readings = readings;
        turns
    }

    /// Notes the expected peak memory of the jobs that ran at the last look, in bytes.
    pub(super) fn note_seen(&self, bytes: u64) {
        self.lock().seen = bytes;
    }

    /// Returns why the machine is under pressure.
    pub(super) fn why(&self) -> String {
        let causes: Vec<_> = self.lock().episode.shown().into_iter().map(|active| active.why).collect();
        causes.join("; ")
    }

    /// Returns the memory in which one more job would leave less than the reserve: its name, and what is available. `None` if
    /// there is none, and before the first look. `running` and `next`: what jobs are expected to take.
    pub(super) fn shortage(&self, reserve: MemoryReserve, running: u64, next: u64) -> Option<Pool> {
        let state = self.lock();
        let own_bytes = state.readings.own_memory_bytes.unwrap_or_default();
        let taken = own_bytes.saturating_sub(state.growth.least.unwrap_or(own_bytes));
        shortage(&state.readings.memory, reserve, JobMemory { running, seen: state.seen, taken, next })
            .cloned()
    }

    /// Whether the machine's memory is known.
    pub(super) fn knows_memory(&self) -> bool {
        !self.lock().readings.memory.is_empty()
    }

    /// Whether to log that a job must wait for memory.
    pub(super) fn is_shortage_news(&self) -> bool {
        self.lock().shortages.is_news()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn jobs_are_measured_by_new_maxima_while_only_their_kind_runs() {
        let (large, small, mut growth) =
            (Arc::<Measured>::default(), Arc::<Measured>::default(), Growth::default());
        growth.note(500 * MIB, std::slice::from_ref(&large));
        assert_eq!(large.get(), None, "it began before the process was seen without a job");
        growth.note(100 * MIB, &[]);
        growth.note(700 * MIB, &[Arc::clone(&large), Arc::clone(&large)]);
        assert_eq!(large.get(), Some(300 * MIB));
        growth.note(700 * MIB, std::slice::from_ref(&large));
        assert_eq!(large.get(), Some(300 * MIB), "the other has ended, and left its memory to the process");
        growth.note(800 * MIB, &[Arc::clone(&large), Arc::clone(&small)]);
        assert_eq!((large.get(), small.get()), (Some(300 * MIB), None), "whose it is is not known");
        growth.note(110 * MIB, &[]);
        growth.note(120 * MIB, std::slice::from_ref(&small));
        assert_eq!(small.get(), Some(10 * MIB));
        assert_eq!(growth.least, Some(100 * MIB));
        tokio::time::advance(crate::worker::measure::MEASURED_KEPT).await;
        assert_eq!(large.get(), None, "long past");
    }
}
