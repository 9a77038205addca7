//! Approves events: in one request if possible, with retries, and one by one when one of them is
//! refused.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use reprieve_core::{Error, ErrorKind, NoticeId, Result};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;

use super::{WatchState, lock};
use crate::scheduled_events::client::{APPROVAL_TIMEOUT, Client, Failure, FailureKind, approve_within};

/// The approvals of a watch, until `deadline`.
#[derive(Debug)]
pub(super) struct Approvals<'a> {
    client: &'a Client,
    shared: &'a Arc<Mutex<WatchState>>,
    deadline: Instant,
}

impl<'a> Approvals<'a> {
    pub(super) fn new(client: &'a Client, shared: &'a Arc<Mutex<WatchState>>, deadline: Instant) -> Self {
        Self { client, shared, deadline }
    }

    /// Approves the events that are still active. Tries all of them, even if one is refused.
    pub(super) async fn all(&self, notices: &[NoticeId]) -> Result<()> {
        let mut wanted = notices.to_vec();
        wanted.sort();
        wanted.dedup();
        self.check(&wanted)?;
        match self.approve(&wanted).await {
            Ok(()) => Ok(()),
            Err(failure) if failure.passes() => Err(failure.error),
            Err(failure) if wanted.len() == 1 => {
                self.unless_ended(vec![(wanted.remove(0), failure.error)]).await
            }
            // The service refuses a whole request when one of its events has ended.
            Err(_) => self.each(wanted).await,
        }
    }

    async fn each(&self, wanted: Vec<NoticeId>) -> Result<()> {
        let mut refused = Vec::new();
        for id in wanted {
            if let Err(failure) = self.approve(std::slice::from_ref(&id)).await {
                refused.push((id, failure.error));
            }
        }
        self.unless_ended(refused).await
    }

    /// Fails for events that can't be approved at all.
    fn check(&self, wanted: &[NoticeId]) -> Result<()> {
        let state = lock(self.shared);
        wanted.iter().try_for_each(|id| state.active_events.approval(id).map(drop))
    }

    /// Approves those of the events that are still active, in one request.
    async fn approve(&self, wanted: &[NoticeId]) -> Result<(), Failure> {
        let tries = AtomicUsize::new(0);
        let approve = |_| self.approve_once(wanted, tries.fetch_add(1, Relaxed));
        approve_within(self.deadline, approve).await
    }

    /// Each further try uses another api-version that answers, if there is one.
    async fn approve_once(&self, wanted: &[NoticeId], tries: usize) -> Result<(), Failure> {
        let at = lock(self.shared).rate_limit.approval(Instant::now());
        sleep_until(at.min(self.deadline)).await;
        if at > self.deadline {
            let message = "earlier approvals took all the time";
            let error = Error::new(ErrorKind::TimedOut, "approve an event", message);
            return Err(Failure::new(FailureKind::TimedOut, error));
        }
        let (ids, version) = {
            let state = lock(self.shared);
            // An event that no longer concerns this VM has ended for it.
            let ids = wanted.iter().filter_map(|id| state.active_events.approval(id).ok().flatten());
            (ids.map(str::to_owned).collect::<Vec<_>>(), state.versions[tries % state.versions.len()])
        };
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let left = self.deadline - Instant::now();
        self.client.approve_in(version, &ids, left.min(APPROVAL_TIMEOUT)).await?;
        info!(?ids, "events approved");
        lock(self.shared).approvals += ids.len() as u64;
        Ok(())
    }

    /// Drops the refusals of events that documents show to have ended. Waits for two documents of each
    /// version, because the first may have been requested before the refusal.
    async fn unless_ended(&self, mut refused: Vec<(NoticeId, Error)>) -> Result<()> {
        let (mut documents, versions) = {
            let state = lock(self.shared);
            (state.documents.subscribe(), state.versions.len())
        };
        for _ in 0..2 * versions {
            if refused.is_empty()
                || !matches!(timeout_at(self.deadline, documents.changed()).await, Ok(Ok(())))
            {
                break;
            }
            let state = lock(self.shared);
            refused.retain(|(id, _)| matches!(state.active_events.approval(id), Ok(Some(_))));
        }
        let Some((id, error)) = refused.into_iter().next() else { return Ok(()) };
        let message = format!("event {id}: {}", error.message());
        Err(Error::new(error.kind(), error.operation(), message).with_source(error))
    }
}
