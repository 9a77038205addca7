//! Uses marks in the store to find out whether every worker on the machines of an event is ready
//! for it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::publish::report_every;
use crate::error::Result;
use crate::ids::{BlobName, WorkerId};
use crate::interruption::Authority;
use crate::notice::Notice;
use crate::ports::Store;
use crate::retry::bounded;

/// The prefix of the marks: `ready/<event>/<machine>/<worker>`.
const READY: &str = "ready/";

/// How often the leader looks for the others' marks, and how long after a failure a mark is tried
/// again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The longest time for one call.
const TRY: Duration = Duration::from_secs(5);

/// One worker's part in the approval of an event for several machines.
#[derive(Debug, Clone)]
pub(super) struct Rally {
    pub(super) store: Store,
    pub(super) worker: WorkerId,
    pub(super) notice: Notice,
}

/// The result of waiting for the other workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rallied {
    /// This worker is marked ready; another machine approves.
    Marked,
    /// All workers are ready.
    Ready,
    /// These were not ready in time.
    GaveUp(Vec<String>),
}

impl Rally {
    /// Marks this worker ready; if it is the leader, also waits up to `wait` for the others.
    /// Retries the mark without limit: abort it when the event has ended.
    pub(super) async fn run(self, authority: Authority, wait: Duration) -> Rallied {
        let until = Instant::now() + wait;
        let id = &self.notice.id;
        while let Err(error) = self.mark().await {
            tracing::debug!(notice = %id, %error, "could not mark this worker as ready; trying again");
            sleep(LOOK_EVERY).await;
        }
        tracing::info!(notice = %id, "ready, and marked as such for the event's other workers");
        if authority != Authority::Lead {
            return Rallied::Marked;
        }
        loop {
            let missing = match self.missing().await {
                Ok(missing) if missing.is_empty() => return Rallied::Ready,
                Ok(missing) => missing,
                Err(error) => vec![format!("the store: {error}")],
            };
            if Instant::now() >= until {
                return Rallied::GaveUp(missing);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Removes this worker's mark. A leftover mark is harmless, because event ids are never reused.
    pub(super) async fn unmark(self) {
        let removed = async {
            let name = self.name()?;
            bounded("remove a mark", TRY, self.store.blobs.delete(&name)).await
        };
        if let Err(error) = removed.await {
            tracing::debug!(%error, "could not remove this worker's mark of being ready");
        }
    }

    async fn mark(&self) -> Result<()> {
        let name = self.name()?;
        bounded("mark this worker as ready", TRY, self.store.blobs.put(&name, Vec::new(), None)).await
    }

    /// Returns who is not ready yet: machines without any mark, and live workers on the event's
    /// machines without their own. A machine without a worker never becomes ready, because none
    /// marks it.
    async fn missing(&self) -> Result<Vec<String>> {
        let prefix = self.prefix();
        let names = bounded("look for the others' marks", TRY, self.store.blobs.list(&prefix)).await?;
        let marks: BTreeSet<(&str, &str)> =
            names.iter().filter_map(|name| name.as_str().strip_prefix(&prefix)?.split_once('/')).collect();
        let machines: BTreeSet<String> =
            self.notice.resources.iter().map(|name| name.to_ascii_lowercase()).collect();
        let alive = report_every(&*self.store.roster) * 3;
        let reports = bounded("look for the others", TRY, self.store.roster.reports(alive)).await?;
        let unmarked = machines.iter().filter(|machine| !marks.iter().any(|(on, _)| on == machine)).cloned();
        let workers = reports.into_iter().filter_map(|report| {
            let machine = report.vm.to_ascii_lowercase();
            let worker = report.worker.to_string();
            let waited_for =
                machines.contains(&machine) && !marks.contains(&(machine.as_str(), worker.as_str()));
            waited_for.then(|| format!("worker {worker} on {machine}"))
        });
        Ok(unmarked.chain(workers).collect())
    }

    fn prefix(&self) -> String {
        format!("{READY}{}/", self.notice.id)
    }

    fn name(&self) -> Result<BlobName> {
        BlobName::parse(format!(
            "{}{}/{}",
            self.prefix(),
            self.notice.machine.to_ascii_lowercase(),
            self.worker
        ))
    }
}
