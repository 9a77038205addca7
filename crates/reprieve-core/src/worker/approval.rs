//! Approves events: at once, or when marks in the store show that every worker on the event's
//! machines is ready for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::reporter::report_every;
use super::shared::Shared;
use crate::error::{ErrorKind, Result};
use crate::ids::{BlobName, WorkerId};
use crate::interruption::{Approval, Authority, Key};
use crate::names::READY;
use crate::notice::{Notice, NoticeId};
use crate::ports::{InterruptionSource, Store};
use crate::process::in_process;
use crate::retry::{bounded, unanswered};
use crate::telemetry::ByResult;

/// The longest time for which one approval is tried, and the time for an event without a
/// `NotBefore`.
const APPROVE_WITHIN: Duration = Duration::from_secs(30);

/// How long after a failure an approval is tried again.
const APPROVE_AGAIN: Duration = Duration::from_secs(5);

/// How often the leader looks for the others' marks, and how long after a failure a mark is tried
/// again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The longest time for one call.
const TRY: Duration = Duration::from_secs(5);

/// The approvals that are under way.
pub(super) struct Approvals {
    shared: Arc<Shared>,
    /// Requests, and marks that are being removed.
    requests: JoinSet<Option<Result<()>>>,
    /// The source and the notices of each request.
    requested: BTreeMap<Id, (usize, Vec<NoticeId>, AbortHandle)>,
    /// Waits for the other workers of an event.
    waits: JoinSet<Gathered>,
    quorums: BTreeMap<Key, (Quorum, AbortHandle)>,
}

/// The end of a task of [`Approvals`].
pub(super) enum ApprovalEvent {
    /// A request was answered, or a mark removed.
    Requested(Id, Option<Result<()>>),
    /// A wait for other workers has ended.
    Gathered(Id, Gathered),
}

/// The next action for the events of an approval.
pub(super) enum Approved {
    /// Their approval is in this state.
    State(Vec<Key>, Approval),
    /// All workers are ready: approve this event.
    Ready(Key),
}

impl Approvals {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (requests, waits) = (JoinSet::new(), JoinSet::new());
        Self { shared, requests, requested: BTreeMap::new(), waits, quorums: BTreeMap::new() }
    }

    /// Waits for the end of a request or of a wait. Cancel-safe; waits without limit when there is
    /// none.
    pub(super) async fn next(&mut self) -> ApprovalEvent {
        tokio::select! {
            biased;
            Some(answer) = self.requests.join_next_with_id() => {
                let (task, answer) = answer.unwrap_or_else(|error: JoinError| (error.id(), None));
                ApprovalEvent::Requested(task, answer)
            }
            Some(Ok((task, how))) = self.waits.join_next_with_id() => ApprovalEvent::Gathered(task, how),
            else => std::future::pending().await,
        }
    }

    /// Approves `notices` of the source with this number.
    pub(super) fn request(
        &mut self,
        number: usize,
        source: &Arc<dyn InterruptionSource>,
        notices: &[Notice],
    ) {
        let ids: Vec<_> = notices.iter().map(|notice| notice.id.clone()).collect();
        let left = |notice: &Notice| Some(notice.not_before?.saturating_duration_since(Instant::now()));
        let within = notices.iter().filter_map(left).min().unwrap_or(APPROVE_WITHIN);
        let within = within.clamp(Duration::from_secs(1), APPROVE_WITHIN);
        tracing::info!(notices = names(&ids), "approving the events");
        let (source, approved) = (Arc::clone(source), ids.clone());
        let request = async move { Some(source.approve(&approved, within).await) };
        let request = self.requests.spawn(in_process(request));
        self.requested.insert(request.id(), (number, ids, request));
    }

    /// Marks this worker ready for an event and, as the leader, waits for the other workers.
    pub(super) fn gather(&mut self, source: usize, notice: Notice, authority: Authority) {
        let (store, worker) = (Arc::clone(&self.shared.store), self.shared.worker.clone());
        let (key, wait) = ((source, notice.id.clone()), self.shared.settings.policy.approve_wait);
        let quorum = Quorum { store, worker, boot: self.shared.boot.clone(), notice };
        let waiting = self.waits.spawn(in_process(quorum.clone().run(authority, wait)));
        self.quorums.insert(key, (quorum, waiting));
    }

    /// Aborts the approval of an event that has changed or ended, because the decision was for the
    /// former event. Returns the events that are open for approval again, and the mark of this
    /// worker, if it may have one.
    pub(super) fn cancel(&mut self, key: &Key) -> (Vec<Key>, Option<Mark>) {
        let (source, id) = key;
        let mut open = Vec::new();
        let is_of =
            |_: &Id, (of, ids, _): &mut (usize, Vec<NoticeId>, AbortHandle)| of == source && ids.contains(id);
        for (_, (source, ids, request)) in self.requested.extract_if(.., is_of) {
            request.abort();
            open.extend(ids.into_iter().map(|id| (source, id)));
        }
        let mark = self.quorums.remove(key).map(|(quorum, waiting)| {
            waiting.abort();
            open.push(key.clone());
            Mark(key.clone(), quorum)
        });
        (open, mark)
    }

    /// Removes this worker's mark, unless it marked itself ready again.
    pub(super) fn remove(&mut self, Mark(key, quorum): Mark) {
        if !self.quorums.contains_key(&key) {
            self.requests.spawn(in_process(async move {
                quorum.unmark().await;
                None
            }));
        }
    }

    /// Takes the end of a task; `None` if it was for an event that has changed or ended since.
    pub(super) fn ended(&mut self, event: ApprovalEvent) -> Option<Approved> {
        match event {
            ApprovalEvent::Requested(task, answer) => self.requested(task, answer),
            ApprovalEvent::Gathered(task, how) => self.gathered(task, how),
        }
    }

    fn requested(&mut self, task: Id, answer: Option<Result<()>>) -> Option<Approved> {
        let (source, ids, _) = self.requested.remove(&task)?;
        let result = answer.unwrap_or_else(|| Err(unanswered("approve an event")));
        let notices = names(&ids);
        match &result {
            Ok(()) => tracing::info!(notices, "approved; the events may begin now"),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                tracing::warn!(notices, %error, "the approval was refused; the events begin at their own time");
            }
            Err(error) => {
                tracing::warn!(notices, %error, "failed to approve; retrying while the events are active");
            }
        }
        let (approval, label) = match &result {
            Ok(()) => (Approval::Done, "ok"),
            Err(error) if error.kind() == ErrorKind::Invalid => (Approval::Closed, "refused"),
            Err(_) => (Approval::Again(Instant::now() + APPROVE_AGAIN), "error"),
        };
        self.shared.telemetry.approvals.get_or_create(&ByResult { result: label }).inc();
        Some(Approved::State(ids.into_iter().map(|id| (source, id)).collect(), approval))
    }

    fn gathered(&mut self, task: Id, how: Gathered) -> Option<Approved> {
        let (key, _) = self.quorums.iter().find(|(_, (_, waiting))| waiting.id() == task)?;
        match how {
            // Nothing more to do: the leader approves.
            Gathered::Marked => None,
            Gathered::Ready => Some(Approved::Ready(key.clone())),
            Gathered::GaveUp(missing) => {
                tracing::warn!(
                    notice = %key.1,
                    ?missing,
                    "not all workers were ready in time; the event begins at its own time"
                );
                Some(Approved::State(vec![key.clone()], Approval::Closed))
            }
        }
    }
}

