//! The task of a [`Watcher`](super::Watcher): sends the polls and the other requests, and passes
//! their answers on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, error, info};

use super::log;
use super::log::LogThrottle;
use super::negotiation::{Negotiation, Refusal};
use super::publisher::ChangePublisher;
use super::{WatchState, lock};
use crate::scheduled_events::client::{Client, Compute, Failure};
use crate::scheduled_events::document::{Answer, ApiVersion};

/// The poll interval that [Azure
/// recommends](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#polling-frequency),
/// because a Spot VM may have only seconds. The service allows five requests per second to all
/// processes of a VM together.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The timeout of a poll while an older one still waits. Slow answers of up to 6 s have been seen;
/// one poll at a time may take longer, see [`PATIENCE`].
const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout of the one most patient poll under way. A VM's first request may take two minutes,
/// and giving up earlier might restart the two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const PATIENCE: Duration = Duration::from_secs(130);

/// How many polls may be under way: the patient one, one for each second of [`POLL_TIMEOUT`], and
/// one that is just timing out.
const IN_FLIGHT_MAX: usize = 5;

/// The timeout of one request for this VM's name. The next is sent when it has failed.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the first answer before a warning names the likely causes.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Polls until it is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    client: Client,
    shared: Arc<Mutex<WatchState>>,
    publisher: ChangePublisher,
    requests: JoinSet<Finished>,
    polls: Polls,
    poll_failures: LogThrottle,
    negotiation: Negotiation,
    is_probing: bool,
    name_requested: bool,
    name_failures: LogThrottle,
    /// The last request that was not a poll. The kinds take turns, so a name that never arrives
    /// does not keep other versions from being tried.
    last_side_request: SideRequest,
    began: Instant,
    silence_logged: bool,
}

/// A request that is not a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideRequest {
    Name,
    Probe,
}

/// A finished request, with its result.
#[derive(Debug)]
enum Finished {
    Poll { number: u64, version: ApiVersion, sent: Instant, result: Result<Answer, Failure> },
    Probe { version: ApiVersion, result: Result<Answer, Failure> },
    Name { at: Instant, result: Result<Compute> },
}

impl Poller {
    pub(super) fn new(
        client: Client,
        name: Option<String>,
        shared: Arc<Mutex<WatchState>>,
        worker: mpsc::UnboundedSender<Change>,
    ) -> Self {
        let began = Instant::now();
        Self {
            negotiation: Negotiation::new(client.pinned(), began),
            client,
            publisher: ChangePublisher::new(Arc::clone(&shared), worker, name),
            shared,
            requests: JoinSet::new(),
            polls: Polls::default(),
            poll_failures: LogThrottle::default(),
            is_probing: false,
            name_requested: false,
            name_failures: LogThrottle::default(),
            last_side_request: SideRequest::Probe,
            began,
            silence_logged: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut tick = interval(POLL_EVERY);
        // After a freeze of the VM one poll is enough: it returns as much as one for every missed
        // second would.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Both are cancel-safe: a tick or a finished request that is not taken now is taken
            // the next time.
            let finished = tokio::select! {
                _ = tick.tick() => None,
                Some(finished) = self.requests.join_next() => Some(finished),
            };
            match finished {
                None => self.tick(),
                Some(Ok(Finished::Poll { number, version, result: Ok(answer), .. })) => {
                    self.answered(number, version, answer);
                }
                Some(Ok(Finished::Poll { version, sent, result: Err(failure), .. })) => {
                    self.failed(version, sent, &failure);
                }
                Some(Ok(Finished::Probe { version, result })) => self.probed(version, &result),
                Some(Ok(Finished::Name { at, result })) => self.name_answered(at, result),
                // The poll was aborted because a later one was answered first.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => self.panicked(&error),
            }
        }
    }

    fn tick(&mut self) {
        self.poll();
        self.send_side_request();
        if !self.publisher.has_answered() && !self.silence_logged && self.began.elapsed() >= SILENCE_MAX {
            self.silence_logged = true;
            log::no_answer(self.client.base(), self.publisher.lacks_only_the_name());
        }
    }

    fn poll(&mut self) {
        let Some((number, within)) = self.polls.next() else { return };
        let (client, version, sent) = (self.client.clone(), self.negotiation.version(), Instant::now());
        let request = self.requests.spawn(async move {
            Finished::Poll { number, version, sent, result: client.answer_in(version, within).await }
        });
        self.polls.started(number, request);
        lock(&self.shared).polls = self.polls.sent();
    }

    /// Requests this VM's name or probes another version, if the rate limit allows.
    fn send_side_request(&mut self) {
        let now = Instant::now();
        if !lock(&self.shared).rate_limit.allows(now) {
            return;
        }
        let name_is_missing = self.publisher.lacks_name() && !self.name_requested;
        let is_names_turn = name_is_missing && self.last_side_request == SideRequest::Probe;
        let probe = if self.is_probing || is_names_turn { None } else { self.negotiation.next_probe(now) };
        self.last_side_request = match probe {
            Some(version) => self.probe(version),
            None if name_is_missing => self.request_name(),
            None => return,
        };
        lock(&self.shared).rate_limit.sent(now);
    }

    fn probe(&mut self, version: ApiVersion) -> SideRequest {
        let client = self.client.clone();
        self.requests.spawn(async move {
            Finished::Probe { version, result: client.answer_in(version, POLL_TIMEOUT).await }
        });
        self.is_probing = true;
        SideRequest::Probe
    }

    fn request_name(&mut self) -> SideRequest {
        let client = self.client.clone();
        self.requests.spawn(async move {
            let result = client.compute(NAME_TIMEOUT).await;
            Finished::Name { at: Instant::now(), result }
        });
        self.name_requested = true;
        SideRequest::Name
    }

