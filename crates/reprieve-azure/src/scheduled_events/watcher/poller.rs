//! The task behind a [`Watcher`](super::Watcher): sends the polls and the other requests, and
//! dispatches their answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, error, info};

use super::log as mention;
use super::log::Trouble;
use super::negotiation::{Negotiation, Refusal};
use super::publisher::Teller;
use super::{Shared, lock};
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

/// The task's state.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    shared: Arc<Mutex<Shared>>,
    teller: Teller,
    requests: JoinSet<Ended>,
    polls: Polls,
    poll_trouble: Trouble,
    negotiation: Negotiation,
    is_probing: bool,
    is_asking_name: bool,
    name_trouble: Trouble,
    /// The last request besides the polls. The kinds take turns, so a name that never arrives does
    /// not keep other versions from being tried.
    last_besides: Besides,
    began: Instant,
    silence_mentioned: bool,
}

/// A request besides the polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Besides {
    Name,
    Probe,
}

/// A request that has ended, with its result.
#[derive(Debug)]
enum Ended {
    Poll { number: u64, version: ApiVersion, sent: Instant, result: Result<Answer, Failure> },
    Probe { version: ApiVersion, result: Result<Answer, Failure> },
    Name { at: Instant, result: Result<Compute> },
}

impl Watch {
    pub(super) fn new(
        client: Client,
        name: Option<String>,
        shared: Arc<Mutex<Shared>>,
        worker: mpsc::UnboundedSender<Change>,
    ) -> Self {
        let began = Instant::now();
        Self {
            negotiation: Negotiation::new(client.pinned(), began),
            client,
            teller: Teller::new(Arc::clone(&shared), worker, name),
            shared,
            requests: JoinSet::new(),
            polls: Polls::default(),
            poll_trouble: Trouble::default(),
            is_probing: false,
            is_asking_name: false,
            name_trouble: Trouble::default(),
            last_besides: Besides::Probe,
            began,
            silence_mentioned: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut tick = interval(POLL_EVERY);
        // After a freeze of the VM one poll is enough: it returns as much as one for every missed
        // second would.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Both are cancel-safe: a tick or an ended request that is not taken now is taken the
            // next time.
            let ended = tokio::select! {
                _ = tick.tick() => None,
                Some(ended) = self.requests.join_next() => Some(ended),
            };
            match ended {
                None => self.tick(),
                Some(Ok(Ended::Poll { number, version, result: Ok(answer), .. })) => {
                    self.answered(number, version, answer);
                }
                Some(Ok(Ended::Poll { version, sent, result: Err(failure), .. })) => {
                    self.failed(version, sent, &failure);
                }
                Some(Ok(Ended::Probe { version, result })) => self.probed(version, &result),
                Some(Ok(Ended::Name { at, result })) => self.name_or_not(at, result),
                // The poll was aborted because a later one was answered first.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => self.panicked(&error),
            }
        }
    }

    fn tick(&mut self) {
        self.poll();
        self.ask_besides();
        if !self.teller.has_answered() && !self.silence_mentioned && self.began.elapsed() >= SILENCE_MAX {
            self.silence_mentioned = true;
            mention::silence(self.client.base(), self.teller.waits_for_the_name());
        }
    }

    fn poll(&mut self) {
        let Some((number, within)) = self.polls.next() else { return };
        let (client, version, sent) = (self.client.clone(), self.negotiation.version(), Instant::now());
        let request = self.requests.spawn(async move {
            Ended::Poll { number, version, sent, result: client.answer_in(version, within).await }
        });
        self.polls.is_under_way(number, request);
        lock(&self.shared).polls = self.polls.sent();
    }

    /// Requests this VM's name or probes another version, if the pace allows.
    fn ask_besides(&mut self) {
        let now = Instant::now();
        if !lock(&self.shared).pace.is_free(now) {
            return;
        }
        let name_is_wanted = self.teller.is_nameless() && !self.is_asking_name;
        let is_turn_of_name = name_is_wanted && self.last_besides == Besides::Probe;
        let probe = if self.is_probing || is_turn_of_name { None } else { self.negotiation.next_probe(now) };
        self.last_besides = match probe {
            Some(version) => self.probe(version),
            None if name_is_wanted => self.ask_name(),
            None => return,
        };
        lock(&self.shared).pace.take(now);
    }

