//! Strategies as data: how many machines of which priority, and what happens after an eviction.

use std::fmt;

use crate::vm_state::{EvictionPolicy, MaxPrice};

const MINUTE_MS: u64 = 60_000;

/// How a fleet is made up and kept up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// The name in tables.
    pub name: String,
    /// The most machines, of both priorities.
    pub instances: u32,
    /// The regular machines among them.
    pub mix: Mix,
    /// What becomes of an evicted machine.
    pub policy: EvictionPolicy,
    /// The most that a Spot machine may cost.
    pub max_price: MaxPrice,
    /// Who replaces evicted machines.
    pub upkeep: Upkeep,
    /// Where jobs go that are interrupted too often; `None` if they stay.
    pub swap: Option<Swap>,
}

/// The regular machines of a fleet, as a scale set's `priorityMixPolicy` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// The first machines, all of them regular.
    pub base: u32,
    /// The share of regular machines above the base, in percent. What is left of a machine goes to Spot.
    pub percent_above: u32,
}

/// Who brings evicted machines back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Nobody: deallocated machines never restart by themselves, and deleted ones lower the instance count.
    Nobody,
    /// Azure's "try and restore", for machines that were deallocated for capacity; not for their price.
    Restore {
        /// The time between two attempts.
        every_ms: u64,
        /// The time after which Azure gives up.
        for_ms: u64,
    },
    /// A fleet of a fixed number, as an Azure Compute Fleet keeps it.
    Maintain {
        /// The time until it notices.
        delay_ms: u64,
    },
    /// Autoscale on the queue, from none or the base up to as many machines as messages need.
    Autoscale {
        /// The time until it has seen the messages and asks for machines.
        delay_ms: u64,
        /// The time without a message after which all machines above the base go. Until then they are billed.
        lingers_ms: u64,
    },
}

/// Regular machines for jobs that are interrupted too often. They come and go with such jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The number of interruptions without progress after which a job moves.
    pub after: u32,
    /// The most machines.
    pub instances: u32,
    /// The time until autoscale asks for one.
    pub delay_ms: u64,
    /// The time without a job after which one goes.
    pub lingers_ms: u64,
}

/// The time until autoscale has asked for a machine: it looks at the messages of a minute once a minute, and a
/// scale set needs a moment.
const AUTOSCALE_MS: u64 = 2 * MINUTE_MS;

/// The time without a message after which the presets scale in.
const LINGERS_MS: u64 = 10 * MINUTE_MS;

/// The time between two attempts of Azure to restore a machine. Azure does not document it.
const RESTORE_EVERY_MS: u64 = 5 * MINUTE_MS;

/// The time until a Compute Fleet asks for a machine in place of an evicted one. Azure does not document it.
pub const FLEET_DELAY_MS: u64 = MINUTE_MS;

impl Strategy {
    /// Regular machines only, of a fixed number.
    #[must_use]
    pub fn all_regular(instances: u32) -> Self {
        Self {
            mix: Mix { base: instances, percent_above: 0 },
            upkeep: Upkeep::Nobody,
            ..Self::elastic(instances).named("all regular")
        }
    }

    /// The preset `steady`: a fixed number, deallocated on eviction, which Azure tries to restore for an hour.
    #[must_use]
    pub fn steady(instances: u32) -> Self {
        Self {
            policy: EvictionPolicy::Deallocate,
            upkeep: Upkeep::Restore { every_ms: RESTORE_EVERY_MS, for_ms: 60 * MINUTE_MS },
            ..Self::elastic(instances).named("steady")
        }
    }

    /// The preset `steady-fleet`: a fixed number that a Compute Fleet keeps.
    #[must_use]
    pub fn steady_fleet(instances: u32) -> Self {
        let upkeep = Upkeep::Maintain { delay_ms: FLEET_DELAY_MS };
        Self { upkeep, ..Self::elastic(instances).named("steady-fleet") }
    }

    /// The preset `elastic`: Spot machines that autoscale makes and Azure deletes.
    #[must_use]
    pub fn elastic(instances: u32) -> Self {
        Self {
            name: "elastic".to_owned(),
            instances,
            mix: Mix::default(),
            policy: EvictionPolicy::Delete,
            max_price: MaxPrice::OnDemand,
            upkeep: Upkeep::Autoscale { delay_ms: AUTOSCALE_MS, lingers_ms: LINGERS_MS },
            swap: None,
        }
    }

    /// The preset `balanced`: `elastic` above a base of regular machines.
    #[must_use]
    pub fn balanced(instances: u32, mix: Mix) -> Self {
        Self { mix, ..Self::elastic(instances).named("balanced") }
    }

