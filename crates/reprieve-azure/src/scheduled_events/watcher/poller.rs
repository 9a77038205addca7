//! The task of a [`Watcher`](super::Watcher): sends the polls and the other requests, and passes
//! their answers on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, error, info};

use super::lane::{Failed, Lane, LaneState, POLL_TIMEOUT};
use super::log::{self, LogThrottle};
use super::publisher::ChangePublisher;
use super::{WatchState, lock};
use crate::scheduled_events::client::{Client, Compute, Failure};
use crate::scheduled_events::document::{Answer, ApiVersion};

/// The poll interval that [Azure
/// recommends](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#polling-frequency),
/// because a Spot VM may have only seconds. Each lane polls that often. The service allows five
/// requests per second to all processes of a VM together.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How long a poll takes that only reads another process's answer.
const READ_WITHIN: Duration = Duration::from_millis(50);

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
    lanes: Vec<Lane>,
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

/// A finished request, with its result. A lane is an index of [`Poller::lanes`].
#[derive(Debug)]
enum Finished {
    Poll { lane: usize, number: u64, version: ApiVersion, sent: Instant, result: Result<Answer, Failure> },
    Probe { lane: usize, version: ApiVersion, result: Result<Answer, Failure> },
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
            lanes: Lane::all(client.pinned(), began),
            client,
            publisher: ChangePublisher::new(Arc::clone(&shared), worker, name),
            shared,
            requests: JoinSet::new(),
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
            let rest_ends = self.rest_ends();
            // All are cancel-safe: a tick or a finished request that is not taken now is taken the
            // next time.
            let finished = tokio::select! {
                _ = tick.tick() => {
                    self.tick();
                    continue;
                }
                Some(finished) = self.requests.join_next() => Some(finished),
                () = sleep_until(rest_ends.unwrap_or(self.began)), if rest_ends.is_some() => None,
            };
            match finished {
                None => self.end_rests(),
                Some(Ok(Finished::Poll { lane, number, sent, result: Ok(answer), .. })) => {
                    let was_there = answer.sent < sent && answer.at - sent < READ_WITHIN;
                    self.answered(lane, number, answer);
                    // Another process wrote the answer before this poll. The next one must be waited
                    // for from now on, because the next tick would find it as late again.
                    if was_there {
                        self.poll(lane, Instant::now());
                    }
                }
                Some(Ok(Finished::Poll { lane, version, sent, result: Err(failure), .. })) => {
                    self.failed(lane, version, sent, &failure);
                }
                Some(Ok(Finished::Probe { lane, version, result })) => self.probed(lane, version, &result),
                Some(Ok(Finished::Name { at, result })) => self.name_answered(at, result),
                // The poll was aborted because a later one was answered first.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => self.panicked(&error),
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for lane in 0..self.lanes.len() {
            self.poll_if_due(lane, now);
        }
        self.send_side_request(now);
        if !self.publisher.has_answered() && !self.silence_logged && self.began.elapsed() >= SILENCE_MAX {
            self.silence_logged = true;
            log::no_answer(self.client.base(), self.publisher.lacks_only_the_name());
        }
    }

    fn poll_if_due(&mut self, lane: usize, now: Instant) {
        let others = self.lanes.iter().enumerate().filter(|(other, _)| *other != lane);
        let another = others.map(|(_, other)| other.state(now)).max().unwrap_or(LaneState::Fails);
        if self.lanes[lane].is_due(now, another) {
            self.poll(lane, now);
        }
    }

    /// When the lanes that rest are polled unless another lane is answered before; `None` while none
    /// rests.
    fn rest_ends(&self) -> Option<Instant> {
        let is_resting = self.lanes.iter().any(Lane::is_resting);
        let others = self.lanes.iter().filter(|lane| !lane.is_resting());
        others.filter_map(Lane::steady_until).max().filter(|_| is_resting)
    }

