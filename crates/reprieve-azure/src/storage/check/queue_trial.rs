//! Does with a queue what a worker and a producer do, and measures it.

use std::time::Duration;

use reprieve_core::{ErrorKind, QueueName, Result};
use tokio::time::{Instant, timeout};

use super::super::access::Access;
use super::queue_calls::{Calls, Held, allowed};
use super::trial::{Deed, Deeds, Ground, Tried};
use super::{CHECK_MAX, TRIAL_MAX, scratch_name};

/// Everything that is tried, in this order.
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

/// The seconds that a message of the check may live. In a queue that others use it is invisible for all of them but the
/// last, so that nobody receives it, and gone after that even when this process dies in the middle.
const LIVES: i32 = 60;

/// How long a message is held.
const LEASE: Duration = Duration::from_secs(30);

/// What became of a queue's trial.
#[derive(Debug)]
pub struct QueueTrial {
    /// Which queue it was.
    pub ground: Ground,
    /// Every deed once.
    pub tried: Vec<Tried>,
    /// How long renewals took, as many as there was time for.
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
    // A queue whose making got no answer may have been made.
    let made = trial.deeds.note(Deed::Create, scratch.create().await);
    let ground = match own {
        Some(own) if trial.deeds.denied(Deed::Create) => {
            let calls = Calls::new(access, own)?;
            let left = TRIAL_MAX.saturating_sub(began.elapsed());
            // What there was no time for is said below.
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
    /// All of it, on a queue that nobody else knows.
    async fn scratch(&mut self, queue: &Calls) {
        let sent = self.deeds.note(Deed::Send, queue.send(Duration::ZERO, LIVES).await);
        // Receiving may be tried also where there is nothing to receive.
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

    /// What nobody notices, on a queue that others use.
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

    /// Renews as often as is measured, for `hidden` each; returns what holds the message then.
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
                    // Who got no answer may have a receipt that no longer holds.
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