/// This worker's mark of being ready for an event.
pub(super) struct Mark(Key, Quorum);

fn names(ids: &[NoticeId]) -> String {
    ids.iter().map(NoticeId::as_str).collect::<Vec<_>>().join(", ")
}

/// One worker's part in the approval of an event that waits until all of its workers are ready.
#[derive(Debug, Clone)]
struct Quorum {
    store: Arc<Store>,
    worker: WorkerId,
    /// The id of this machine's boot.
    boot: String,
    notice: Notice,
}

/// The result of waiting for the other workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gathered {
    /// This worker is marked ready; another machine approves.
    Marked,
    /// All workers are ready.
    Ready,
    /// These were not ready in time.
    GaveUp(Vec<String>),
}

impl Quorum {
    /// Marks this worker ready; if it is the leader, also waits up to `wait` for the others.
    /// Retries the mark without limit: abort it when the event has ended.
    async fn run(self, authority: Authority, wait: Duration) -> Gathered {
        let until = Instant::now() + wait;
        let id = &self.notice.id;
        while let Err(error) = self.mark().await {
            tracing::debug!(notice = %id, %error, "failed to mark this worker as ready; retrying");
            sleep(LOOK_EVERY).await;
        }
        tracing::info!(notice = %id, "marked this worker as ready for the event");
        if authority != Authority::Lead {
            return Gathered::Marked;
        }
        loop {
            let missing = match self.missing().await {
                Ok(missing) if missing.is_empty() => return Gathered::Ready,
                Ok(missing) => missing,
                Err(error) => vec![format!("the store: {error}")],
            };
            if Instant::now() >= until {
                return Gathered::GaveUp(missing);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Removes this worker's mark. A leftover mark is harmless, because event ids are never reused.
    async fn unmark(self) {
        let removed = async {
            let name = self.name()?;
            bounded("remove a mark", TRY, self.store.blobs.delete(&name, None)).await
        };
        if let Err(error) = removed.await {
            tracing::debug!(%error, "failed to remove this worker's ready mark");
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
        let members = bounded("look for the others", TRY, self.store.roster.members(alive)).await?;
        let unmarked = machines.iter().filter(|machine| !marks.iter().any(|(on, _)| on == machine)).cloned();
        // A worker that does not know its machine's name yet is on that of the workers of its boot.
        let known = members.iter().filter(|member| !member.vm.is_empty());
        let mut machine_of: BTreeMap<&str, &str> =
            known.map(|member| (member.boot.as_str(), member.vm.as_str())).collect();
        machine_of.insert(&self.boot, &self.notice.machine);
        machine_of.remove("");
        let workers = members.iter().filter_map(|member| {
            let by_boot = machine_of.get(member.boot.as_str()).copied().unwrap_or_default();
            let machine = if member.vm.is_empty() { by_boot } else { &member.vm }.to_ascii_lowercase();
            let worker = member.worker.to_string();
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
