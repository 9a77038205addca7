//! Knows which jobs were cancelled, and tells those that run here.
//!
//! The store is asked every few seconds while the worker holds messages, and before a job begins if it
//! was not asked just now. An idle worker asks nothing.

use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::error::Result;
use crate::ids::JobId;
use crate::ports::Store;
use crate::retry::bounded;

/// How often a worker with jobs asks. A job then has three seconds to yield, so that it has stopped within
/// ten.
const EVERY: Duration = Duration::from_secs(4);

/// A job that begins without a record waits until the answer is not older than this.
const FRESH: Duration = Duration::from_secs(5);

/// How long each call may take, and how long a job that begins waits for all of them at most. A long list
/// is read to its end all the same. After a failure no other job waits for [`FRESH`].
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(2);

/// The jobs that were cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    known: Mutex<Known>,
    /// Whether any is known, so that jobs that begin do not wait for each other to see that there is none.
    are_any: AtomicBool,
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
        self.are_any.load(Acquire) && self.known(|known| known.jobs.contains(job))
    }

    /// Forgets a job whose mark was removed: another one may have its id.
    pub(super) fn forget(&self, job: &JobId) {
        self.known(|known| known.jobs.remove(job));
    }

    /// Whether the store is to be asked in the background now.
    pub(super) fn are_due(&self) -> bool {
        !self.is_fresh(EVERY) && self.news.try_lock().is_ok()
    }

    /// Whether the store was asked within the last five seconds.
    pub(super) fn are_known(&self) -> bool {
        self.is_fresh(FRESH)
    }

    /// Asks the store, unless it was. Returns the cancelled jobs if there are others than before.
    pub(super) async fn know(&self, store: &Store) -> Option<HashSet<JobId>> {
        self.refresh(store, FRESH).await
    }

    /// Asks the store, unless that was done within the last few seconds. Returns the cancelled jobs if there
    /// are others than before.
    pub(super) async fn ask(&self, store: &Store) -> Option<HashSet<JobId>> {
        self.refresh(store, EVERY).await
    }

    async fn refresh(&self, store: &Store, age: Duration) -> Option<HashSet<JobId>> {
        let mut news = self.news.lock().await;
        // Another job may have asked meanwhile.
        if self.is_fresh(age) {
            return None;
        }
        let (asked, mut changed) = (Instant::now(), None);
        match ask(store, &news).await {
            Ok(None) => {}
            Ok(Some((latest, jobs))) => {
                *news = latest;
                self.known(|known| known.jobs.clone_from(&jobs));
                self.are_any.store(!jobs.is_empty(), Release);
                changed = Some(jobs);
            }
            Err(error) => tracing::debug!(%error, "failed to ask which jobs are cancelled; asking again"),
        }
        self.known(|known| known.asked = Some(asked));
        changed
    }
}

/// Returns the cancelled jobs if there are other `news` than before.
async fn ask(store: &Store, news: &[u8]) -> Result<Option<(Vec<u8>, HashSet<JobId>)>> {
    let latest = bounded("ask which jobs are cancelled", ASK_WITHIN, store.news_of_cancels()).await?;
    if latest == news {
        return Ok(None);
    }
    // Whoever wrote the news had written the marks before.
    let jobs = store.cancelled_jobs(ASK_WITHIN).await?;
    Ok(Some((latest, jobs)))
}
