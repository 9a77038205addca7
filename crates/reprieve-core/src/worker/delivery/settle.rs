//! Settles a message: completes, releases or dead-letters it. Settling consumes the delivery, so a
//! message is never settled twice.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::lease::LateAnswers;
use crate::error::{Error, ErrorKind, Result};
use crate::ports::{DeadLetter, Delivery, Queue, Receipt, Release};
use crate::retry::{Patience, bounded, may_pass, persist};
use crate::worker::measure::Recent;

/// How late the end of patience may be noticed before that counts as a freeze.
const LATE: Duration = Duration::from_millis(500);

/// How a message is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    /// Deletes it: its job is finished.
    Complete,
    /// Returns it to the queue.
    Release(Release),
    /// Moves it to the poison queue, with this body.
    DeadLetter(DeadLetter, Vec<u8>),
}

/// The client for settling, and how long to try.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) patience: Patience,
    /// One permit for each call that may be under way at once; `None` for no limit.
    pub(super) turns: Option<Arc<Semaphore>>,
}

/// A message to settle.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) delivery: Delivery,
    /// Renewals that have not been answered: one of them may return the valid receipt.
    pub(super) late: LateAnswers,
    /// The answer of a renewal is lost, and no other renewal has succeeded since.
    pub(super) in_doubt: bool,
    /// When the lease ends.
    pub(super) ends: Instant,
}

/// The result of settling.
#[derive(Debug)]
#[must_use = "a message that was not settled comes back"]
pub(super) enum Settled {
    Done,
    /// The lease was lost before: the message belongs to another owner.
    LeaseLost,
    /// The new body is too large for the queue.
    TooLarge(Held),
    /// It could not be settled in time; the message returns when its lease ends.
    GaveUp(Error),
}

/// A settlement under way.
struct Settling<'a> {
    held: Held,
    how: &'a Settlement,
    took: &'a Recent,
    /// A try was not answered: it may have been applied.
    unanswered: bool,
}

/// Settles `held` on `terms`, with retries while they may help and patience lasts. Once `hurry`
/// returns other terms, continues on those without waiting for a try under way. `took` measures
/// single calls.
///
/// # Cancel safety
/// A dropped call may have settled the message; if not, the lease ends by itself.
pub(super) async fn settle(
    held: Held,
    how: &Settlement,
    terms: Terms,
    hurry: impl Future<Output = Terms>,
    took: &Recent,
) -> Settled {
    let mut settling = Settling { held, how, took, unanswered: false };
    let hurried = tokio::select! {
        biased;
        hurried = hurry => hurried,
        done = settling.persist(&terms) => return settling.end(done),
    };
    let done = settling.persist(&hurried).await;
    settling.end(done)
}

impl Settling<'_> {
    /// Tries with the known receipt, and with the receipt of a late answer as soon as it arrives.
    async fn persist(&mut self, terms: &Terms) -> Result<()> {
        loop {
            let Self { held, how, took, unanswered } = self;
            let Held { delivery, late, .. } = held;
            let done = tokio::select! {
                biased;
                renewed = late.next() => Err(renewed.receipt()),
                done = tries(terms, delivery, how, took, unanswered) => Ok(done),
            };
            match done {
                Err(Some(receipt)) => self.adopt(receipt),
                Err(None) => {}
                // The late renewal may have been applied, and its receipt may be the valid one.
                Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost && !self.held.late.is_empty() => {
                    let Ok(renewed) = timeout_at(terms.patience.until, self.held.late.next()).await else {
                        return Err(error);
                    };
                    self.held.in_doubt = true;
                    if let Some(receipt) = renewed.receipt() {
                        self.adopt(receipt);
                    }
                }
                Ok(done) => return done,
            }
        }
    }

    fn adopt(&mut self, receipt: Receipt) {
        self.held.delivery.receipt = receipt;
        self.held.in_doubt = false;
    }

    fn end(self, done: Result<()>) -> Settled {
        let error = match done {
            Ok(()) => return Settled::Done,
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::TooLarge => Settled::TooLarge(self.held),
            ErrorKind::LeaseLost if self.unanswered && self.was_applied() => Settled::Done,
            ErrorKind::LeaseLost => Settled::LeaseLost,
            _ => Settled::GaveUp(error),
        }
    }

    /// Reports whether an unanswered try was surely applied, now that the next one finds the
    /// receipt void. After an unanswered renewal, the receipt itself is in doubt. A delete that
    /// finds no message is done at any time; for other settlements, the message may belong to
    /// another owner once the lease has ended.
    fn was_applied(&self) -> bool {
        let ours = *self.how == Settlement::Complete || Instant::now() < self.held.ends;
        self.held.late.is_empty() && !self.held.in_doubt && ours
    }
}

