//! Receives messages: at once while there is work and room for it, ever more rarely while there is none.

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

/// The longest wait of an idle worker: a Storage queue bills every receive, and a job that waited ten seconds for an
/// idle fleet has not waited long.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest one receive may take. What it leased without an answer comes back when the leases end.
const RECEIVE_TRY: Duration = Duration::from_secs(30);

/// The shortest gap between two turns of the loop that is taken for a freeze.
const FREEZE_MIN: Duration = Duration::from_millis(1_500);

/// How long nothing is received after a job was too long for this machine.
const TOO_LONG_REST: Duration = Duration::from_secs(10);

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Decides when to receive and how much, and does it.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    pace: Pace,
    receiving: Pending<Received>,
    arrival: Pending<()>,
    /// Receiving failed: arrivals are ignored until the pace allows another try.
    failed: bool,
    /// When the leases end that the last receive asked for.
    leases_end: Instant,
    /// Nothing is received until then, because what came last was too long for this machine.
    rests_until: Option<Instant>,
    /// When this was last asked for room. The loop goes round every second, so a long gap is a freeze.
    asked_at: Instant,
    /// Nothing is received after a freeze until every lease is verified: it could be a message that is held here.
    thawed: bool,
}

/// What a receive that was begun at `since`, for leases of this length, came to.
pub(super) struct Received {
    pub(super) since: Instant,
    pub(super) lease: Duration,
    deliveries: Result<Vec<Delivery>>,
}

/// Something that the receiver waited for.
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

    /// Whether a receive is under way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// When the leases end that the last receive asked for.
    pub(super) fn leases_end(&self) -> Instant {
        self.leases_end
    }

    /// Receives at once when that is possible.
    pub(super) fn hurry(&mut self) {
        self.pace.hurry();
    }

    /// Waits for no arrival any more. A receive under way goes on, because it may have leased messages.
    pub(super) fn stop(&mut self) {
        self.arrival = None;
    }

    /// Gives up a receive that is under way: what it leases comes back when the leases end.
    pub(super) fn abandon(&mut self) {
        self.receiving = None;
    }

    /// A job was too long for this machine. There may be more like it, and another worker is to have the time to take
    /// them.
    pub(super) fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + TOO_LONG_REST);
        self.arrival = None;
    }

    /// Ends a rest.
    pub(super) fn end_rest(&mut self) {
        self.rests_until = None;
    }

    /// How many messages to ask for with `held` in hand, of whose jobs `slow` run for long; `None` to wait.
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

    /// When the next receive is due.
    fn due(&self) -> Instant {
        self.rests_until.map_or(self.pace.next(), |until| self.pace.next().max(until))
    }

    /// Waits for the next thing to happen. Nothing is due or arrives without room. Cancel-safe: timers, and futures that
    /// are kept and polled on.
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

    /// Takes in what a receive came to.
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

    /// Receives when that is due; waits for an arrival meanwhile. `unseen`: the last messages are not all in flight yet.
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

/// Awaits what is there; without limit when nothing is.
async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// The pace of receiving.
#[derive(Debug)]
struct Pace {
    wait: Duration,
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { wait: SHORTEST, next: Instant::now() }
    }

    /// When the next receive is due, if there is room for what it brings.
    fn next(&self) -> Instant {
        self.next
    }

    /// Something was received, or may have arrived: go on at once.
    fn hurry(&mut self) {
        self.wait = SHORTEST;
        self.next = Instant::now();
    }

    /// Nothing was received, or receiving failed: wait, twice as long each time, and a random part of it more or less so
    /// that a fleet does not ask in step.
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
