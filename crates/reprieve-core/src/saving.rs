//! Saves in the middle of a step: the step hands its state to the run that drives it.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::codec::Encoded;
#[cfg(feature = "testing")]
use crate::hash::ContentHash;
use crate::ids::PayloadName;

/// How often a call of the step looks whether it may go on. It does not queue for that: a step may
/// stop polling a call, and a queued call would then keep all others waiting.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);

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
    request: Mutex<Option<SaveRequest>>,
    /// The number of the last request.
    number: AtomicU64,
    /// A request is made or being carried out, so no attachment may change.
    pending: Arc<AtomicBool>,
    /// The chunks of attachments that the step found damaged.
    damaged: Mutex<BTreeSet<PayloadName>>,
    /// The states that were saved where no run drives the step, in a test of one step.
    kept: Option<Mutex<Vec<Encoded>>>,
}

/// A step's request to save this state.
#[derive(Debug)]
pub(crate) struct SaveRequest {
    pub(crate) state: Encoded,
    number: u64,
    saved: Option<oneshot::Sender<bool>>,
    pending: Arc<AtomicBool>,
}

impl SaveRequest {
    /// Lets the step go on.
    pub(crate) fn answer(mut self, saved: bool) {
        if let Some(step) = self.saved.take() {
            // The step may have stopped waiting.
            let _waits = step.send(saved);
        }
    }
}

impl Drop for SaveRequest {
    fn drop(&mut self) {
        self.pending.store(false, Relaxed);
    }
}

#[cfg(feature = "testing")]
impl StepSaves {
    /// For a step that no run drives: states are kept here, and count as saved.
    pub(crate) fn kept() -> Self {
        Self { kept: Some(Mutex::default()), ..Self::default() }
    }

    /// Returns the hash of the state that the step asks to save; `None` once the run has taken it.
    pub(crate) fn asked(&self) -> Option<ContentHash> {
        lock(&self.request).as_ref().map(|request| request.state.hash())
    }

    /// Returns the kept states, oldest first.
    pub(crate) fn all_kept(&self) -> Vec<Encoded> {
        self.kept.as_ref().map(|kept| lock(kept).clone()).unwrap_or_default()
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

    /// Notes that a chunk of an attachment is damaged.
    pub(crate) fn note_damaged(&self, chunk: PayloadName) {
        lock(&self.damaged).insert(chunk);
    }

    /// Takes the chunks that the step found damaged.
    pub(crate) fn take_damaged(&self) -> BTreeSet<PayloadName> {
        std::mem::take(&mut lock(&self.damaged))
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
        if let Some(kept) = &self.kept {
            lock(kept).push(state);
            return true;
        }
        while self.pending.swap(true, Relaxed) {
            sleep(LOOK_EVERY).await;
        }
        let (saved, answer) = oneshot::channel();
        let number = self.number.fetch_add(1, Relaxed);
        let pending = Arc::clone(&self.pending);
        *lock(&self.request) = Some(SaveRequest { state, number, saved: Some(saved), pending });
        let _withdrawn = Withdrawn { request: &self.request, number };
        // A run that ends drops the step, and with it this future.
        answer.await.unwrap_or(false)
    }

    /// Whether a save is requested or being carried out.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Relaxed)
    }
}

/// Removes the request when it is dropped: a later step must not save the state of an earlier one.
struct Withdrawn<'a> {
    request: &'a Mutex<Option<SaveRequest>>,
    number: u64,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        lock(self.request).take_if(|request| request.number == self.number);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
