//! A job that records when each of its steps begins.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reprieve_core::{Job, JobContext, JobError, Step};
use tokio::time::{Instant, sleep};

/// The times at which steps began, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walked(Arc<Mutex<Vec<Instant>>>);

impl Walked {
    pub(crate) fn begun(&self) -> Vec<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A job with this number of steps of a second each.
#[derive(Debug)]
pub(crate) struct Walk(pub(crate) Walked);

#[async_trait::async_trait]
impl Job for Walk {
    const KIND: &'static str = "walk";
    type Args = u32;
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, _: &u32) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, steps: &u32, at: u32) -> Result<Step<u32, ()>, JobError> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        cx.progress(at.into(), (*steps).into());
        sleep(Duration::from_secs(1)).await;
        Ok(if at == *steps { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}
