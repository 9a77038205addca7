//! Knows which jobs were cancelled, and tells those that run here.
//!
//! The store is asked every few seconds while the worker holds messages, and before a job begins if it
//! was not asked just now. An idle worker asks nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

use super::shared::Shared;
use crate::error::Result;
use crate::ids::JobId;
use crate::ports::Store;
use crate::process::in_process;

/// How often a worker with jobs asks. A job then has three seconds to yield, so that it has stopped within
/// ten.
const EVERY: Duration = Duration::from_secs(4);

/// A job that begins without a record waits until the answer is not older than this.
const FRESH: Duration = Duration::from_secs(5);

/// How long a job that begins waits for the answer at most. After a failure no other job waits for
/// [`FRESH`].
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// The jobs that were cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    known: Mutex<Known>,
    /// The last answer of the store. Locked while the store is asked.
    news: AsyncMutex<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Known {
    jobs: HashSet<JobId>,
    /// When the store was asked last, whatever it answered.
    asked: Option<Instant>,
}

impl Cancels {
    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the store was asked within the last `age`.
    fn is_fresh(&self, age: Duration) -> bool {
        self.known(|known| known.asked).is_some_and(|asked| asked.elapsed() < age)
    }

    /// Whether the job is known to be cancelled.
    pub(super) fn contains(&self, job: &JobId) -> bool {
        self.known(|known| known.jobs.contains(job))
    }

    /// Asks the store in the background if that is due.
    pub(super) fn ask_if_due(shared: &Arc<Shared>) {
        if !shared.cancels.is_fresh(EVERY) && shared.cancels.news.try_lock().is_ok() {
            let shared = Arc::clone(shared);
            tokio::spawn(in_process(async move { shared.cancels.refresh(&shared, EVERY).await }));
        }
    }

    /// Waits until the store was asked within the last five seconds, but never for long. Cancel-safe.
    pub(super) async fn know(&self, shared: &Shared) {
        if !self.is_fresh(FRESH) {
            Box::pin(self.refresh(shared, FRESH)).await;
        }
    }

    async fn refresh(&self, shared: &Shared, age: Duration) {
        let mut news = self.news.lock().await;
        // Another job may have asked meanwhile.
        if self.is_fresh(age) {
            return;
        }
        let asked = Instant::now();
        match timeout(ASK_WITHIN, ask(&shared.store, &news)).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((latest, jobs)))) => {
                *news = latest;
                shared.running.cancel(&jobs);
                self.known(|known| known.jobs = jobs);
            }
            Ok(Err(error)) => tracing::debug!(%error, "failed to ask which jobs are cancelled; asking again"),
            Err(_) => tracing::debug!("timed out asking which jobs are cancelled; asking again"),
        }
        self.known(|known| known.asked = Some(asked));
    }
}

/// Returns the cancelled jobs if there are other `news` than before.
async fn ask(store: &Store, news: &[u8]) -> Result<Option<(Vec<u8>, HashSet<JobId>)>> {
    let latest = store.news_of_cancels().await?;
    if latest == news {
        return Ok(None);
    }
    // Whoever wrote the news had written the marks before.
    let jobs = store.cancelled_jobs().await?;
    Ok(Some((latest, jobs)))
}
