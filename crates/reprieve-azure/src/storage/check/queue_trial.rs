//! Performs and measures a worker's and a producer's operations on a queue.

use std::time::Duration;

use reprieve_core::{ErrorKind, QueueName, Result};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::trial::{Attempt, Attempts, StoreOperation, TrialTarget};
use super::{CHECK_MAX, TRIAL_MAX, scratch_name};
use crate::storage::call::{Access, Effort, temporary};
use crate::storage::queue::{QueueCalls, ReceiptParts, encode_body};

/// Every operation, in the order of the trial.
const OPERATIONS: [StoreOperation; 9] = [
    StoreOperation::Create,
    StoreOperation::Send,
    StoreOperation::Receive,
    StoreOperation::Renew,
    StoreOperation::Release,
    StoreOperation::Delete,
    StoreOperation::Peek,
    StoreOperation::Count,
    StoreOperation::Remove,
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
    pub target: TrialTarget,
    /// The outcome of every operation.
    pub attempts: Vec<Attempt>,
    /// The durations of the renewals, as many as the time allowed.
    pub round_trips: Vec<Duration>,
}

/// A trial under way.
#[derive(Default)]
struct Trial {
    attempts: Attempts,
    round_trips: Vec<Duration>,
}

pub(super) async fn run(access: &Access, own: Option<&QueueName>) -> Result<QueueTrial> {
    let began = Instant::now();
    let mut trial = Trial::default();
    let name = scratch_name();
    let scratch = TrialQueue::new(access, &QueueName::parse(name.as_str())?)?;
    // A queue may have been created even if the answer got lost.
    let made = trial.attempts.note(StoreOperation::Create, scratch.0.create().await);
    let target = match own {
        Some(own) if trial.attempts.denied(StoreOperation::Create) => {
            let calls = TrialQueue::new(access, own)?;
            let left = TRIAL_MAX.saturating_sub(began.elapsed());
            // Operations that the time did not allow are added below.
            let _late = timeout(left, trial.own(&calls)).await;
            TrialTarget::Own(own.as_str().to_owned())
        }
        _ => {
            if made.is_some() {
                let left = TRIAL_MAX.saturating_sub(began.elapsed());
                let _late = timeout(left, trial.scratch(&scratch)).await;
            }
            let left = CHECK_MAX.saturating_sub(began.elapsed());
            let removed = scratch.0.destroy_within(left).await;
            if made.is_some() {
                trial.attempts.note(StoreOperation::Remove, removed);
            }
            TrialTarget::Scratch(name)
        }
    };
    let why = if made.is_none() && matches!(target, TrialTarget::Scratch(_)) {
        "there is no queue to try it on"
    } else {
        "there was no time left"
    };
    Ok(QueueTrial {
        target,
        attempts: trial.attempts.complete(&OPERATIONS, why),
        round_trips: trial.round_trips,
    })
}

impl Trial {
    /// All operations, on a scratch queue.
    async fn scratch(&mut self, queue: &TrialQueue) {
        let sent = self.attempts.note(StoreOperation::Send, queue.send(Duration::ZERO, LIVES).await);
        // Receiving from an empty queue also shows whether it is permitted.
        let received = self.attempts.note(StoreOperation::Receive, queue.receive(LEASE).await).flatten();
        let leased = self.renew(queue, received.or(sent), |_| LEASE).await;
        let released = match &leased {
            Some(leased) => queue.update(leased, Duration::ZERO).await.map(Some),
            None => allowed(queue.update(&Leased::of_nothing(), Duration::ZERO).await).map(|()| None),
        };
        let released = self.attempts.note(StoreOperation::Release, released).flatten();
        self.attempts.note(StoreOperation::Peek, queue.0.peek("peek at messages", 1).await);
        self.delete(queue, released.or(leased)).await;
        self.attempts.note(StoreOperation::Count, queue.0.count().await);
    }

    /// The operations that other clients do not notice, on a shared queue.
    async fn own(&mut self, queue: &TrialQueue) {
        const TAKES: &str = "it would take a job from a worker";
        self.attempts.note(StoreOperation::Peek, queue.0.peek("peek at messages", 1).await);
        self.attempts.note(StoreOperation::Count, queue.0.count().await);
        let began = Instant::now();
        let sent = self.attempts.note(StoreOperation::Send, queue.send(seconds(LIVES - 1), LIVES).await);
        let hidden = |now: Instant| {
            let gone = i32::try_from((now - began).as_secs()).unwrap_or(LIVES);
            seconds((LIVES - 2 - gone).max(1))
        };
        let leased = self.renew(queue, sent, hidden).await;
        self.delete(queue, leased).await;
        self.attempts.not_tried(StoreOperation::Receive, TAKES);
        self.attempts.not_tried(
            StoreOperation::Release,
            "others would receive the message; it needs what renewing needs",
        );
        self.attempts.not_tried(StoreOperation::Remove, "jobs use the queue");
    }

