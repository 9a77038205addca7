//! Makes what the jobs of a worker share: before the first job, on the job threads, one after another.

use std::any::{TypeId, type_name};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::ids::WorkerId;
use crate::panics;
use crate::process::in_process;
use crate::shared_state::{SharedStates, Start};

/// The pauses between two tries to make a value: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Adds the value that was made to the others.
type Add = Box<dyn FnOnce(&mut SharedStates) + Send>;

/// The making of a value.
type Making = Pin<Box<dyn Future<Output = Result<Add, Box<dyn std::error::Error + Send + Sync>>> + Send>>;

/// Makes one value. It is called again after an error.
struct Maker {
    id: TypeId,
    name: &'static str,
    make: Box<dyn Fn(Start) -> Making + Send + Sync>,
}

/// What the worker's jobs share, and how it is made.
#[derive(Default)]
pub(super) struct States {
    makers: Vec<Maker>,
    made: Mutex<SharedStates>,
}

impl States {
    /// Adds a value to be made after all others. Returns false if there is one of its type.
    pub(super) fn add<T, E, F>(&mut self, make: impl Fn(Start) -> F + Send + Sync + 'static) -> bool
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (id, name) = (TypeId::of::<T>(), type_name::<T>());
        let is_new = self.makers.iter().all(|maker| maker.id != id);
        let make = move |start| -> Making {
            let value = make(start);
            Box::pin(async move {
                let value = value.await.map_err(Into::into)?;
                Ok(Box::new(move |states: &mut SharedStates| states.push(value)) as Add)
            })
        };
        self.makers.push(Maker { id, name, make: Box::new(make) });
        is_new
    }

    /// Returns what was made so far: everything, once jobs run.
    pub(super) fn made(&self) -> SharedStates {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes what is not made yet. A value that can't be made is tried again without limit, and that
    /// is logged: no job could run without it.
    pub(super) async fn make(&self, worker: &WorkerId, concurrency: usize, jobs: &Handle) {
        for Maker { name, make, .. } in self.makers.iter().skip(self.made().len()) {
            let mut pause = PAUSE_MIN;
            loop {
                let start = Start { worker: worker.clone(), concurrency, states: self.made() };
                // Aborted when this future is dropped, because a drain begins.
                let making = AbortOnDropHandle::new(jobs.spawn(in_process(make(start))));
                let error = match making.await {
                    Ok(Ok(push)) => {
                        push(&mut self.made.lock().unwrap_or_else(PoisonError::into_inner));
                        break;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => panics::describe("the job", &*panic),
                        Err(cancelled) => cancelled.to_string(),
                    },
                };
                let pause_s = pause.as_secs();
                tracing::error!(
                    state = name,
                    error,
                    pause_s,
                    "failed to make what the jobs share; the worker receives no messages until it is made"
                );
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            tracing::debug!(state = name, "made what the jobs share");
        }
    }

    /// Drops all values on a job thread, the last one first, and waits for that for `within`. Values that
    /// a job still uses, because it never yielded, are dropped after it.
    pub(super) async fn end(&self, jobs: &Handle, within: Duration) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        if made.len() == 0 {
            return;
        }
        let dropping = jobs.spawn_blocking(move || panics::catch(move || drop(made)));
        match timeout(within, dropping).await {
            Ok(Ok(Ok(()))) => {}
            Ok(_) => tracing::error!("a value that the jobs shared panicked while it was dropped"),
            Err(_) => {
                tracing::warn!(?within, "dropping what the jobs share takes too long; not waiting for it");
            }
        }
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.makers.iter().map(|maker| maker.name)).finish()
    }
}
