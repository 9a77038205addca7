//! A value that tasks can watch. Watchers are woken in the order in which they began to wait.
//!
//! tokio's watch channel wakes watchers in random order, so a simulation that used it could not be
//! replayed. This channel also never closes: a receiver without senders waits without limit, as a
//! task of a worker that has ended must.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Changes the value. Clones change the same value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Watched<T>>);

/// Reads the value, and is notified of each change after its creation.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    watched: Arc<Watched<T>>,
    /// The last change that this receiver has seen.
    heard: u64,
}

#[derive(Debug)]
struct Watched<T> {
    now: Mutex<Now<T>>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Now<T> {
    value: T,
    changes: u64,
}

impl<T> Watched<T> {
    fn lock(&self) -> MutexGuard<'_, Now<T>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Copy + PartialEq> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Watched { now: Mutex::new(Now { value, changes: 1 }), changed: Notify::new() }))
    }

    pub(crate) fn get(&self) -> T {
        self.0.lock().value
    }

    pub(crate) fn set(&self, value: T) {
        self.modify(|now| *now = value);
    }

    /// Changes the value, and wakes the watching tasks if it differs from before.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut now = self.0.lock();
            let before = now.value;
            change(&mut now.value);
            if now.value == before {
                return;
            }
            now.changes += 1;
        }
        self.0.changed.notify_waiters();
    }

    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let heard = self.0.lock().changes;
        Receiver { watched: Arc::clone(&self.0), heard }
    }
}

impl<T: Copy + PartialEq> Receiver<T> {
    pub(crate) fn get(&self) -> T {
        self.watched.lock().value
    }

    /// Whether the value has changed since this receiver last saw it.
    pub(crate) fn has_changed(&self) -> bool {
        self.watched.lock().changes != self.heard
    }

    /// Lets [`changed`](Self::changed) complete at once, as if the present value were new.
    pub(crate) fn mark_changed(&mut self) {
        self.heard = 0;
    }

    /// Completes when the value has changed since this receiver last saw it. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        let heard = self.heard;
        self.heard = self.watched.until(|now| now.changes != heard).await.changes;
    }

    /// Completes with the value when `holds` returns true for it; at once if it does now.
    /// Cancel-safe.
    pub(crate) async fn wait_for(&mut self, holds: impl Fn(T) -> bool) -> T {
        let now = self.watched.until(|now| holds(now.value)).await;
        self.heard = now.changes;
        now.value
    }
}

impl<T: Copy> Watched<T> {
    async fn until(&self, holds: impl Fn(Now<T>) -> bool) -> Now<T> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registers before it reads, so that no change between the two is missed.
            changed.as_mut().enable();
            let now = *self.lock();
            if holds(now) {
                return now;
            }
            changed.await;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { watched: Arc::clone(&self.watched), heard: self.heard }
    }
}

impl<T: Copy + PartialEq + Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn watchers_are_woken_in_the_order_in_which_they_came() {
        let sender = Sender::new(0);
        let (waiting, order) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..100)
            .map(|watcher| {
                let (mut receiver, waiting, order) =
                    (sender.subscribe(), Arc::clone(&waiting), Arc::clone(&order));
                tokio::spawn(async move {
                    waiting.fetch_add(1, Relaxed);
                    receiver.changed().await;
                    order.lock().unwrap().push(watcher);
                })
            })
            .collect();
        while waiting.load(Relaxed) < 100 {
            yield_now().await;
        }
        sender.set(1);
        for task in tasks {
            task.await.unwrap();
        }
        assert!(order.lock().unwrap().iter().copied().eq(0..100));
    }

    #[tokio::test]
    async fn a_change_is_heard_of_once_and_no_change_never() {
        let sender = Sender::new('a');
        let mut receiver = sender.subscribe();
        let mut hears = async || {
            tokio::select! {
                biased;
                () = receiver.changed() => true,
                () = yield_now() => false,
            }
        };
        sender.set('a');
        assert!(!hears().await, "it is as it was");
        sender.set('b');
        sender.set('c');
        assert!(hears().await && !hears().await, "two changes at once");
        receiver.mark_changed();
        receiver.changed().await;
        assert_eq!(receiver.wait_for(|now| now == 'c').await, 'c');
    }
}