    /// The preset `swap`: `elastic`, and regular machines for jobs that were interrupted `after` times.
    #[must_use]
    pub fn swap(instances: u32, regular: u32, after: u32) -> Self {
        let swap = Swap { after, instances: regular, delay_ms: AUTOSCALE_MS, lingers_ms: LINGERS_MS };
        Self { swap: Some(swap), ..Self::elastic(instances).named("swap") }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Whether any machine is a Spot machine.
    #[must_use]
    pub fn uses_spot(&self) -> bool {
        self.mix.split(self.instances).1 > 0
    }

    /// The machines that are there without a job: `(regular, spot)`.
    #[must_use]
    pub fn idle(&self) -> (u32, u32) {
        match self.upkeep {
            Upkeep::Autoscale { .. } => (self.mix.base.min(self.instances), 0),
            Upkeep::Nobody | Upkeep::Restore { .. } | Upkeep::Maintain { .. } => {
                self.mix.split(self.instances)
            }
        }
    }

    /// Checks that Azure takes the strategy.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), StrategyError> {
        let deletes = self.policy == EvictionPolicy::Delete;
        if self.instances == 0 {
            Err(StrategyError::NoMachines)
        } else if self.mix.percent_above > 100 {
            Err(StrategyError::Percent)
        } else if self.swap.is_some_and(|swap| swap.after == 0 || swap.instances == 0) {
            Err(StrategyError::EmptySwap)
        } else {
            match self.upkeep {
                Upkeep::Restore { every_ms: 0, .. } => Err(StrategyError::NoRetry),
                Upkeep::Restore { .. } if deletes => Err(StrategyError::RestoreOfDeleted),
                Upkeep::Autoscale { .. } | Upkeep::Maintain { .. } if !deletes && self.uses_spot() => {
                    Err(StrategyError::DeallocatedCount)
                }
                Upkeep::Nobody
                | Upkeep::Restore { .. }
                | Upkeep::Maintain { .. }
                | Upkeep::Autoscale { .. } => Ok(()),
            }
        }
    }
}

impl Mix {
    /// The regular and the Spot machines of a fleet of `instances`.
    #[must_use]
    pub fn split(self, instances: u32) -> (u32, u32) {
        let base = self.base.min(instances);
        let above = instances - base;
        let share = u64::from(above) * u64::from(self.percent_above.min(100)) / 100;
        // A share of a number is no larger than it.
        let regular = base + u32::try_from(share).unwrap_or(above);
        (regular, instances - regular)
    }
}

/// A reason why Azure does not take a strategy, or why it makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyError {
    /// There is no machine.
    NoMachines,
    /// The share of regular machines is above 100 %.
    Percent,
    /// Jobs move at once, or to no machine.
    EmptySwap,
    /// Attempts to restore follow each other without time between.
    NoRetry,
    /// Restoring what is deleted.
    RestoreOfDeleted,
    /// Machines that are deallocated count as there.
    DeallocatedCount,
}

impl fmt::Display for StrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMachines => "the strategy has no machine: give at least one",
            Self::Percent => "the share of regular machines is above 100 %: give 0 to 100",
            Self::EmptySwap => "a swap needs at least one interruption and one regular machine",
            Self::NoRetry => "the time between two attempts to restore is zero: give at least a millisecond",
            Self::RestoreOfDeleted => "there is nothing to restore of deleted machines: use Deallocate",
            Self::DeallocatedCount => {
                "deallocated machines count as instances, so nothing replaces them: use Delete"
            }
        })
    }
}

impl std::error::Error for StrategyError {}

#[cfg(test)]
mod tests {
    use super::{Mix, Strategy, StrategyError, Swap, Upkeep};
    use crate::vm_state::EvictionPolicy;

    #[test]
    fn a_mix_is_rounded_in_favour_of_spot() {
        for (instances, base, percent_above, expected) in [
            (20, 10, 25, (12, 8)),
            (41, 10, 50, (25, 16)),
            (3, 10, 50, (3, 0)),
            (5, 0, 0, (0, 5)),
            (5, 0, 100, (5, 0)),
            (u32::MAX, 0, 99, (4_252_017_622, 42_949_673)),
        ] {
            assert_eq!(Mix { base, percent_above }.split(instances), expected);
        }
    }

    #[test]
    fn presets_are_taken() {
        let presets = [
            Strategy::all_regular(4),
            Strategy::steady(4),
            Strategy::steady_fleet(4),
            Strategy::elastic(20),
            Strategy::balanced(20, Mix { base: 2, percent_above: 25 }),
            Strategy::swap(20, 2, 3),
        ];
        assert_eq!(presets.each_ref().map(Strategy::check), [Ok(()); 6]);
        let idle = [(4, 0), (0, 4), (0, 4), (0, 0), (2, 0), (0, 0)];
        assert_eq!(presets.each_ref().map(Strategy::idle), idle);
    }

    #[test]
    fn strategies_that_cannot_work_are_refused() {
        let restore = Upkeep::Restore { every_ms: 1, for_ms: 1 };
        let elastic = || Strategy::elastic(4);
        let swap = Swap { after: 0, instances: 1, delay_ms: 0, lingers_ms: 0 };
        for (strategy, fault) in [
            (Strategy::elastic(0), StrategyError::NoMachines),
            (Strategy::balanced(4, Mix { base: 0, percent_above: 101 }), StrategyError::Percent),
            (Strategy { swap: Some(swap), ..elastic() }, StrategyError::EmptySwap),
            (Strategy { upkeep: restore, ..elastic() }, StrategyError::RestoreOfDeleted),
            (
                Strategy { upkeep: Upkeep::Restore { every_ms: 0, for_ms: 1 }, ..Strategy::steady(4) },
                StrategyError::NoRetry,
            ),
            (Strategy { policy: EvictionPolicy::Deallocate, ..elastic() }, StrategyError::DeallocatedCount),
        ] {
            assert_eq!(strategy.check(), Err(fault));
        }
    }
}
