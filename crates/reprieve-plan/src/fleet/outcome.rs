//! The result of one run.

use crate::money::Cost;

const HOUR_MS: u64 = 3_600_000;

/// What a run cost, when it was done, and how its time was spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The cost, by what was paid for.
    pub cost: Costs,
    /// The time until the last job was done; `None` if the run ended before.
    pub finished_ms: Option<u64>,
    /// The jobs that were done.
    pub done: u32,
    /// How often a Spot machine was evicted, for capacity or for its price.
    pub evictions: u32,
    /// How many of these were for its price.
    pub price_evictions: u32,
    /// How many came while the machine booted.
    pub boot_evictions: u32,
    /// How often a request for a Spot machine was refused.
    pub refusals: u32,
    /// How often a job was interrupted.
    pub interruptions: u32,
    /// How many evictions of machines cost work, as workers count them for their interval.
    pub unsaved: u64,
    /// How often a job moved to regular machines because it was interrupted too often.
    pub swaps: u32,
    /// The number of saves.
    pub saves: u64,
    /// How often a saved job was restored.
    pub restores: u64,
    /// The time of all slots of all machines, by what they did.
    pub time: SlotTime,
    /// The time of all slots, from the allocation of each machine until it was gone.
    pub slot_ms: u64,
    /// The most Spot machines at a time that the quota has to allow: deallocated ones count against it, and those that
    /// were asked for would as soon as the market gave them.
    pub spot_quota: u32,
    /// The most regular machines at a time.
    pub regular_quota: u32,
    /// The machines of each hour since the beginning.
    pub hours: Vec<HourUse>,
    /// The number of events of the run, by which the time of the simulation can be told beforehand.
    pub events: u64,
}

/// A cost by what was paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Regular machines.
    pub regular: Cost,
    /// Spot machines.
    pub spot: Cost,
    /// Disks of both, also while a machine is deallocated.
    pub disks: Cost,
    /// Storage requests of saves.
    pub saves: Cost,
    /// What is paid whatever machines there are.
    pub always: Cost,
    /// Traffic of saves and restores between regions.
    pub traffic: Cost,
}

/// The time of slots by what they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotTime {
    /// Work that was not done again.
    pub kept_ms: u64,
    /// Work that was lost.
    pub lost_ms: u64,
    /// Saves.
    pub saving_ms: u64,
    /// Restores.
    pub restoring_ms: u64,
    /// Boots.
    pub booting_ms: u64,
    /// Waiting for a job, and for the end of an evicted machine.
    pub idle_ms: u64,
}

/// The time of machines in one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourUse {
    /// Spot machines.
    pub spot_ms: u64,
    /// Regular machines.
    pub regular_ms: u64,
}

impl Costs {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> Cost {
        self.regular + self.spot + self.disks + self.saves + self.always + self.traffic
    }
}

impl SlotTime {
    /// The time in which nothing was worked.
    #[must_use]
    pub const fn overhead_ms(&self) -> u64 {
        self.saving_ms + self.restoring_ms + self.booting_ms + self.idle_ms
    }
}

impl Outcome {
    /// Whether all jobs were done by `deadline_ms`.
    #[must_use]
    pub fn met(&self, deadline_ms: u64) -> bool {
        self.finished_ms.is_some_and(|finished_ms| finished_ms <= deadline_ms)
    }

    /// Adds the time of a machine to the hours in which it was.
    pub(super) fn add_hours(&mut self, from_ms: u64, to_ms: u64, spot: bool) {
        let mut at_ms = from_ms;
        while at_ms < to_ms {
            let hour = at_ms / HOUR_MS;
            let until_ms = to_ms.min((hour + 1) * HOUR_MS);
            // A run ends after its limit, so hours are few.
            let hour = usize::try_from(hour).unwrap_or(usize::MAX);
            if self.hours.len() <= hour {
                self.hours.resize(hour + 1, HourUse::default());
            }
            let hour = &mut self.hours[hour];
            *(if spot { &mut hour.spot_ms } else { &mut hour.regular_ms }) += until_ms - at_ms;
            at_ms = until_ms;
        }
    }
}