    fn answered(&mut self, number: u64, version: ApiVersion, answer: Answer) {
        self.accept(version, answer.at);
        if !self.polls.counts(number) {
            debug!(number, "ignored an answer that came after a later poll's");
            return;
        }
        lock(&self.shared).answered_at = Some(answer.at);
        log::recovery(&mut self.poll_failures, answer.at);
        self.publisher.apply(answer);
    }

    fn failed(&mut self, version: ApiVersion, sent: Instant, failure: &Failure) {
        let at = Instant::now();
        if failure.may_mean_the_version() && self.negotiation.refused(version, sent, at) == Refusal::Searched
        {
            debug!(%version, error = %failure.error, "this api-version was refused; an older one is tried");
            self.publish_version();
            let may_send = lock(&self.shared).rate_limit.allows(at);
            if may_send && version > self.negotiation.version() {
                lock(&self.shared).rate_limit.sent(at);
                self.poll();
            }
            return;
        }
        self.publish_version();
        let mut shared = lock(&self.shared);
        shared.errors += 1;
        shared.failures.count(failure.kind);
        drop(shared);
        let message = "failed to poll scheduled events; polling continues";
        log::failure(&mut self.poll_failures, at, &failure.error, message);
    }

    fn probed(&mut self, version: ApiVersion, result: &Result<Answer, Failure>) {
        self.is_probing = false;
        match result {
            Ok(answer) => self.accept(version, answer.at),
            Err(failure) => {
                debug!(%version, error = %failure.error, "failed to probe this api-version");
                if !failure.may_mean_the_version() {
                    self.negotiation.probed_in_vain(Instant::now());
                }
            }
        }
    }

    fn accept(&mut self, version: ApiVersion, at: Instant) {
        if self.negotiation.accepted(version, at) {
            info!(%version, "scheduled events use this api-version");
        }
        self.publish_version();
    }

    fn publish_version(&self) {
        lock(&self.shared).version = self.negotiation.version();
    }

    fn name_answered(&mut self, at: Instant, result: Result<Compute>) {
        self.name_requested = false;
        match result {
            Ok(compute) => {
                info!(
                    name = compute.name,
                    vm_id = compute.vm_id,
                    set = compute.vm_scale_set_name,
                    "this VM's name"
                );
                self.publisher.set_name(compute.name);
            }
            Err(error) => {
                let message = "failed to get this VM's name; it is requested again";
                log::failure(&mut self.name_failures, at, &error, message);
            }
        }
    }

    /// Counts the panic and keeps polling: a bug in one request must not end the watch.
    fn panicked(&mut self, error: &JoinError) {
        error!(%error, "a request to the metadata service panicked; polling continues");
        lock(&self.shared).errors += 1;
        self.is_probing = false;
        self.name_requested = false;
    }
}

/// The polls under way, in the order in which they were sent.
///
/// A slow answer must not delay the next poll, so polls overlap, and their answers may arrive out
/// of order. An answer counts only if its request is later than any answered before. It makes all
/// earlier requests obsolete.
#[derive(Debug, Default)]
struct Polls {
    sent: u64,
    newest_answered: u64,
    under_way: BTreeMap<u64, AbortHandle>,
    patient: u64,
}

impl Polls {
    /// Returns the number and timeout of the next poll; `None` while the maximum is under way.
    fn next(&mut self) -> Option<(u64, Duration)> {
        self.under_way.retain(|_, request| !request.is_finished());
        if self.under_way.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.sent += 1;
        if self.under_way.contains_key(&self.patient) {
            Some((self.sent, POLL_TIMEOUT))
        } else {
            self.patient = self.sent;
            Some((self.sent, PATIENCE))
        }
    }

    /// Notes that poll `number` runs as `request`.
    fn started(&mut self, number: u64, request: AbortHandle) {
        self.under_way.insert(number, request);
    }

    /// Returns whether the answer to poll `number` counts. If it does, aborts earlier polls.
    fn counts(&mut self, number: u64) -> bool {
        if number <= self.newest_answered {
            return false;
        }
        self.newest_answered = number;
        let later = self.under_way.split_off(&number);
        for (_, request) in std::mem::replace(&mut self.under_way, later) {
            request.abort();
        }
        true
    }

    /// How many polls have been sent.
    const fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a poll that lasts until it is aborted; returns its limit.
    fn start(polls: &mut Polls) -> Option<Duration> {
        let (number, limit) = polls.next()?;
        polls.started(number, tokio::spawn(std::future::pending::<()>()).abort_handle());
        Some(limit)
    }

    #[tokio::test(start_paused = true)]
    async fn one_poll_is_patient_and_the_number_under_way_is_bounded() {
        let mut polls = Polls::default();
        assert_eq!(start(&mut polls), Some(PATIENCE));
        for _ in 1..IN_FLIGHT_MAX {
            assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
        }
        assert_eq!(start(&mut polls), None);
        assert_eq!(polls.sent(), IN_FLIGHT_MAX as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_makes_earlier_polls_pointless_and_leaves_later_ones() {
        let mut polls = Polls::default();
        for _ in 0..3 {
            start(&mut polls);
        }
        let earlier = polls.under_way[&1].clone();
        assert!(polls.counts(2));
        tokio::task::yield_now().await;
        assert!(earlier.is_finished());
        assert!(!polls.counts(1), "an earlier request's answer is no news");
        assert!(!polls.counts(2));
        assert_eq!(polls.under_way.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(polls.counts(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_poll_is_patient_when_the_patient_one_has_ended() {
        let mut polls = Polls::default();
        start(&mut polls);
        start(&mut polls);
        polls.under_way[&1].abort();
        tokio::task::yield_now().await;
        assert_eq!(start(&mut polls), Some(PATIENCE));
        assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
    }
}
