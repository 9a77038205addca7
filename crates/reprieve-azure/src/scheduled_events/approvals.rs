//! Approves events: in one request where it can, again where that may help, and each for itself where one is refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::{Error, ErrorKind, NoticeId, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{debug, info};

use super::Client;
use super::failure::{Failure, FailureKind};
use super::shared::{Shared, lock};

/// How long one request may take. Approvals are sent while a drain ends, when seconds count.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long after a failure the next request is sent, and how long at most after many.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(4);

/// The moment at which so much time is over; a day ahead is for ever.
pub(super) fn deadline_in(within: Duration) -> Instant {
    Instant::now() + within.min(Duration::from_hours(24))
}

/// Sends an approval until it is answered, it is refused, or no other would end before `deadline`.
pub(super) async fn approve_within<F>(deadline: Instant, send: impl Fn(Duration) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut backoff = BACKOFF_MIN;
    loop {
        let left = deadline - Instant::now();
        match send(left.min(TRY_TIMEOUT)).await {
            Err(failure) if failure.passes() && Instant::now() + backoff < deadline => {
                debug!(error = %failure.error, "an approval failed and is tried again");
                sleep(backoff).await;
                backoff = (2 * backoff).min(BACKOFF_MAX);
            }
            ended => return ended,
        }
    }
}

/// The approvals of a watch, until `deadline`.
#[derive(Debug)]
pub(super) struct Approvals<'a> {
    client: &'a Client,
    shared: &'a Arc<Mutex<Shared>>,
    deadline: Instant,
}

impl<'a> Approvals<'a> {
    pub(super) fn new(client: &'a Client, shared: &'a Arc<Mutex<Shared>>, deadline: Instant) -> Self {
        Self { client, shared, deadline }
    }

    /// Approves the events that still stand. All are tried, also when one of them is refused.
    pub(super) async fn all(&self, notices: &[NoticeId]) -> Result<()> {
        let mut wanted = notices.to_vec();
        wanted.sort();
        wanted.dedup();
        self.check(&wanted)?;
        match self.approve(&wanted).await {
            Ok(()) => Ok(()),
            Err(failure) if failure.passes() => Err(failure.error),
            Err(failure) if wanted.len() == 1 => {
                self.unless_over(vec![(wanted.remove(0), failure.error)]).await
            }
            // One event that is over makes the service refuse them all.
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
        self.unless_over(refused).await
    }

    /// Fails for what can't be approved at all.
    fn check(&self, wanted: &[NoticeId]) -> Result<()> {
        let state = lock(self.shared);
        wanted.iter().try_for_each(|id| state.standing.approval(id).map(drop))
    }

    /// Approves in one request what of these still stands.
    async fn approve(&self, wanted: &[NoticeId]) -> Result<(), Failure> {
        approve_within(self.deadline, |_| self.approve_once(wanted)).await
    }

    async fn approve_once(&self, wanted: &[NoticeId]) -> Result<(), Failure> {
        let at = lock(self.shared).pace.approval(Instant::now());
        sleep_until(at.min(self.deadline)).await;
        if at > self.deadline {
            let message = "the approvals before it took all the time there was";
            let error = Error::new(ErrorKind::TimedOut, "approve an event", message);
            return Err(Failure::new(FailureKind::TimedOut, error));
        }
        let (ids, version) = {
            let state = lock(self.shared);
            // What has ceased to concern this VM meanwhile is over for it.
            let ids = wanted.iter().filter_map(|id| state.standing.approval(id).ok().flatten());
            (ids.map(str::to_owned).collect::<Vec<_>>(), state.version)
        };
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let left = self.deadline - Instant::now();
        self.client.approve_in(version, &ids, left.min(TRY_TIMEOUT)).await?;
        info!(?ids, "events approved");
        lock(self.shared).approvals += ids.len() as u64;
        Ok(())
    }

    /// A refusal is none when a document shows that the event was over: the next, or the one after it, because the next
    /// may have been asked for before the refusal.
    async fn unless_over(&self, mut refused: Vec<(NoticeId, Error)>) -> Result<()> {
        let mut documents = lock(self.shared).documents.subscribe();
        for _ in 0..2 {
            if refused.is_empty()
                || !matches!(timeout_at(self.deadline, documents.changed()).await, Ok(Ok(())))
            {
                break;
            }
            let state = lock(self.shared);
            refused.retain(|(id, _)| matches!(state.standing.approval(id), Ok(Some(_))));
        }
        let Some((id, error)) = refused.into_iter().next() else { return Ok(()) };
        let message = format!("event {id}: {}", error.message());
        Err(Error::new(error.kind(), error.operation(), message).with_source(error))
    }
}
