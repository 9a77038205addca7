//! The only place that settles a message: completes, releases or dead-letters it. Settling consumes the delivery, so
//! nothing is settled twice.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::ports::{DeadLetter, Delivery, Queue, Release};
use crate::retry::{Patience, may_pass, persist};

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is deleted: its job is finished.
    Complete,
    /// It goes back to the queue.
    Release(Release),
    /// It goes to the poison queue.
    DeadLetter(DeadLetter),
}

/// Through which client to settle, and how long to try.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// The bounds.
    pub patience: Patience,
}

/// How settling went.
#[derive(Debug)]
#[must_use = "a message that was not settled comes back"]
pub enum Settled {
    /// Done.
    Done,
    /// The lease was lost before: somebody else decides about this message now.
    LeaseLost,
    /// It could not be done in time; the message comes back when its lease ends.
    GaveUp(Error),
}

/// Settles `delivery` on `terms`, trying again while that may help and patience lasts; from the moment that `hurry`
/// gives other terms, on those, without waiting for a try that is under way.
///
/// When an answer was lost and the next try finds the lease gone, the first try is taken to have worked, provided that
/// nobody else can have received the message: it is still before `ours_until`, when the lease ends at the latest. `None`
/// says that the receipt itself is in doubt, because a renewal got no answer.
///
/// # Cancel safety
/// A dropped call may have settled the message; if not, its lease ends by itself.
pub async fn settle(
    delivery: Delivery,
    how: &Settlement,
    ours_until: Option<Instant>,
    terms: Terms,
    hurry: impl Future<Output = Terms>,
) -> Settled {
    let unanswered = AtomicBool::new(false);
    let first = tokio::select! {
        done = attempt(&terms, &delivery, how, &unanswered) => Ok(done),
        hurried = hurry => Err(hurried),
    };
    let done = match first {
        Ok(done) => done,
        Err(hurried) => attempt(&hurried, &delivery, how, &unanswered).await,
    };
    let surely_ours = ours_until.is_some_and(|until| Instant::now() < until);
    match done {
        Ok(()) => Settled::Done,
        Err(error) if error.kind() != ErrorKind::LeaseLost => Settled::GaveUp(error),
        Err(_) if unanswered.load(Relaxed) && surely_ours => Settled::Done,
        Err(_) => Settled::LeaseLost,
    }
}

/// Tries on one set of terms. A release whose new body is too large for the queue is made without it: the counters in
/// it are worth less than the message.
async fn attempt(
    terms: &Terms,
    delivery: &Delivery,
    how: &Settlement,
    unanswered: &AtomicBool,
) -> Result<()> {
    let (queue, receipt) = (&terms.queue, &delivery.receipt);
    let done = tries(terms, unanswered, || async {
        match how {
            Settlement::Complete => queue.complete(receipt).await,
            Settlement::Release(release) => queue.release(receipt, release).await,
            Settlement::DeadLetter(letter) => queue.dead_letter(receipt, &delivery.body, letter).await,
        }
    })
    .await;
    match (how, done) {
        (Settlement::Release(release), Err(error)) if error.kind() == ErrorKind::TooLarge => {
            let bare = Release { body: None, delay: release.delay };
            tries(terms, unanswered, || queue.release(receipt, &bare)).await
        }
        (_, done) => done,
    }
}

async fn tries<F: Future<Output = Result<()>>>(
    terms: &Terms,
    unanswered: &AtomicBool,
    mut call: impl FnMut() -> F,
) -> Result<()> {
    persist("settle a message", terms.patience, may_pass, || {
        let call = call();
        async move {
            // Until the answer is here, this try counts as one whose answer was lost.
            let before = unanswered.swap(true, Relaxed);
            let done = call.await;
            let lost_answer = matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut);
            unanswered.store(lost_answer || before, Relaxed);
            done
        }
    })
    .await
}