    fn probe(&mut self, version: ApiVersion) -> Besides {
        let client = self.client.clone();
        self.requests.spawn(async move {
            Ended::Probe { version, result: client.answer_in(version, POLL_TIMEOUT).await }
        });
        self.is_probing = true;
        Besides::Probe
    }

    fn ask_name(&mut self) -> Besides {
        let client = self.client.clone();
        self.requests.spawn(async move {
            let result = client.compute(NAME_TIMEOUT).await;
            Ended::Name { at: Instant::now(), result }
        });
        self.is_asking_name = true;
        Besides::Name
    }

    fn answered(&mut self, number: u64, version: ApiVersion, answer: Answer) {
        self.accept(version, answer.at);
        if !self.polls.is_news(number) {
            debug!(number, "a later poll was answered before this one");
            return;
        }
        lock(&self.shared).answered_at = Some(answer.at);
        mention::recovery(&mut self.poll_trouble, answer.at);
        self.teller.take_in(answer);
    }

    fn failed(&mut self, version: ApiVersion, sent: Instant, failure: &Failure) {
        let at = Instant::now();
        if failure.may_mean_the_version() && self.negotiation.refused(version, sent, at) == Refusal::Searched
        {
            debug!(%version, error = %failure.error, "this api-version is refused; an older one is tried");
            self.version_in_use();
            let pace_is_free = lock(&self.shared).pace.is_free(at);
            if pace_is_free && version > self.negotiation.version() {
                lock(&self.shared).pace.take(at);
                self.poll();
            }
            return;
        }
        self.version_in_use();
        let mut shared = lock(&self.shared);
        shared.errors += 1;
        shared.failures.count(failure.kind);
        drop(shared);
        let what = "scheduled events were not answered; polling goes on";
        mention::failure(&mut self.poll_trouble, at, &failure.error, what);
    }

    fn probed(&mut self, version: ApiVersion, result: &Result<Answer, Failure>) {
        self.is_probing = false;
        match result {
            Ok(answer) => self.accept(version, answer.at),
            Err(failure) => {
                debug!(%version, error = %failure.error, "this api-version is not answered");
                if !failure.may_mean_the_version() {
                    self.negotiation.probed_in_vain(Instant::now());
                }
            }
        }
    }

    fn accept(&mut self, version: ApiVersion, at: Instant) {
        if self.negotiation.accepted(version, at) {
            info!(%version, "scheduled events are answered in this api-version");
        }
        self.version_in_use();
    }

    fn version_in_use(&self) {
        lock(&self.shared).version = self.negotiation.version();
    }

    fn name_or_not(&mut self, at: Instant, result: Result<Compute>) {
        self.is_asking_name = false;
        match result {
            Ok(compute) => {
                info!(
                    name = compute.name,
                    vm_id = compute.vm_id,
                    set = compute.vm_scale_set_name,
                    "this VM's name"
                );
                self.teller.is_called(compute.name);
            }
            Err(error) => {
                let what = "this VM's name was not answered; it is asked again";
                mention::failure(&mut self.name_trouble, at, &error, what);
            }
        }
    }

    /// Counts the panic and keeps polling: a bug in one request must not end the watch.
    fn panicked(&mut self, error: &JoinError) {
        error!(%error, "a request to the metadata service panicked; polling goes on");
        lock(&self.shared).errors += 1;
        self.is_probing = false;
        self.is_asking_name = false;
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

    /// Adds poll `number`, which runs as `request`.
    fn is_under_way(&mut self, number: u64, request: AbortHandle) {
        self.under_way.insert(number, request);
    }

    /// Returns whether the answer to poll `number` counts. If it does, aborts earlier polls.
    fn is_news(&mut self, number: u64) -> bool {
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
        polls.is_under_way(number, tokio::spawn(std::future::pending::<()>()).abort_handle());
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
        assert!(polls.is_news(2));
        tokio::task::yield_now().await;
        assert!(earlier.is_finished());
        assert!(!polls.is_news(1), "an earlier request's answer is no news");
        assert!(!polls.is_news(2));
        assert_eq!(polls.under_way.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(polls.is_news(3));
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
