//! The network between one process and the store. Every call is a request of its own, so it arrives
//! even if its process has been frozen or has died meanwhile.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::{Error, ErrorKind, Result};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::history::{History, What};
use super::plan::Trouble;

/// How long a client library waits for an answer before it reports a timeout.
const CLIENT_WAITS: Duration = Duration::from_secs(20);

/// One process's link to the store.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) process: u32,
    pub(crate) history: History,
    dice: Mutex<SmallRng>,
    trouble: watch::Sender<Trouble>,
    calls: AtomicU64,
    ended: watch::Sender<bool>,
}

/// The simulated course of one call.
#[derive(Debug, Clone, Copy)]
struct Fate {
    /// The travel time of the request; `None` when it never arrives.
    there: Option<Duration>,
    /// The travel time of the answer; `None` when it is lost.
    back: Option<Duration>,
    /// The time after which the caller gets an error instead.
    gives_up: Duration,
    error: ErrorKind,
}

impl Link {
    pub(crate) fn new(process: u32, seed: u64, history: History) -> Arc<Self> {
        let dice = Mutex::new(SmallRng::seed_from_u64(seed ^ (u64::from(process) << 32)));
        let (trouble, ended) = (watch::Sender::default(), watch::Sender::default());
        Arc::new(Self { process, history, dice, trouble, calls: AtomicU64::new(0), ended })
    }

    pub(crate) fn note(&self, what: What) {
        self.history.note(Some(self.process), what);
    }

    /// Returns a number for a call with a recorded answer.
    pub(crate) fn number(&self) -> u64 {
        self.calls.fetch_add(1, Relaxed)
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    /// Ends the link: the process has ended and sends nothing any more.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Completes when announcements can reach the process.
    pub(crate) async fn hears(&self) {
        // The sender lives in `self`.
        let _ = self.trouble.subscribe().wait_for(|trouble| !trouble.partitioned).await;
    }

    /// Sends a request that performs `work` at the store, and waits for the answer.
    pub(crate) async fn call<T, F>(&self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        if self.has_ended() {
            return pending().await;
        }
        let fate = self.fate();
        let (answer, answered) = oneshot::channel();
        if let Some(there) = fate.there {
            tokio::spawn(async move {
                sleep(there).await;
                let done = work.await;
                match fate.back {
                    Some(Duration::ZERO) => {}
                    Some(back) => sleep(back).await,
                    None => return,
                }
                // A caller that gave up does not receive the answer.
                let _unheard = answer.send(done);
            });
        } else {
            drop(work);
            sleep(fate.gives_up).await;
            return Err(Error::new(fate.error, operation, "the request did not arrive"));
        }
        let answer = async {
            match answered.await {
                Ok(done) => done,
                // The answer is lost, which the caller does not know yet.
                Err(_) => pending().await,
            }
        };
        timeout(fate.gives_up, answer)
            .await
            .unwrap_or_else(|_| Err(Error::new(fate.error, operation, "no answer came")))
    }

    fn fate(&self) -> Fate {
        let trouble = *self.trouble.borrow();
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ms = |least: u64, most: u64| Duration::from_millis(dice.random_range(least..=most));
        let there = if ms(0, 19).is_zero() { ms(5, 60) } else { ms(1, 5) };
        let well = Fate {
            there: Some(there),
            back: Some(Duration::ZERO),
            gives_up: CLIENT_WAITS,
            error: ErrorKind::TimedOut,
        };
        if trouble == Trouble::default() {
            return well;
        }
        if trouble.partitioned {
            let refused = ms(0, 1).is_zero();
            let error = if refused { ErrorKind::Unavailable } else { ErrorKind::TimedOut };
            return Fate {
                there: None,
                gives_up: if refused { ms(1, 3_000) } else { CLIENT_WAITS },
                error,
                ..well
            };
        }
        if trouble.slow {
            return Fate { there: Some(ms(400, 900)), back: Some(ms(400, 900)), ..well };
        }
        let mut share: f64 = dice.random();
        let mut ms = |least: u64, most: u64| Duration::from_millis(dice.random_range(least..=most));
        let mut falls = |part: f64| {
            share -= part;
            share < 0.0
        };
        if falls(trouble.failed) {
            let busy = ms(0, 1).is_zero();
            let error = if busy { ErrorKind::Unavailable } else { ErrorKind::TimedOut };
            return Fate { there: None, gives_up: ms(5, 500), error, ..well };
        }
        if falls(trouble.lost) {
            return Fate { back: None, gives_up: there + ms(5, 3_000), ..well };
        }
        if falls(trouble.late_answers) {
            return Fate { back: Some(ms(100, 15_000)), ..well };
        }
        if falls(trouble.late_requests) {
            return Fate { there: Some(ms(100, 30_000)), gives_up: ms(50, 10_000), ..well };
        }
        well
    }
}
