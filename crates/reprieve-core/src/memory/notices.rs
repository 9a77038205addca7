//! Interruption sources without a platform: one that tests control, and one that never interrupts.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::lock;
use crate::error::Result;
use crate::notice::{Notice, NoticeId};
use crate::ports::{Change, Ending, InterruptionSource};

/// A test source of interruptions. Clones are handles to the same source: give one to a worker as
/// an `Arc<dyn InterruptionSource>` and keep another.
///
/// Only one worker may use it, because it returns each change once.
///
/// # Example: a notice, and its end
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use reprieve_core::memory::ManualNotices;
/// use reprieve_core::ports::{Change, Ending, InterruptionSource};
/// use reprieve_core::{Notice, NoticeKind};
///
/// let notices = ManualNotices::answered();
/// let notice = Notice::now("602d9444", NoticeKind::Preempt);
/// notices.notice(notice.clone());
/// notices.over(&notice.id, Ending::Withdrawn);
///
/// assert_eq!(notices.next().await, Change::Answered);
/// assert_eq!(notices.next().await, Change::Noticed(notice.clone()));
/// assert_eq!(notices.next().await, Change::Over(notice.id, Ending::Withdrawn));
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualNotices {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    answered: bool,
    changes: VecDeque<Change>,
    approved: Vec<NoticeId>,
}

impl ManualNotices {
    /// Creates a source that has not answered yet; see [`answer`](Self::answer).
    #[must_use]
    pub fn silent() -> Self {
        Self::default()
    }

    /// Creates a source that answers at once.
    #[must_use]
    pub fn answered() -> Self {
        let notices = Self::silent();
        notices.answer();
        notices
    }

    /// Gives the first answer. Notices given earlier were active before it. Later calls have no
    /// effect.
    pub fn answer(&self) {
        let mut state = lock(&self.shared.state);
        if !std::mem::replace(&mut state.answered, true) {
            state.changes.push_back(Change::Answered);
            self.shared.changed.notify_one();
        }
    }

    /// Reports the platform's name of this machine.
    pub fn named(&self, machine: &str) {
        self.push(Change::Named(machine.to_owned()));
    }

    /// Reports a notice, new or changed.
    pub fn notice(&self, notice: Notice) {
        self.push(Change::Noticed(notice));
    }

    /// Reports the end of a notice.
    pub fn over(&self, notice: &NoticeId, ending: Ending) {
        self.push(Change::Over(notice.clone(), ending));
    }

    /// Returns every approved notice so far, in order and with repetitions.
    #[must_use]
    pub fn approved(&self) -> Vec<NoticeId> {
        lock(&self.shared.state).approved.clone()
    }

    fn push(&self, change: Change) {
        lock(&self.shared.state).changes.push_back(change);
        self.shared.changed.notify_one();
    }
}

#[async_trait]
impl InterruptionSource for ManualNotices {
    async fn next(&self) -> Change {
        loop {
            // A change leaves the list in the same poll that returns it, so dropping this future
            // loses none.
            if let Some(change) = lock(&self.shared.state).changes.pop_front() {
                return change;
            }
            self.shared.changed.notified().await;
        }
    }

    async fn approve(&self, notices: &[NoticeId], _within: Duration) -> Result<()> {
        lock(&self.shared.state).approved.extend_from_slice(notices);
        Ok(())
    }
}

/// An interruption source for machines that are never evicted: it answers at once and then reports
/// nothing.
#[derive(Debug, Default)]
pub struct NoInterruptions {
    answered: AtomicBool,
}

impl NoInterruptions {
    /// Creates a source.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl InterruptionSource for NoInterruptions {
    async fn next(&self) -> Change {
        if self.answered.swap(true, Ordering::Relaxed) { pending().await } else { Change::Answered }
    }

    async fn approve(&self, _notices: &[NoticeId], _within: Duration) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::notice::NoticeKind;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_not_lost_by_dropping_the_wait_for_it() {
        let notices = ManualNotices::silent();
        for round in 0..3 {
            assert!(timeout(Duration::from_secs(1), notices.next()).await.is_err(), "round {round}");
            let notice = Notice::now(&format!("event-{round}"), NoticeKind::Preempt);
            // The change wakes the future, which is dropped before it is polled again.
            let mut waiting = notices.next();
            assert!(std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await.is_pending());
            notices.notice(notice.clone());
            drop(waiting);
            assert_eq!(notices.next().await, Change::Noticed(notice));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_is_given_once() {
        let notices = ManualNotices::silent();
        notices.answer();
        notices.answer();
        assert_eq!(notices.next().await, Change::Answered);
        assert!(timeout(Duration::from_secs(1), notices.next()).await.is_err());
    }

    #[tokio::test]
    async fn approvals_are_recorded_in_order() {
        let notices = ManualNotices::answered();
        let worker = notices.clone();
        for id in ["b", "a", "b"] {
            worker.approve(&[NoticeId::new(id)], Duration::ZERO).await.unwrap();
        }
        let ids = notices.approved();
        assert_eq!(ids.iter().map(NoticeId::as_str).collect::<Vec<_>>(), ["b", "a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_without_an_eviction_gets_one_answer() {
        let source = NoInterruptions::new();
        assert_eq!(source.next().await, Change::Answered);
        assert!(timeout(Duration::from_hours(1), source.next()).await.is_err());
    }
}
