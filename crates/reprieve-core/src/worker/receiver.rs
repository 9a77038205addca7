//! Receives messages: at once while there is work and room for it, and at growing intervals while
//! the queue is empty.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::capacity::Capacity;
use super::delivery::RunningJob;
use super::shared::Shared;
use crate::chance;
use crate::error::Result;
use crate::ports::Delivery;
use crate::retry::bounded;

/// The wait after the first empty receive.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest wait of an idle worker. A Storage queue bills every receive, and ten seconds is a
/// short wait for a job that arrives at an idle fleet.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest time for one receive. Messages that it leased without an answer return when their
/// leases end.
const RECEIVE_TRY: Duration = Duration::from_secs(30);

/// The shortest gap between two rounds of the loop that counts as a freeze.
const FREEZE_MIN: Duration = Duration::from_millis(1_500);

/// How long the worker receives nothing after a job was too long for this machine.
const TOO_LONG_REST: Duration = Duration::from_secs(10);

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Decides when to receive and how much, and receives.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    pace: Pace,
    receiving: Pending<Received>,
    arrival: Pending<()>,
    /// Receiving failed. Arrivals are ignored until the backoff ends.
    failed: bool,
    /// When the leases of the last receive end.
    leases_end: Instant,
    /// The worker receives nothing until then, because the last job was too long for this machine.
    rests_until: Option<Instant>,
    /// When the loop last asked for room. It runs every second, so a long gap is a freeze.
    asked_at: Instant,
    /// After a freeze the worker receives nothing until every lease is verified: a message that it
    /// receives could be one that it holds.
    thawed: bool,
}

/// The result of a receive that began at `since`, for leases of length `lease`.
pub(super) struct Received {
    pub(super) since: Instant,
    pub(super) lease: Duration,
    deliveries: Result<Vec<Delivery>>,
}

