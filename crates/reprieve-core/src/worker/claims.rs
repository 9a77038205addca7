//! Claims in the store, of which a limited number can be held in the whole fleet: the right to have one's machine
//! replaced. They are slots of the fleet under a name that no kind of job has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::fleet_slots::{FleetSlot, FleetSlots, SLOTS_MAX};
use crate::error::Result;
use crate::ids::WorkerId;
use crate::ports::{RecordStore, Store};

/// The name of the slots. A kind of job has no line break in its name.
const NAME: &str = "\nrepair";

/// How long a claim outlives its holder, and a tenth more: about as long as the platform takes to replace a machine
/// that is gone.
const LEASE: Duration = Duration::from_mins(10);

/// The claims, as one worker sees them.
#[derive(Debug)]
pub struct Claims {
    records: Arc<dyn RecordStore>,
    holder: WorkerId,
    worker: WorkerId,
    /// What each of this worker's claims has one more reference to.
    held: Arc<()>,
    /// By their number, which grows with the fleet. Each remembers since when the claims of others are unchanged.
    slots: Mutex<BTreeMap<u32, Arc<FleetSlots>>>,
}

/// A claim, renewed until it is dropped, and then released.
#[derive(Debug)]
pub struct Claim {
    slot: FleetSlot,
    _held: Arc<()>,
}

impl Claim {
    /// Whether it could not be renewed, so that another machine may have it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slot.watch().is_lost()
    }
}

impl Claims {
    /// The claims in this store, for this worker of the machine with this id, such as the id of its boot.
    #[must_use]
    pub fn new(store: &Store, machine: &str, worker: &WorkerId) -> Self {
        let (records, holder, worker) = (Arc::clone(&store.records), WorkerId::new(machine), worker.clone());
        Self { records, holder, worker, held: Arc::default(), slots: Mutex::default() }
    }

    /// Whether another worker of this machine holds a claim. One that was not renewed for ten minutes, as far as this
    /// worker saw or by the store's clock, is none. Nor is what is left of one that this worker has lost: it is released.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn is_held_by_another_worker(&self) -> Result<bool> {
        if self.holder.as_str().is_empty() {
            return Ok(false);
        }
        let holds_none = Arc::strong_count(&self.held) == 1;
        self.slots(1).is_held_by_another(holds_none).await
    }

    /// Takes one of `count` claims; `None` if none is free, or if the store does not answer. That of a worker that
    /// died is taken over once it has been seen unchanged for eleven minutes. Must be called on the control thread.
    /// Cancel-safe: one that is taken for nobody is released.
    pub async fn take(&self, count: usize) -> Option<Claim> {
        let count = u32::try_from(count).unwrap_or(SLOTS_MAX).clamp(1, SLOTS_MAX);
        let held = Arc::clone(&self.held);
        self.slots(count).take().await.map(|slot| Claim { slot, _held: held })
    }

    fn slots(&self, count: u32) -> Arc<FleetSlots> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let slots = FleetSlots::new(NAME, count, LEASE, Arc::clone(&self.records));
            Arc::new(slots.held_by(self.holder.clone(), &self.worker))
        };
        Arc::clone(slots.entry(count).or_insert_with(new))
    }
}
