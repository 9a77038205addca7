//! Tasks of one worker that can be stopped and continued together, as SIGSTOP or a frozen VM stops
//! a process.
//!
//! A worker starts each of its tasks through `in_process`. Outside a [`Gate`] that has no effect.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

tokio::task_local! {
    static GATE: Gate;
}

/// Stops and continues the tasks of a simulated process. Timers that expire while it is stopped
/// fire when it continues.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    frozen: bool,
    /// The task to wake before the others.
    #[cfg(any(test, feature = "testing"))]
    first: Option<Waker>,
    waiting: Vec<Waker>,
}

#[cfg(any(test, feature = "testing"))]
impl Gate {
    /// A gate for a process that runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every task before its next poll.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Continues every task.
    pub fn thaw(&self) {
        let (first, waiting) = {
            let mut held = self.lock();
            held.frozen = false;
            (held.first.take(), std::mem::take(&mut held.waiting))
        };
        first.into_iter().chain(waiting).for_each(Waker::wake);
    }

    /// Stops every task until the process continues, and lets this one be the first then.
    #[cfg(feature = "testing")]
    pub(crate) async fn freeze_and_continue_first(&self) {
        let mut is_frozen = false;
        poll_fn(|cx| {
            if is_frozen {
                return Poll::Ready(());
            }
            is_frozen = true;
            let mut held = self.lock();
            (held.frozen, held.first) = (true, Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

impl Gate {
    /// Runs `main` as the process's first task.
    pub async fn run<F: Future + Send>(self, main: F) -> F::Output {
        GATE.scope(self.clone(), self.pass(main)).await
    }

    async fn pass<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            {
                let mut held = self.lock();
                if held.frozen {
                    held.waiting.push(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            future.as_mut().poll(cx)
        })
        .await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wraps a future that is to be spawned, so that it belongs to the process that spawns it. Boxed, because a task
/// moves what it runs several times.
pub(crate) fn in_process<T>(
    future: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    match GATE.try_with(Clone::clone) {
        Ok(gate) => Box::pin(gate.run(future)),
        Err(_) => Box::pin(future),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frozen_process_does_nothing_until_it_continues_and_its_tasks_with_it() {
        let (gate, began) = (Gate::new(), Instant::now());
        let process = gate.clone().run(async move {
            tokio::spawn(in_process(async move {
                sleep(Duration::from_secs(1)).await;
                began.elapsed()
            }))
            .await
        });
        let running = tokio::spawn(process);
        tokio::task::yield_now().await;
        gate.freeze();
        sleep(Duration::from_secs(60)).await;
        assert!(!running.is_finished());
        gate.thaw();
        assert_eq!(running.await.unwrap().unwrap(), Duration::from_secs(60));
    }
}
