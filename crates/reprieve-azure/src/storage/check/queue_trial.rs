//! Performs and measures a worker's and a producer's operations on a queue.

use std::time::Duration;

use reprieve_core::{ErrorKind, QueueName, Result};
use tokio::time::{Instant, timeout};

use super::queue_calls::{Calls, Held, allowed};
use super::trial::{Deed, Deeds, Ground, Tried};
use super::{CHECK_MAX, TRIAL_MAX, scratch_name};
use crate::storage::call::Access;

/// Every operation, in the order of the trial.
const DEEDS: [Deed; 9] = [
    Deed::Create,
    Deed::Send,
    Deed::Receive,
    Deed::Renew,
    Deed::Release,
    Deed::Delete,
    Deed::Peek,
    Deed::Count,
    Deed::Remove,
];

/// How many renewals are measured, and for how long at most.
const ROUND_TRIPS: usize = 20;
const MEASURE_MAX: Duration = Duration::from_secs(4);

/// How many seconds a message of the check lives. In a shared queue it is invisible for all but the
/// last of them, so no worker receives it, and it expires afterwards even if this process dies
/// midway.
const LIVES: i32 = 60;

/// The lease of a message in the scratch queue.
const LEASE: Duration = Duration::from_secs(30);

/// The results of a queue's trial.
#[derive(Debug)]
pub struct QueueTrial {
    /// The queue that was used.
    pub ground: Ground,
    /// The outcome of every operation.
    pub tried: Vec<Tried>,
    /// The durations of the renewals, as many as the time allowed.
    pub round_trips: Vec<Duration>,
}

/// A trial under way.
#[derive(Default)]
struct Trial {
    deeds: Deeds,
    round_trips: Vec<Duration>,
}

pub(super) async fn run(access: &Access, own: Option<&QueueName>) -> Result<QueueTrial> {
    let began = Instant::now();
    let mut trial = Trial::default();
    let name = scratch_name();
    let scratch = Calls::new(access, &QueueName::parse(name.as_str())?)?;
    // A queue may have been created even if the answer got lost.
    let made = trial.deeds.note(Deed::Create, scratch.create().await);
    let ground = match own {
        Some(own) if trial.deeds.denied(Deed::Create) => {
            let calls = Calls::new(access, own)?;
            let left = TRIAL_MAX.saturating_sub(began.elapsed());
            // Operations that the time did not allow are added below.
            let _late = timeout(left, trial.own(&calls)).await;
            Ground::Own(own.as_str().to_owned())
        }
        _ => {
            if made.is_some() {
                let left = TRIAL_MAX.saturating_sub(began.elapsed());
                let _late = timeout(left, trial.scratch(&scratch)).await;
            }
            let left = CHECK_MAX.saturating_sub(began.elapsed());
            let removed = scratch.remove(left).await;
            if made.is_some() {
                trial.deeds.note(Deed::Remove, removed);
            }
            Ground::Scratch(name)
        }
    };
    let why = if made.is_none() && matches!(ground, Ground::Scratch(_)) {
        "there is no queue to try it on"
    } else {
        "there was no time left"
    };
    Ok(QueueTrial { ground, tried: trial.deeds.complete(&DEEDS, why), round_trips: trial.round_trips })
}

impl Trial {
    /// All operations, on a scratch queue.
    async fn scratch(&mut self, queue: &Calls) {
        let sent = self.deeds.note(Deed::Send, queue.send(Duration::ZERO, LIVES).await);
        // Receiving from an empty queue also shows whether it is permitted.
        let received = self.deeds.note(Deed::Receive, queue.receive(LEASE).await).flatten();
        let held = self.renew(queue, received.or(sent), |_| LEASE).await;
        let released = match &held {
            Some(held) => queue.update(held, Duration::ZERO).await.map(Some),
            None => allowed(queue.update(&Held::of_nothing(), Duration::ZERO).await).map(|()| None),
        };
        let released = self.deeds.note(Deed::Release, released).flatten();
        self.deeds.note(Deed::Peek, queue.peek(1).await);
        self.delete(queue, released.or(held)).await;
        self.deeds.note(Deed::Count, queue.count().await);
    }

    /// The operations that other clients do not notice, on a shared queue.
    async fn own(&mut self, queue: &Calls) {
        const TAKES: &str = "it would take a job from a worker";
        self.deeds.note(Deed::Peek, queue.peek(1).await);
        self.deeds.note(Deed::Count, queue.count().await);
        let began = Instant::now();
        let sent = self.deeds.note(Deed::Send, queue.send(seconds(LIVES - 1), LIVES).await);
        let hidden = |now: Instant| {
            let gone = i32::try_from((now - began).as_secs()).unwrap_or(LIVES);
            seconds((LIVES - 2 - gone).max(1))
        };
        let held = self.renew(queue, sent, hidden).await;
        self.delete(queue, held).await;
        self.deeds.not_tried(Deed::Receive, TAKES);
        self.deeds.not_tried(Deed::Release, "others would receive the message; it needs what renewing needs");
        self.deeds.not_tried(Deed::Remove, "jobs use the queue");
    }

    /// Renews up to [`ROUND_TRIPS`] times, for `hidden` each; returns the last receipt.
    async fn renew(
        &mut self,
        queue: &Calls,
        held: Option<Held>,
        hidden: impl Fn(Instant) -> Duration,
    ) -> Option<Held> {
        let Some(mut held) = held else {
            let nothing = queue.update(&Held::of_nothing(), Duration::from_secs(1)).await;
            self.deeds.note(Deed::Renew, allowed(nothing));
            return None;
        };
        let began = Instant::now();
        loop {
            let now = Instant::now();
            match queue.update(&held, hidden(now)).await {
                Ok(renewed) => {
                    self.round_trips.push(now.elapsed());
                    held = renewed;
                    if self.round_trips.len() == ROUND_TRIPS || began.elapsed() > MEASURE_MAX {
                        self.deeds.note(Deed::Renew, Ok(()));
                        return Some(held);
                    }
                }
                Err(error) => {
                    // Without an answer, the receipt may no longer be valid.
                    let in_doubt = error.kind() != ErrorKind::Denied;
                    self.deeds.note(Deed::Renew, Err::<(), _>(error));
                    return (!in_doubt).then_some(held);
                }
            }
        }
    }

    async fn delete(&mut self, queue: &Calls, held: Option<Held>) {
        let deleted = match held {
            Some(held) => queue.delete(&held).await,
            None => allowed(queue.delete(&Held::of_nothing()).await),
        };
        self.deeds.note(Deed::Delete, deleted);
    }
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}
