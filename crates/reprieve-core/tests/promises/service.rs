//! A service that can be away, and jobs of one step without arguments, such as those that depend on it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::dependency::Dependency;
use reprieve_core::ports::Store;
use reprieve_core::worker::Monitor;
use reprieve_core::{Job, NewJob, Producer};

#[derive(Debug, Default)]
pub(crate) struct Service {
    is_away: AtomicBool,
}

impl Service {
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Relaxed);
    }

    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Relaxed)
    }
}

#[async_trait]
impl Dependency for Service {
    async fn probe(&self) -> Result<(), String> {
        if self.is_away() { Err("connection refused".to_owned()) } else { Ok(()) }
    }
}

/// Enqueues so many jobs of a kind without arguments.
pub(crate) async fn enqueue_of<J: Job<Args = ()>>(store: &Store, count: usize) {
    let jobs = vec![NewJob::of::<J>(&()).unwrap(); count];
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
}

/// Whether the metric has this value for the dependency and state.
pub(crate) fn has_state(monitor: &Monitor, dependency: &str, state: &str, is: u8) -> bool {
    let line = format!("reprieve_dependency_state{{dependency=\"{dependency}\",state=\"{state}\"}} {is}");
    monitor.telemetry().encode().contains(&line)
}

/// Declares a kind of job without arguments, of one step, with what the step returns.
macro_rules! job {
    ($job:ident, $kind:literal, |$me:ident, $cx:ident| $step:expr) => {
        #[async_trait::async_trait]
        impl reprieve_core::Job for $job {
            const KIND: &'static str = $kind;
            type Args = ();
            type Checkpoint = ();
            type Output = ();

            fn begin(&self, (): &()) {}

            async fn step(
                &self,
                $cx: &reprieve_core::JobContext,
                (): &(),
                (): (),
            ) -> Result<reprieve_core::Step<(), ()>, reprieve_core::JobError> {
                let $me = self;
                $step
            }
        }
    };
}
pub(crate) use job;
