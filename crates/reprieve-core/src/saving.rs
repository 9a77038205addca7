//! Saves in the middle of a step: the step hands its state to the run that drives it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::codec::Encoded;

/// Where a step and the run that drives it meet to save in the middle of the step.
#[derive(Debug, Default)]
pub(crate) struct StepSaves {
    /// When a save is due; `None` before the first step.
    due: Mutex<Option<Instant>>,
    due_changed: Notify,
    /// A state of this delivery was saved and loaded in memory, so it can be resumed.
    pub(crate) checked: AtomicBool,
    /// States of this kind of job are compressed.
    packs: AtomicBool,
    /// One request at a time, and no attachment changes during one.
    turn: AsyncMutex<()>,
    request: Mutex<Option<SaveRequest>>,
    /// The newest checkpoint with a damaged attachment, which the step has read.
    damaged: Mutex<Option<u64>>,
}

/// A step's request to save this state.
#[derive(Debug)]
pub(crate) struct SaveRequest {
    pub(crate) state: Encoded,
    saved: oneshot::Sender<bool>,
}

impl SaveRequest {
    /// Lets the step go on.
    pub(crate) fn answer(self, saved: bool) {
        // The step may have stopped waiting.
        let _waits = self.saved.send(saved);
    }
}

impl StepSaves {
    /// Sets when the next save is due.
    pub(crate) fn set_due(&self, due: Instant) {
        *lock(&self.due) = Some(due);
        self.due_changed.notify_waiters();
    }

    /// Sets whether states are compressed.
    pub(crate) fn set_packs(&self, packs: bool) {
        self.packs.store(packs, Relaxed);
    }

    /// Whether states are compressed.
    pub(crate) fn packs(&self) -> bool {
        self.packs.load(Relaxed)
    }

    /// Notes that an attachment is damaged; `newest` is the newest checkpoint that has it.
    pub(crate) fn note_damaged(&self, newest: Option<u64>) {
        *lock(&self.damaged) = newest;
    }

    /// Takes the sequence of the checkpoint of which the step found an attachment damaged.
    pub(crate) fn take_damaged(&self) -> Option<u64> {
        lock(&self.damaged).take()
    }

    /// Completes with the next request that the step makes while it is polled. To be polled after
    /// the step, in the same task.
    pub(crate) async fn requested(&self) -> SaveRequest {
        poll_fn(|_| lock(&self.request).take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Whether a save is due.
    pub(crate) fn is_due(&self) -> bool {
        lock(&self.due).is_some_and(|due| due <= Instant::now())
    }

    /// Completes when a save is due.
    pub(crate) async fn due(&self) {
        loop {
            let changed = self.due_changed.notified();
            let due = *lock(&self.due);
            let Some(due) = due else {
                changed.await;
                continue;
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(due) => return,
            }
        }
    }

    /// Hands the state to the run, and waits until it has tried to save it.
    ///
    /// # Cancel safety
    /// A dropped call has saved the state, if the run had taken the request, or never will.
    pub(crate) async fn save(&self, state: Encoded) -> bool {
        let _turn = self.turn.lock().await;
        let (saved, answer) = oneshot::channel();
        *lock(&self.request) = Some(SaveRequest { state, saved });
        let _withdrawn = Withdrawn(&self.request);
        // A run that ends drops the step, and with it this future.
        answer.await.unwrap_or(false)
    }

    /// Waits for the saves that were requested before. While the guard lives, none begins.
    pub(crate) async fn between_saves(&self) -> AsyncMutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

/// Removes the request when it is dropped: a later step must not save the state of an earlier one.
struct Withdrawn<'a>(&'a Mutex<Option<SaveRequest>>);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        lock(self.0).take();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
