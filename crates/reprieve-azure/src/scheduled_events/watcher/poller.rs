//! The task of a [`Watcher`](super::Watcher): sends the polls and the other requests, and passes
//! their answers on.

use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{error, info};

use super::lanes::Lanes;
use super::log::{self, LogThrottle};
use super::neighbours::Neighbours;
use super::publisher::ChangePublisher;
use super::{WatchState, lock};
use crate::scheduled_events::client::{
    Answered, Client, Compute, Failure, FailureKind, LOOK_EVERY, Look, News, Note, PollResult, read_answer,
};
use crate::scheduled_events::document::{Answer, ApiVersion};

/// The poll interval that [Azure
/// recommends](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#polling-frequency),
/// because a Spot VM may have only seconds. Each lane polls that often. The service allows five
/// requests per second to all processes of a VM together.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The interval's factor: at random, because workers that share nothing and together send more than the
/// limit would otherwise poll at the same moments of each second, and always the same ones would get 429. A
/// little above 1, so that what was sent at the last tick no longer counts.
const ALONE: Range<f64> = 1.02..1.06;

/// The same after a 429: longer, which leaves the others more requests.
const CROWDED: Range<f64> = 1.0..1.25;

/// A look that comes so late follows a stop of this process.
const LATE_LOOK: Duration = Duration::from_secs(1);

/// The timeout of one request for this VM's name. The next is sent when it has failed.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the first answer before a warning names the likely causes.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Polls until it is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    client: Client,
    /// The polls that it shares with the other watchers of this VM.
    neighbours: Option<Neighbours>,
    part: Part,
    /// When it was last time for a look.
    looked_at: Instant,
    /// No poll before the next look: this process was stopped, and another one may poll by now.
    must_look: bool,
    shared: Arc<Mutex<WatchState>>,
    publisher: ChangePublisher,
    requests: JoinSet<Finished>,
    lanes: Lanes,
    name_requested: bool,
    name_failures: LogThrottle,
    began: Instant,
    silence_logged: bool,
}

/// The part of a watcher among those of its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It polls, for all or for itself.
    Polls,
    /// It is about to poll for the first time after another one.
    TakesOver,
    /// Another one polls for it.
    Reads,
}