/// Calls until the call succeeds or patience ends. If patience ends without an answer, or late
/// because the machine was frozen, tries once more.
async fn tries(
    terms: &Terms,
    delivery: &Delivery,
    how: &Settlement,
    took: &Recent,
    unanswered: &mut bool,
) -> Result<()> {
    const OPERATION: &str = "settle a message";
    let open = std::sync::atomic::AtomicBool::new(*unanswered);
    let call = || call(terms, delivery, how, took, &open);
    let mut done = persist(OPERATION, terms.patience, may_pass, call).await;
    let is_late = Instant::now() > terms.patience.until + LATE;
    if matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut || is_late && may_pass(error)) {
        done = bounded(OPERATION, terms.patience.each, call()).await;
    }
    *unanswered = open.into_inner();
    done
}

async fn call(
    terms: &Terms,
    delivery: &Delivery,
    how: &Settlement,
    took: &Recent,
    unanswered: &std::sync::atomic::AtomicBool,
) -> Result<()> {
    use std::sync::atomic::Ordering::Relaxed;
    let _turn = match &terms.turns {
        Some(turns) => turns.acquire().await.ok(),
        None => None,
    };
    // Until the answer arrives, this try counts as unanswered.
    let (before, began) = (unanswered.swap(true, Relaxed), Instant::now());
    let (queue, receipt) = (&terms.queue, &delivery.receipt);
    let done = match how {
        Settlement::Complete => queue.complete(receipt).await,
        Settlement::Release(release) => queue.release(receipt, release).await,
        Settlement::DeadLetter(letter, body) => queue.dead_letter(receipt, body, letter).await,
    };
    let lost_answer = matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut);
    unanswered.store(lost_answer || before, Relaxed);
    if done.is_ok() {
        took.note(began.elapsed());
    }
    done
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;
    use crate::memory::{self, Fault, Faults, Op};
    use crate::ports::{NewMessage, Store};

    const LEASE: Duration = Duration::from_secs(60);

    async fn held(store: &Store) -> Held {
        let message = NewMessage { body: b"{}".to_vec(), delay: Duration::ZERO };
        store.queue.send(vec![message]).await.unwrap();
        let delivery = store.queue.receive(1, LEASE).await.unwrap().remove(0);
        Held { delivery, late: LateAnswers::default(), in_doubt: false, ends: Instant::now() + LEASE }
    }

    async fn settled(store: &Store, held: Held, how: &Settlement) -> Settled {
        let patience = Patience::calm(Duration::from_secs(2), held.ends);
        let terms = Terms { queue: Arc::clone(&store.queue), patience, turns: None };
        settle(held, how, terms, pending(), &Recent::new(LEASE)).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_applied_without_an_answer_is_done_while_the_receipt_is_sure() {
        for (how, op) in
            [(Settlement::Complete, Op::Complete), (Settlement::Release(Release::default()), Op::Release)]
        {
            for in_doubt in [false, true] {
                let (store, faults) = Faults::wrap(memory::store());
                let held = Held { in_doubt, ..held(&store).await };
                faults.next_calls(op, 1, Fault::LoseAnswer);
                let settled = settled(&store, held, &how).await;
                assert_eq!(matches!(settled, Settled::Done), !in_doubt, "{how:?}: {settled:?}");
                assert_eq!(matches!(settled, Settled::LeaseLost), in_doubt, "{how:?}: {settled:?}");
            }
        }
    }

    /// The machine is frozen in the middle of the call, until long after the lease has ended.
    #[tokio::test(start_paused = true)]
    async fn after_a_freeze_it_is_tried_once_more_and_neither_end_is_given_up() {
        for (how, op, done) in [
            (Settlement::Complete, Op::Complete, true),
            (Settlement::Release(Release::default()), Op::Release, false),
        ] {
            let inner = memory::store();
            let (store, faults) = Faults::wrap(inner.clone());
            let held = held(&store).await;
            faults.next_calls(op, 1, Fault::Hang);
            let receipt = Receipt::new(held.delivery.receipt.as_str());
            let settling = tokio::spawn({
                let how = how.clone();
                async move { settled(&store, held, &how).await }
            });
            faults.called(op, 1).await;
            // The settlement was applied anyway.
            match &how {
                Settlement::Release(release) => inner.queue.release(&receipt, release).await.unwrap(),
                _ => inner.queue.complete(&receipt).await.unwrap(),
            }
            advance(LEASE * 2).await;
            let settled = settling.await.unwrap();
            assert_eq!(matches!(settled, Settled::Done), done, "{how:?}: {settled:?}");
            assert_eq!(matches!(settled, Settled::LeaseLost), !done, "{how:?}: {settled:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_answer_is_tried_until_patience_ends() {
        let (store, faults) = Faults::wrap(memory::store());
        let held = held(&store).await;
        faults.every_call(Op::Complete, Fault::Hang);
        let (done, ()) = tokio::join!(settled(&store, held, &Settlement::Complete), sleep(LEASE));
        assert!(matches!(done, Settled::GaveUp(_)), "{done:?}");
    }
}
