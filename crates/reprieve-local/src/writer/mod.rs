//! The one thread of a process that writes: it takes all operations that wait, and commits them
//! together.
//!
//! One commit costs one wait for the disk, whether it contains one operation or 256. So under load
//! the cost per operation falls by an order of magnitude, and no operation waits for more than the
//! commit before its own.

mod operation;
mod pending;
#[cfg(test)]
mod tests;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reprieve_core::ErrorKind;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::clock::StoreClock;
use crate::failure::{Failure, Fault, Outcome};
use crate::gate::Gate;

pub(crate) use operation::Tx;
use operation::{Operation, Work};
use pending::Pending;
use thread::Thread;

/// How long an operation waits for its turn before it is refused. A turn takes milliseconds. Only a
/// process that is stopped inside the gate, or another program's transaction, takes longer.
pub(crate) const TURN: Duration = Duration::from_secs(10);

/// The handle through which operations reach the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    pending: Arc<Pending>,
    /// Carries no messages; it is disconnected when the thread has ended.
    alive: Mutex<Receiver<()>>,
}

impl Writer {
    /// Starts the thread. It ends when the writer is [closed](Self::close).
    pub(crate) fn start(
        conn: Connection,
        gate: Gate,
        clock: Arc<StoreClock>,
        bell: Bell,
        file: PathBuf,
    ) -> Outcome<Self> {
        let pending = Arc::new(Pending::default());
        let (living, alive) = channel();
        let mut thread = Thread { pending: Arc::clone(&pending), conn, clock, bell, file };
        std::thread::Builder::new()
            .name("reprieve-store".to_owned())
            .spawn(move || {
                let _living = living;
                thread.run(gate);
                // Closes the database before the channel is disconnected.
                drop(thread);
            })
            .map_err(|error| {
                Failure::new(ErrorKind::Unavailable, format!("no thread could be started: {error}"))
            })?;
        Ok(Self { pending, alive: Mutex::new(alive) })
    }

    /// Runs `apply` in a transaction, and after the commit, while no other process can write,
    /// `publish`.
    ///
    /// `apply` may run twice: when another operation of its transaction fails, everything is rolled
    /// back, and each operation runs in a transaction of its own. It must not write before it
    /// refuses.
    ///
    /// # Cancel safety
    /// If the future is dropped before the operation's turn, the operation does not run.
    pub(crate) async fn call<T, U>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
        publish: impl FnOnce(T) -> Outcome<U> + Send + 'static,
    ) -> Outcome<U>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        self.submit(bytes, apply, publish).await.unwrap_or_else(|_| Err(Failure::stopped()))
    }

    /// Like [`call`](Self::call), for a thread that may block.
    pub(crate) fn call_blocking<T, U>(
        &self,
        apply: impl FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
        publish: impl FnOnce(T) -> Outcome<U> + Send + 'static,
    ) -> Outcome<U>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        self.submit(0, apply, publish).blocking_recv().unwrap_or_else(|_| Err(Failure::stopped()))
    }

    /// Like [`call`](Self::call), but returns at once; the receiver gets the outcome.
    pub(crate) fn submit<T, U>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
        publish: impl FnOnce(T) -> Outcome<U> + Send + 'static,
    ) -> oneshot::Receiver<Outcome<U>>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.push(Operation {
            bytes,
            apply,
            publish: Some(publish),
            applied: None,
            answer: None,
            reply: Some(reply),
        });
        answer
    }

    /// Queues an operation without waiting for its outcome.
    pub(crate) fn post<T: Send + 'static>(
        &self,
        apply: impl FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
        publish: impl FnOnce(T) -> Outcome<()> + Send + 'static,
    ) {
        self.push(Operation {
            bytes: 0,
            apply,
            publish: Some(publish),
            applied: None,
            answer: None,
            reply: None,
        });
    }

    fn push(&self, work: impl Work + 'static) {
        let mut state = self.pending.lock();
        // Dropping the operation drops its reply channel, and the caller gets "stopped".
        if !state.closed {
            state.waiting.push_back((tokio::time::Instant::now(), Box::new(work)));
            self.pending.changed.notify_one();
        }
    }

    /// Refuses operations that have waited longer than [`TURN`]. The maintenance thread calls it,
    /// because the writer's own thread is the one that is stuck.
    pub(crate) fn refuse_overdue(&self, write_lock: &Path) {
        let mut overdue = Vec::new();
        {
            let mut state = self.pending.lock();
            while state.waiting.front().is_some_and(|(since, _)| since.elapsed() > TURN) {
                overdue.extend(state.waiting.pop_front());
            }
        }
        for (_, work) in overdue {
            work.fail(Failure::new(
                ErrorKind::Unavailable,
                format!(
                    "no turn came in {} s; look for a stopped process, or a program in a long transaction, that \
                     holds {}",
                    TURN.as_secs(),
                    write_lock.display()
                ),
            ));
        }
    }

    /// Ends the thread after all operations that were queued before.
    pub(crate) fn close(&self) {
        self.pending.lock().closed = true;
        self.pending.changed.notify_one();
    }

    /// Waits until the [closed](Self::close) thread has ended, for at most `limit`.
    pub(crate) fn wait_for_end(&self, limit: Duration) {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the store is still waiting for the write lock; it closes later");
        }
    }
}
