//! The only place that settles a message: completes, releases or dead-letters it. Settling consumes the delivery, so
//! nothing is settled twice.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::{Error, ErrorKind};
use crate::ports::{DeadLetter, Delivery, Queue, Release};
use crate::retry::{Patience, persist};

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

/// Settles `delivery`, trying again while that may help and `patience` lasts.
///
/// When an answer was lost and the next try finds the lease gone, the first try is taken to have worked: nobody else
/// could have received the message in between, for the lease had not ended.
///
/// # Cancel safety
/// A dropped call may have settled the message; if not, its lease ends by itself.
pub async fn settle(queue: &dyn Queue, delivery: Delivery, how: &Settlement, patience: Patience) -> Settled {
    let unanswered = AtomicBool::new(false);
    let receipt = &delivery.receipt;
    let done = persist("settle a message", patience, Error::is_temporary, || async {
        // Until the answer is here, this try counts as one whose answer was lost.
        let before = unanswered.swap(true, Relaxed);
        let done = match how {
            Settlement::Complete => queue.complete(receipt).await,
            Settlement::Release(release) => queue.release(receipt, release).await,
            Settlement::DeadLetter(letter) => queue.dead_letter(receipt, letter).await,
        };
        let lost_answer = matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut);
        unanswered.store(lost_answer || before, Relaxed);
        done
    })
    .await;
    match done {
        Ok(()) => Settled::Done,
        Err(error) if error.kind() == ErrorKind::LeaseLost && unanswered.load(Relaxed) => Settled::Done,
        Err(error) if error.kind() == ErrorKind::LeaseLost => Settled::LeaseLost,
        Err(error) => Settled::GaveUp(error),
    }
}