    /// Renews up to [`ROUND_TRIPS`] times, for `hidden` each; returns the last receipt.
    async fn renew(
        &mut self,
        queue: &TrialQueue,
        leased: Option<Leased>,
        hidden: impl Fn(Instant) -> Duration,
    ) -> Option<Leased> {
        let Some(mut leased) = leased else {
            let nothing = queue.update(&Leased::of_nothing(), Duration::from_secs(1)).await;
            self.attempts.note(StoreOperation::Renew, allowed(nothing));
            return None;
        };
        let began = Instant::now();
        loop {
            let now = Instant::now();
            match queue.update(&leased, hidden(now)).await {
                Ok(renewed) => {
                    self.round_trips.push(now.elapsed());
                    leased = renewed;
                    if self.round_trips.len() == ROUND_TRIPS || began.elapsed() > MEASURE_MAX {
                        self.attempts.note(StoreOperation::Renew, Ok(()));
                        return Some(leased);
                    }
                }
                Err(error) => {
                    // Without an answer, the receipt may no longer be valid.
                    let in_doubt = error.kind() != ErrorKind::Denied;
                    self.attempts.note(StoreOperation::Renew, Err::<(), _>(error));
                    return (!in_doubt).then_some(leased);
                }
            }
        }
    }

    async fn delete(&mut self, queue: &TrialQueue, leased: Option<Leased>) {
        let deleted = match leased {
            Some(leased) => queue.delete(&leased).await,
            None => allowed(queue.delete(&Leased::of_nothing()).await),
        };
        self.attempts.note(StoreOperation::Delete, deleted);
    }
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

/// The body of a check's message, for people who find one.
const BODY: &[u8] = br#"{"reprieve":"a message of `reprieve doctor`; it may be deleted"}"#;

/// A trial's queue. Its calls are retried where that may help, and its messages expire.
struct TrialQueue(QueueCalls);

/// The message id and pop receipt of a leased message.
struct Leased {
    id: String,
    pop: String,
}

impl TrialQueue {
    fn new(access: &Access, name: &QueueName) -> Result<Self> {
        QueueCalls::new(access, name.clone(), Effort::CHECK).map(Self)
    }

    /// Makes a call, and repeats it where that may help.
    async fn call<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T> {
        Effort::CHECK.repeat(operation, Effort::CHECK.whole_try(), temporary, call).await
    }

    /// Sends a message that is invisible for `hidden` and expires after `lives` seconds.
    async fn send(&self, hidden: Duration, lives: i32) -> Result<Leased> {
        const OPERATION: &str = "send a message";
        let text = encode_body(BODY).unwrap_or_default();
        let sent = self.call(OPERATION, || self.0.put_for(OPERATION, &text, hidden, lives)).await?;
        Ok(Leased { id: sent.id, pop: sent.pop })
    }

    /// Receives a message, if there is one.
    async fn receive(&self, lease: Duration) -> Result<Option<Leased>> {
        const OPERATION: &str = "receive messages";
        let received = self.call(OPERATION, || self.0.receive(OPERATION, 1, lease)).await?;
        Ok(received.into_iter().next().map(|one| Leased { id: one.id, pop: one.pop }))
    }

    /// Makes the message invisible for `hidden` from now. Not repeated: a second try would have an
    /// old receipt.
    async fn update(&self, leased: &Leased, hidden: Duration) -> Result<Leased> {
        let pop = self.0.update("renew a lease", &leased.as_receipt(), hidden, None).await?;
        Ok(Leased { id: leased.id.clone(), pop })
    }

    async fn delete(&self, leased: &Leased) -> Result<()> {
        const OPERATION: &str = "delete a message";
        self.call(OPERATION, || async { self.0.delete(OPERATION, &leased.as_receipt()).await }).await
    }
}

impl Leased {
    fn as_receipt(&self) -> ReceiptParts<'_> {
        ReceiptParts::of(&self.id, &self.pop)
    }

    /// A receipt of a message that does not exist. The service checks permissions before it looks
    /// for the message.
    fn of_nothing() -> Self {
        Self { id: Uuid::now_v7().to_string(), pop: "AgAAAAMAAAAAAAAAAAAAAAAAAAA=".to_owned() }
    }
}

/// Whether a call with [`Leased::of_nothing`] is permitted: then the service reports a missing
/// message instead of a refusal.
fn allowed<T>(answer: Result<T>) -> Result<()> {
    match answer {
        Err(error)
            if matches!(error.kind(), ErrorKind::LeaseLost | ErrorKind::NotFound | ErrorKind::Invalid) =>
        {
            Ok(())
        }
        answer => answer.map(drop),
    }
}
