//! The states of a Spot VM, by the table of Azure's
//! [guide to Spot VMs](https://learn.microsoft.com/azure/architecture/guide/spot/spot-eviction) as first published.
//!
//! | row | state | input | conditions | next state | billed |
//! |---|---|---|---|---|---|
//! | 1 | none | deploy | maximum ≥ price, capacity | running | Spot price, disks |
//! | 2 | running | evict | no maximum, capacity | running | Spot price, disks |
//! | 3 | running | evict | no capacity, `Deallocate` | stopped | disks |
//! | 4 | running | evict | no capacity, `Delete` | deleted | nothing |
//! | 5 | running | evict | maximum < price, `Deallocate` | stopped | disks |
//! | 6 | running | evict | maximum < price, `Delete` | deleted | nothing |
//! | 7 | stopped | restart | maximum < price, `Deallocate` | stopped | disks |
//! | 8 | stopped | restart | maximum < price, `Delete` | deleted | nothing |
//! | 9 | stopped | restart | maximum ≥ price, capacity | running | Spot price, disks |
//!
//! Two rows are corrected: the guide says for 1 and 9 "you pay the Max Price you set", but the maximum is only a
//! limit, and what is billed is the Spot price. Rows that the guide leaves out are refusals: to deploy without capacity
//! (`SkuNotAvailable`) or below the price (`SpotPriceGreaterThanProvidedMaxPrice`), and to restart without capacity.

use crate::money::Price;

/// The state of a Spot VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmState {
    /// It was never made.
    None,
    /// It runs, or boots.
    Running,
    /// It is deallocated: it keeps its disks and its quota, and never starts by itself.
    Stopped,
    /// It is gone with its disks, and the instance count of its scale set is one less.
    Deleted,
}

/// What happens to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody asks for it.
    Deploy,
    /// Azure looks whether it may stay: capacity or the price changed.
    Evict,
    /// Somebody starts it again.
    Restart,
}

/// What becomes of an evicted VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// It is deallocated; Azure's default.
    Deallocate,
    /// It is deleted.
    Delete,
}

/// The most that a VM may cost an hour, in USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxPrice {
    /// `-1`, Azure's default: never evicted for its price, of which a regular machine's is the limit.
    OnDemand,
    /// Evicted while the price is higher.
    Of(Price),
}

/// What an input meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// The maximum price of the VM.
    pub max_price: MaxPrice,
    /// The Spot price now.
    pub price: Price,
    /// Whether there is capacity for it.
    pub capacity: bool,
    /// What becomes of it when it is evicted.
    pub policy: EvictionPolicy,
}

/// A refusal to start a VM, by the code that Azure answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `SkuNotAvailable`: there is no capacity.
    SkuNotAvailable,
    /// `SpotPriceGreaterThanProvidedMaxPrice`: the price is above the maximum.
    PriceAboveMax,
}

impl MaxPrice {
    /// Whether a VM with this maximum may run at `price`.
    #[must_use]
    pub fn allows(self, price: Price) -> bool {
        match self {
            Self::OnDemand => true,
            Self::Of(max) => max >= price,
        }
    }
}

impl Conditions {
    /// Why a VM can't be started; the price is compared first.
    ///
    /// # Errors
    ///
    /// The refusal, if there is one.
    pub fn admit(&self) -> Result<(), Refusal> {
        if !self.max_price.allows(self.price) {
            Err(Refusal::PriceAboveMax)
        } else if !self.capacity {
            Err(Refusal::SkuNotAvailable)
        } else {
            Ok(())
        }
    }

    const fn evicted(&self) -> VmState {
        match self.policy {
            EvictionPolicy::Deallocate => VmState::Stopped,
            EvictionPolicy::Delete => VmState::Deleted,
        }
    }
}

impl VmState {
    /// The state after `input`. A state that the input does not concern stays.
    #[must_use]
    pub fn after(self, input: Input, conditions: &Conditions) -> Self {
        let admitted = conditions.admit();
        match (self, input) {
            (Self::None | Self::Deleted, Input::Deploy) | (Self::Stopped, Input::Restart)
                if admitted.is_ok() =>
            {
                Self::Running
            }
            (Self::Running, Input::Evict) if admitted.is_err() => conditions.evicted(),
            // A VM that is deleted on evictions can be stopped by hand. Its price evicts it then, too.
            (Self::Stopped, Input::Restart) if admitted == Err(Refusal::PriceAboveMax) => {
                conditions.evicted()
            }
            (state, Input::Deploy | Input::Evict | Input::Restart) => state,
        }
    }

