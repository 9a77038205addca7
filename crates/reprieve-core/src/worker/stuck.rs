//! Slots whose threads do not return: a job was given up because it took longer than its kind allows, and its step
//! still blocks its thread. Another slot replaces each, and when half of them are stuck the worker is to restart. So it is
//! when stuck ones hold the places of a kind with a limit: their threads may still do its work, so that nothing but the end
//! of the process may give the places to others.
//!
//! A job that was given up for another reason, such as a drain, may rightly compute for long: without a limit of its kind,
//! its slot is never taken for stuck by a guess, and a thread that still makes progress passes no `stall-after`.

use std::sync::Arc;
use std::time::Duration;

use super::delivery::{GivenUp, Limit};
use super::kind::Kind;
use super::shared::Shared;
use super::stalls::Moves;
use crate::healing::{Action, HealingAction, Layer, Outcome};

/// After how many looks, one a second, a thread that has not returned is taken for stuck at the earliest. Looks and
/// not time, because a machine that is frozen makes none.
const LOOKS_MIN: u64 = 60;

/// Returns how many of `slots` slots may be stuck and replaced at once: less than half. For each there must be a
/// thread.
#[must_use]
pub const fn spare_slots(slots: usize) -> usize {
    slots.saturating_sub(1) / 2
}

/// The slots of jobs that were given up.
#[derive(Debug)]
pub(super) struct StuckSlots {
    shared: Arc<Shared>,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    job: GivenUp,
    looks: u64,
    /// How many of them since its thread last made progress.
    looks_still: u64,
    moves: Moves,
    /// The limit that its job has passed, once its thread was given as long again.
    stuck: Option<Duration>,
}

impl Slot {
    fn new(job: GivenUp) -> Self {
        let moves = Moves::of(&job.run);
        Self { job, looks: 0, looks_still: 0, moves, stuck: None }
    }

    /// Returns whether that makes it stuck.
    fn look(&mut self) -> bool {
        let moves = Moves::of(&self.job.run);
        self.looks += 1;
        self.looks_still = if moves == self.moves { self.looks_still + 1 } else { 0 };
        self.moves = moves;
        let waited = |limit: Limit, looks| {
            let enough = limit.passes_within.as_secs().saturating_add(LOOKS_MIN.max(limit.time.as_secs()));
            (looks >= enough).then_some(limit.time)
        };
        let timeout = self.job.timeout.and_then(|limit| waited(limit, self.looks));
        let stall = || self.job.stall.and_then(|limit| waited(limit, self.looks_still));
        let was_stuck = self.stuck.is_some();
        self.stuck = self.stuck.or(timeout).or_else(stall);
        self.stuck.is_some() && !was_stuck
    }

    fn action(&self, action: Action, why: &str) -> HealingAction {
        let (run, limit) = (&self.job.run, self.stuck.unwrap_or_default());
        let why = format!("{why} since it passed its limit of {limit:?} (kind {})", run.kind);
        HealingAction::new(Layer::Slot, action, run.job.as_str(), why)
    }
}

impl StuckSlots {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, slots: Vec::new() }
    }

    /// Watches the slot of a job that was given up and has a limit.
    pub(super) fn watch(&mut self, job: GivenUp) {
        self.slots.push(Slot::new(job));
    }

    /// Looks which threads have returned, and replaces the slots of those that do not. Called once a second.
    /// Returns why the worker is to restart, if it is.
    pub(super) fn look(&mut self) -> Option<String> {
        self.forget_those_that_returned();
        for slot in &mut self.slots {
            if slot.look() {
                slot.job.use_nothing();
                let action = slot.action(Action::MarkStuck, "its thread has not returned");
                let found_after = Some(Duration::from_secs(slot.looks));
                self.shared.books.healing(&HealingAction { found_after, ..action });
            }
        }
        let why = self.why_restart();
        if why.is_some() {
            return why;
        }
        let stuck = self.slots.iter().filter(|slot| slot.stuck.is_some());
        for slot in stuck.filter(|slot| slot.job.replace_slot(&self.shared)) {
            let action = slot.action(Action::ReplaceSlot, "its slot is stuck");
            let (outcome, took) = (Outcome::Healed, Some(Duration::ZERO));
            self.shared.books.healing(&HealingAction { outcome, took, ..action });
        }
        None
    }

    fn why_restart(&self) -> Option<String> {
        let stuck: Vec<_> = self.slots.iter().filter(|slot| slot.stuck.is_some()).collect();
        if stuck.len() * 2 >= self.shared.settings.concurrency {
            return Some("half of its slots are stuck".to_owned());
        }
        // Whether the kind has work is not known here: others see it, too.
        if let Some(slot) = stuck.iter().find(|slot| slot.job.holds_slot_of_fleet()) {
            return Some(format!("a stuck slot holds a place of the fleet (kind {})", slot.job.run.kind));
        }
        let has_none = |kind: &Kind| {
            let of_kind = |slot: &&&Slot| slot.job.run.kind == kind.name && slot.job.holds_place();
            let held = stuck.iter().filter(of_kind).count();
            kind.limits.per_worker.is_some_and(|most| held >= most) && kind.has_waiting_work()
        };
        let kind = self.shared.kinds.iter().find(|kind| has_none(kind))?;
        Some(format!("stuck slots hold all its places of a kind that has waiting work (kind {})", kind.name))
    }

    fn forget_those_that_returned(&mut self) {
        self.slots.retain(|slot| {
            let has_returned = !slot.job.run.holds_slots();
            if has_returned && slot.stuck.is_some() {
                tracing::info!(job = %slot.job.run.job, "the thread of a job that was given up has returned");
            }
            !has_returned
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_half_of_the_slots_can_be_replaced() {
        for (slots, spare) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (8, 3), (9, 4)] {
            assert_eq!(spare_slots(slots), spare, "{slots}");
        }
    }
}