    /// Polls the lanes that rest if no other lane is steady any more: an event may be listed now, and
    /// their versions may answer again.
    fn end_rests(&mut self) {
        let now = Instant::now();
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].is_resting() {
                self.poll_if_due(lane, now);
            }
        }
    }

    fn poll(&mut self, lane: usize, now: Instant) {
        let index = lane;
        let lane = &mut self.lanes[index];
        let Some((number, within)) = lane.next_poll(now) else { return };
        let (client, version, sent) = (self.client.clone(), lane.version(), now);
        let request = self.requests.spawn(async move {
            let result = client.answer_in(version, within).await;
            Finished::Poll { lane: index, number, version, sent, result }
        });
        lane.started(number, request);
        lock(&self.shared).polls += 1;
    }

    /// Requests this VM's name or probes another version, if the rate limit allows.
    fn send_side_request(&mut self, now: Instant) {
        if !lock(&self.shared).rate_limit.allows(now) {
            return;
        }
        let name_is_missing = self.publisher.lacks_name() && !self.name_requested;
        let is_names_turn = name_is_missing && self.last_side_request == SideRequest::Probe;
        let probe = if is_names_turn { None } else { self.next_probe(now) };
        self.last_side_request = match probe {
            Some((lane, version)) => self.probe(lane, version),
            None if name_is_missing => self.request_name(),
            None => return,
        };
        lock(&self.shared).rate_limit.sent(now);
    }

    /// The lane and the version to probe now, if any.
    fn next_probe(&mut self, now: Instant) -> Option<(usize, ApiVersion)> {
        let mut lanes = self.lanes.iter_mut().enumerate();
        lanes.find_map(|(index, lane)| {
            let version =
                if lane.is_probing || lane.is_resting() { None } else { lane.negotiation.next_probe(now) };
            version.map(|version| (index, version))
        })
    }

    fn probe(&mut self, lane: usize, version: ApiVersion) -> SideRequest {
        let client = self.client.clone();
        self.requests.spawn(async move {
            Finished::Probe { lane, version, result: client.answer_in(version, POLL_TIMEOUT).await }
        });
        self.lanes[lane].is_probing = true;
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

    fn answered(&mut self, lane: usize, number: u64, answer: Answer) {
        self.accept(lane, answer.version, answer.at);
        if !self.lanes[lane].answered(number, answer.sent, answer.at) {
            return;
        }
        self.publish_versions();
        lock(&self.shared).answered_at = Some(answer.at);
        self.publisher.apply(answer);
    }

    fn failed(&mut self, lane: usize, version: ApiVersion, sent: Instant, failure: &Failure) {
        let failed = self.lanes[lane].failed(version, sent, failure);
        self.publish_versions();
        self.end_rests();
        match failed {
            Failed::Expected => {}
            Failed::TryOlder => {
                let at = Instant::now();
                if lock(&self.shared).rate_limit.allows(at) {
                    lock(&self.shared).rate_limit.sent(at);
                    self.poll(lane, at);
                }
            }
            Failed::Counts => {
                let mut shared = lock(&self.shared);
                shared.errors += 1;
                shared.failures.count(failure.kind);
            }
        }
    }

    fn probed(&mut self, lane: usize, version: ApiVersion, result: &Result<Answer, Failure>) {
        self.lanes[lane].is_probing = false;
        match result {
            Ok(answer) => {
                self.accept(lane, version, answer.at);
                self.publish_versions();
            }
            Err(failure) => {
                debug!(%version, error = %failure.error, "failed to probe this api-version");
                if !failure.may_mean_the_version() {
                    self.lanes[lane].negotiation.probed_in_vain(Instant::now());
                }
            }
        }
    }

    fn accept(&mut self, lane: usize, version: ApiVersion, at: Instant) {
        if self.lanes[lane].negotiation.accepted(version, at) {
            info!(%version, "scheduled events are read in this api-version");
        }
    }

    /// Publishes the versions in use: those that answer, and all of them if none does.
    fn publish_versions(&self) {
        let now = Instant::now();
        let versions = |lanes: &mut dyn Iterator<Item = &Lane>| lanes.map(Lane::version).collect::<Vec<_>>();
        let answering = versions(&mut self.lanes.iter().filter(|lane| lane.answers(now)));
        lock(&self.shared).versions =
            if answering.is_empty() { versions(&mut self.lanes.iter()) } else { answering };
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
        self.lanes.iter_mut().for_each(|lane| lane.is_probing = false);
        self.name_requested = false;
    }
}