/// A finished request, with its result. A lane is an index of [`Poller::lanes`].
#[derive(Debug)]
enum Finished {
    Poll { lane: usize, number: u64, sent: Instant, answered: Answered },
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
            lanes: Lanes::new(client.pinned(), began),
            neighbours: client.shared_polls().map(Neighbours::new),
            part: Part::Polls,
            looked_at: began,
            must_look: true,
            client,
            publisher: ChangePublisher::new(Arc::clone(&shared), worker, name),
            shared,
            requests: JoinSet::new(),
            name_requested: false,
            name_failures: LogThrottle::default(),
            began,
            silence_logged: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut tick = interval(POLL_EVERY);
        // After a freeze of the VM one poll is enough: it returns as much as one for every missed
        // second would.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.begin_look();
        loop {
            let may_poll = self.may_poll();
            let wakes_at = self.lanes.wakes_at(Instant::now()).filter(|_| may_poll && self.polls());
            // All are cancel-safe: a tick, a look or a finished request that is not taken now is taken the
            // next time.
            let finished = tokio::select! {
                _ = tick.tick(), if may_poll => {
                    if self.was_stopped() {
                        tick.reset_immediately();
                        continue;
                    }
                    self.tick();
                    let factor = if self.lanes.is_throttled() { CROWDED } else { ALONE };
                    tick.reset_after(POLL_EVERY.mul_f64(rand::random_range(factor)));
                    continue;
                }
                _ = look.tick(), if self.neighbours.is_some() => {
                    self.was_stopped();
                    self.looked_at = Instant::now();
                    self.begin_look();
                    if self.neighbours.as_mut().is_some_and(Neighbours::hangs) && self.takes_over() {
                        tick.reset_at(self.next_tick());
                    }
                    continue;
                }
                look = looked(&mut self.neighbours) => {
                    if self.looked(look) {
                        tick.reset_at(self.next_tick());
                    }
                    continue;
                }
                Some(finished) = self.requests.join_next() => Some(finished),
                () = sleep_until(wakes_at.unwrap_or(self.began)), if wakes_at.is_some() => None,
            };
            match finished {
                // After a stop another one may poll by now.
                None if self.was_stopped() => {}
                None => {
                    let now = Instant::now();
                    let due = self.lanes.wake(now);
                    self.poll_all(due, now);
                }
                Some(Ok(Finished::Poll { lane, number, sent, answered })) => {
                    self.polled(lane, number, sent, answered);
                }
                Some(Ok(Finished::Name { at, result })) => self.name_answered(at, result),
                // The poll was aborted because a later one was answered first.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => self.panicked(&error),
            }
        }
    }

    /// Whether it is known whether another watcher polls.
    fn may_poll(&mut self) -> bool {
        !self.must_look || self.neighbours.as_mut().is_none_or(Neighbours::hangs)
    }

    /// Whether this process did nothing for a while, such as while it was stopped. Then it looks before it polls.
    fn was_stopped(&mut self) -> bool {
        let gap = self.looked_at.elapsed();
        if self.neighbours.is_none() || gap <= LATE_LOOK {
            return false;
        }
        // What it did not hear is no silence.
        self.lanes.slept(gap);
        (self.looked_at, self.must_look) = (Instant::now(), true);
        self.begin_look();
        true
    }

    /// Begins to look whether another watcher polls for this one, and what it got, unless that is under way.
    fn begin_look(&mut self) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.begin(self.lanes.next_to_try());
        }
    }

    /// Applies what a look has found. Returns whether this watcher is to poll from now on.
    fn looked(&mut self, look: Look) -> bool {
        self.must_look = false;
        let takes_over = look.polls && self.takes_over();
        if !look.polls {
            self.part = Part::Reads;
        }
        for News { version, sent, answered } in look.news {
            let Some(lane) = self.lanes.of(version) else { continue };
            self.lanes.lane(lane).polled_by_another(sent);
            self.finished(lane, None, read_answer(version, sent, answered));
        }
        self.try_once(look.trial);
        if self.neighbours.as_ref().is_some_and(Neighbours::has_notes) {
            self.begin_look();
        }
        takes_over
    }

    /// Polls from now on. Returns whether another watcher has polled for this one until now.
    fn takes_over(&mut self) -> bool {
        let is_new = self.part == Part::Reads;
        if is_new {
            self.part = Part::TakesOver;
        }
        is_new
    }

    /// Sends a single poll in this version, because another watcher polls for this one and nobody has heard an answer
    /// for a while: only the other one may get none.
    fn try_once(&mut self, version: Option<ApiVersion>) {
        let Some(lane) = version.and_then(|version| self.lanes.of(version)) else { return };
        let now = Instant::now();
        self.lanes.lane(lane).tries(now);
        self.poll(lane, now);
    }

    /// Passes the result of a poll of its own on to the others, and applies it.
    fn polled(&mut self, lane: usize, number: u64, sent: Instant, answered: Answered) {
        let version = self.lanes.lane(lane).version;
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.note(Note::Polled(PollResult::of(version, sent, &answered)));
        }
        let result = read_answer(version, sent, answered);
        // That a single poll failed says nothing of the other one's.
        if self.polls() || result.is_ok() {
            self.finished(lane, Some(number), result);
        }
        self.begin_look();
    }

    fn polls(&self) -> bool {
        self.part != Part::Reads
    }

    /// When a watcher polls first that has taken the polls over: at once, or a second after the last ones, which
    /// may be all that the service answers in it.
    fn next_tick(&self) -> Instant {
        let after = self.lanes.polled_at().map(|at| at + POLL_EVERY.mul_f64(ALONE.end));
        after.unwrap_or_else(Instant::now).max(Instant::now())
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.polls() {
            let due = self.lanes.tick(now);
            self.poll_all(due, now);
            if std::mem::replace(&mut self.part, Part::Polls) == Part::TakesOver {
                // Nobody has polled for a while, and the versions that answered may not answer now.
                let urgent = self.lanes.urgent(now);
                self.poll_all(urgent, now);
            }
        }
        self.request_name(now);
        if !self.publisher.has_answered() && !self.silence_logged && self.began.elapsed() >= SILENCE_MAX {
            self.silence_logged = true;
            log::no_answer(self.client.base(), self.publisher.lacks_only_the_name());
        }
    }

    fn poll_all(&mut self, lanes: Vec<usize>, now: Instant) {
        for lane in lanes {
            self.poll(lane, now);
        }
    }

    fn poll(&mut self, index: usize, now: Instant) {
        let lane = self.lanes.lane(index);
        let Some((number, within)) = lane.next_poll(now) else { return };
        let (client, version, sent) = (self.client.clone(), lane.version, now);
        let request = self.requests.spawn(async move {
            let answered = client.poll(version, within).await;
            Finished::Poll { lane: index, number, sent, answered }
        });
        lane.started(number, request);
        lock(&self.shared).polls += 1;
    }

    /// Requests this VM's name if it is missing and the rate limit allows.
    fn request_name(&mut self, now: Instant) {
        let is_missing = self.publisher.lacks_name() && !self.name_requested;
        if !is_missing || !lock(&self.shared).rate_limit.allows(now) {
            return;
        }
        let client = self.client.clone();
        self.requests.spawn(async move {
            let result = client.compute_once(NAME_TIMEOUT).await;
            Finished::Name { at: Instant::now(), result }
        });
        self.name_requested = true;
        lock(&self.shared).rate_limit.sent(now);
    }

    /// Applies the result of a poll; without a number it was another watcher's.
    fn finished(&mut self, lane: usize, number: Option<u64>, result: Result<Answer, Failure>) {
        match result {
            Ok(answer) => self.answered(lane, number, answer),
            Err(failure) => self.failed(lane, &failure),
        }
    }

    fn answered(&mut self, lane: usize, number: Option<u64>, answer: Answer) {
        match &mut self.neighbours {
            Some(neighbours) if self.lanes.is_enough(lane) => neighbours.note(Note::Heard(Instant::now())),
            Some(neighbours) => neighbours.note(Note::HeardOtherwise(Instant::now())),
            None => {}
        }
        if !self.lanes.answered(lane, number, answer.sent, answer.at) {
            return;
        }
        self.publish_versions();
        lock(&self.shared).answered_at = Some(answer.at);
        self.publisher.apply(answer);
    }

    fn failed(&mut self, lane: usize, failure: &Failure) {
        let now = Instant::now();
        let is_throttled = failure.kind == FailureKind::Throttled && !self.lanes.any_is_steady(now);
        if let Some(neighbours) = self.neighbours.as_mut().filter(|_| is_throttled) {
            neighbours.note(Note::HeardOtherwise(now));
        }
        if self.lanes.failed(lane, failure, now) {
            let mut shared = lock(&self.shared);
            shared.errors += 1;
            shared.failures.count(failure.kind);
        }
        self.publish_versions();
        if self.polls() {
            let urgent = self.lanes.urgent(now);
            self.poll_all(urgent, now);
        }
    }

    fn publish_versions(&self) {
        lock(&self.shared).versions = self.lanes.versions(Instant::now());
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
        self.name_requested = false;
    }
}

/// Waits for the end of a look under way.
async fn looked(neighbours: &mut Option<Neighbours>) -> Look {
    match neighbours {
        Some(neighbours) => neighbours.looked().await,
        None => pending().await,
    }
}