/// An event of the receiver.
pub(super) enum ReceiverEvent {
    Received(Received),
    /// A message may have become receivable.
    Arrived,
    /// A receive is due.
    Due,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            pace: Pace::new(),
            receiving: None,
            arrival: None,
            failed: false,
            leases_end: Instant::now(),
            rests_until: None,
            asked_at: Instant::now(),
            thawed: false,
        }
    }

    /// Reports whether a receive is under way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Returns when the leases of the last receive end.
    pub(super) fn leases_end(&self) -> Instant {
        self.leases_end
    }

    /// Receives as soon as possible.
    pub(super) fn hurry(&mut self) {
        self.pace.hurry();
    }

    /// Stops waiting for arrivals. A receive under way goes on, because it may have leased
    /// messages.
    pub(super) fn stop(&mut self) {
        self.arrival = None;
    }

    /// Drops a receive under way: messages that it leases return when their leases end.
    pub(super) fn abandon(&mut self) {
        self.receiving = None;
    }

    /// Pauses receiving after a job was too long for this machine. More such jobs may follow, and
    /// another worker should have the time to take them.
    pub(super) fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + TOO_LONG_REST);
        self.arrival = None;
    }

    /// Ends the pause.
    pub(super) fn end_rest(&mut self) {
        self.rests_until = None;
    }

    /// Returns how many messages to receive when `held` are held and `slow` of their jobs are
    /// long-running; `None` to wait.
    fn room(&mut self, held: usize, slow: usize) -> Option<usize> {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.asked_at, now);
        self.thawed |= gap > FREEZE_MIN.max(self.shared.settings.lease / 2);
        if self.thawed {
            self.thawed = self.shared.roll.cards(RunningJob::lease_ends).into_iter().any(|ends| ends <= now);
        }
        let rests = self.shared.rules.get().conduct.paused || self.shared.isolation.is_wanted();
        if self.is_receiving() || self.thawed || rests {
            return None;
        }
        let capacity: Capacity = self.shared.capacity(slow);
        Some(capacity.room(held)).filter(|room| *room > 0)
    }

    /// Returns when the next receive is due.
    fn due(&self) -> Instant {
        self.rests_until.map_or(self.pace.next(), |until| self.pace.next().max(until))
    }

    /// Waits for the next event. Without room, no receive is due and arrivals are ignored.
    /// Cancel-safe: timers, and futures that are kept and polled again.
    pub(super) async fn wait(&mut self, may_receive: bool, held: usize, slow: usize) -> ReceiverEvent {
        let due = if may_receive { self.room(held, slow).map(|_| self.due()) } else { None };
        let far = Instant::now() + LONGEST;
        tokio::select! {
            biased;
            received = ready(&mut self.receiving) => {
                self.receiving = None;
                ReceiverEvent::Received(received)
            }
            () = ready(&mut self.arrival), if due.is_some() => {
                self.arrival = None;
                ReceiverEvent::Arrived
            }
            () = sleep_until(due.unwrap_or(far)), if due.is_some() => ReceiverEvent::Due,
            else => std::future::pending().await,
        }
    }

    /// Takes the result of a receive, and adjusts the pace.
    pub(super) fn received(&mut self, received: Received) -> (Instant, Duration, Vec<Delivery>) {
        let Received { since, lease, deliveries } = received;
        self.failed = deliveries.is_err();
        let deliveries = deliveries.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not receive; trying again");
            Vec::new()
        });
        if deliveries.is_empty() {
            self.pace.slow_down();
        } else {
            self.pace.hurry();
        }
        (since, lease, deliveries)
    }

    /// Starts a receive when one is due; until then waits for an arrival. `unseen`: the last
    /// messages are not all in flight yet.
    pub(super) fn receive_if_due(&mut self, held: usize, slow: usize, unseen: bool) {
        let Some(room) = self.room(held, slow) else { return };
        let now = Instant::now();
        if now >= self.due() {
            let (queue, lease) = (Arc::clone(&self.shared.store.queue), self.shared.lease());
            let ends = now + lease;
            self.leases_end = if unseen { self.leases_end.min(ends) } else { ends };
            self.arrival = None;
            self.receiving = Some(Box::pin(async move {
                let deliveries = bounded("receive", RECEIVE_TRY, queue.receive(room, lease)).await;
                Received { since: now, lease, deliveries }
            }));
        } else if self.arrival.is_none() && !self.failed && self.rests_until.is_none_or(|until| until <= now)
        {
            let queue = Arc::clone(&self.shared.store.queue);
            self.arrival = Some(Box::pin(async move { queue.arrived().await }));
        }
    }
}

/// Awaits the pending future; waits without limit when there is none.
async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// The backoff of receiving.
#[derive(Debug)]
struct Pace {
    wait: Duration,
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { wait: SHORTEST, next: Instant::now() }
    }

    /// Returns when the next receive is due, if there is room.
    fn next(&self) -> Instant {
        self.next
    }

    /// Receives at once: something was received or may have arrived.
    fn hurry(&mut self) {
        self.wait = SHORTEST;
        self.next = Instant::now();
    }

    /// Waits twice as long each time nothing was received or receiving failed, plus or minus a
    /// quarter at random, so that the workers of a fleet do not poll in step.
    fn slow_down(&mut self) {
        self.next = Instant::now() + self.wait.mul_f64(0.75 + chance::fraction() / 2.0);
        self.wait = (self.wait * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_asks_ever_more_rarely_and_a_busy_one_at_once() {
        let mut pace = Pace::new();
        let mut waits = Vec::new();
        for _ in 0..9 {
            pace.slow_down();
            waits.push(pace.next() - Instant::now());
        }
        assert!(waits[0] >= SHORTEST.mul_f64(0.75) && waits[0] <= SHORTEST.mul_f64(1.25), "{waits:?}");
        assert!(waits[8] >= LONGEST.mul_f64(0.75) && waits[8] <= LONGEST.mul_f64(1.25), "{waits:?}");
        pace.hurry();
        assert_eq!(pace.next(), Instant::now());
    }
}