    /// Whether its cores are billed, at the Spot price and never at the maximum.
    #[must_use]
    pub const fn bills_cores(self) -> bool {
        matches!(self, Self::Running)
    }

    /// Whether its disks are billed; its cores count against the quota then, too.
    #[must_use]
    pub const fn holds_disks(self) -> bool {
        matches!(self, Self::Running | Self::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::EvictionPolicy::{Deallocate, Delete};
    use super::Input::{Deploy, Evict, Restart};
    use super::VmState::{Deleted, None, Running, Stopped};
    use super::{Conditions, EvictionPolicy, Input, MaxPrice, Price, Refusal, VmState};

    const PRICE: u64 = 50_000_000;

    /// The maximum of a VM whose price is [`PRICE`].
    #[derive(Clone, Copy)]
    enum Max {
        No,
        Equal,
        Below,
    }

    fn conditions(max: Max, capacity: bool, policy: EvictionPolicy) -> Conditions {
        let max_price = match max {
            Max::No => MaxPrice::OnDemand,
            Max::Equal => MaxPrice::Of(Price::from_nanos_per_hour(PRICE)),
            Max::Below => MaxPrice::Of(Price::from_nanos_per_hour(PRICE - 10_000)),
        };
        Conditions { max_price, price: Price::from_nanos_per_hour(PRICE), capacity, policy }
    }

    /// `billed`: whether cores, and whether disks.
    #[track_caller]
    fn row(state: VmState, input: Input, conditions: &Conditions, next: VmState, billed: (bool, bool)) {
        let found = state.after(input, conditions);
        assert_eq!((found, (found.bills_cores(), found.holds_disks())), (next, billed));
    }

    #[test]
    fn row_1_a_vm_is_deployed_where_its_maximum_and_capacity_allow_it() {
        for policy in [Deallocate, Delete] {
            row(None, Deploy, &conditions(Max::Equal, true, policy), Running, (true, true));
        }
    }

    #[test]
    fn row_2_no_price_evicts_a_vm_without_a_maximum() {
        for policy in [Deallocate, Delete] {
            row(Running, Evict, &conditions(Max::No, true, policy), Running, (true, true));
        }
    }

    #[test]
    fn row_3_without_capacity_a_vm_is_deallocated() {
        row(Running, Evict, &conditions(Max::No, false, Deallocate), Stopped, (false, true));
    }

    #[test]
    fn row_4_without_capacity_a_vm_is_deleted() {
        row(Running, Evict, &conditions(Max::No, false, Delete), Deleted, (false, false));
    }

    #[test]
    fn row_5_above_its_maximum_a_vm_is_deallocated() {
        row(Running, Evict, &conditions(Max::Below, true, Deallocate), Stopped, (false, true));
    }

    #[test]
    fn row_6_above_its_maximum_a_vm_is_deleted() {
        row(Running, Evict, &conditions(Max::Below, true, Delete), Deleted, (false, false));
    }

    #[test]
    fn row_7_a_stopped_vm_stays_so_above_its_maximum() {
        row(Stopped, Restart, &conditions(Max::Below, true, Deallocate), Stopped, (false, true));
    }

    #[test]
    fn row_8_a_stopped_vm_that_evictions_delete_is_deleted_above_its_maximum() {
        row(Stopped, Restart, &conditions(Max::Below, true, Delete), Deleted, (false, false));
    }

    #[test]
    fn row_9_a_stopped_vm_restarts_where_its_maximum_and_capacity_allow_it() {
        row(Stopped, Restart, &conditions(Max::Equal, true, Deallocate), Running, (true, true));
    }

    #[test]
    fn what_the_table_leaves_out_is_refused() {
        row(None, Deploy, &conditions(Max::No, false, Delete), None, (false, false));
        row(None, Deploy, &conditions(Max::Below, true, Delete), None, (false, false));
        row(Stopped, Restart, &conditions(Max::No, false, Deallocate), Stopped, (false, true));
        assert_eq!(conditions(Max::No, false, Delete).admit(), Err(Refusal::SkuNotAvailable));
        assert_eq!(conditions(Max::Below, false, Delete).admit(), Err(Refusal::PriceAboveMax));
    }

    #[test]
    fn a_stopped_vm_never_starts_by_itself() {
        row(Stopped, Evict, &conditions(Max::No, true, Deallocate), Stopped, (false, true));
    }
}
