//! When the control loop receives, and how much it asks for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Control;
use super::deliveries::Received;
use crate::lifecycle::Stage;
use crate::retry::bounded;

/// The longest one receive may take. What it leased unheard comes back when the leases end.
const RECEIVE_TRY: Duration = Duration::from_secs(30);

impl Control {
    /// How many messages to ask for; `None` while the worker should not receive.
    pub(super) fn room(&self) -> Option<usize> {
        let rests = self.shared.rules.borrow().conduct.paused;
        let receives = self.life.stage() == Stage::Start && self.receiving.is_none() && !rests;
        let room = if receives { self.shared.capacity(self.slow).room(self.guardians.len()) } else { 0 };
        (room > 0).then_some(room)
    }

    /// Whether nothing is received for a while, whatever arrives.
    fn is_resting(&self) -> bool {
        self.resting_until.is_some_and(|until| until > Instant::now())
    }

    /// When the next receive is due.
    pub(super) fn fetch_at(&self) -> Instant {
        self.resting_until.map_or(self.pace.next(), |until| self.pace.next().max(until))
    }

    /// Receives when that is due; waits for an arrival meanwhile.
    pub(super) fn fetch_perhaps(&mut self) {
        let Some(room) = self.room() else { return };
        if Instant::now() >= self.fetch_at() {
            let (queue, lease) = (Arc::clone(&self.shared.store.queue), self.shared.lease());
            let since = Instant::now();
            let unseen = self.guardians.len() > self.shared.roll.len();
            self.fetched_ends = if unseen { self.fetched_ends.min(since + lease) } else { since + lease };
            self.arrival = None;
            self.receiving = Some(Box::pin(async move {
                let deliveries = bounded("receive", RECEIVE_TRY, queue.receive(room, lease)).await;
                Received { since, lease, deliveries }
            }));
        } else if self.arrival.is_none() && !self.deaf && !self.is_resting() {
            let queue = Arc::clone(&self.shared.store.queue);
            self.arrival = Some(Box::pin(async move { queue.arrived().await }));
        }
    }
}
