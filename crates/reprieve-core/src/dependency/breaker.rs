//! The circuit breaker of a dependency: closed while it serves, open while it does not, half-open while
//! that is tried.
//!
//! It is pure: it has no clock, calls nothing, and draws nothing at random. Times are counted from any
//! moment, for example the worker's start.
//!
//! ```text
//!                 calls fail by their rate, a probe fails,
//!                 or a maintenance begins (at most 60 s)
//!    ┌────────┐ ───────────────────────────────────────────▶ ┌──────┐
//!    │ closed │                half of the calls or a probe    │ open │ ◀─┐ a probe fails: the next one
//!    └────────┘                fail, or a maintenance begins   └──────┘ ──┘ comes later
//!        ▲                                                     ▲    │
//!        │                       ┌─────────────────────────────┘    │ a probe succeeds, after the
//!        │   32 are admitted     │                                  │ maintenance or its 60 s
//!        └────────────────── ┌───────────┐ ◀───────────────────────┘
//!                            │ half-open │ ─┐ a probe succeeds, or all that were admitted have
//!                            └───────────┘ ◀┘ an answer: twice as many are admitted
//! ```
//!
//! | event | closed | open | half-open |
//! |---|---|---|---|
//! | a maintenance is scheduled | shown | shown | shown |
//! | a maintenance of the primary begins | open for 60 s | open for 60 s more | open for 60 s |
//! | it has switched over, or ended | topology | probe within 5 s, topology | topology |
//! | a replica's maintenance begins | prefer the primary | the same | the same |
//! | it has ended | prefer no one | the same | the same |
//! | a call fails | probe at once; open if it is the third of ten seconds, and half of all | a proof | open if half of all |
//! | a call succeeds | counts in the rate | - | admit twice as many when all have an answer |
//! | the connection is lost | probe at once | a proof | probe at once |
//! | a probe fails | open | next one later, a proof | open |
//! | a probe succeeds | next in 15 s | half-open, unless a switch is awaited | admit twice as many, or close |
//!
//! What was only announced, without a proof by a connection, opens it for no more than 5 minutes in an hour.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long an announced maintenance keeps the breaker open, counted from the receipt. In Microsoft's time
/// line a failover takes 10 s from `NodeMaintenanceStart` on, and 30 s from `NodeMaintenanceStarting` on.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-failover>
pub const ANNOUNCED_MAX: Duration = Duration::from_secs(60);

/// For how long announcements may put the probe off that decides: Microsoft's time line has two, 20 s apart.
const UNPROBED_MAX: Duration = Duration::from_secs(2 * ANNOUNCED_MAX.as_secs());

/// How long announcements alone keep it open within an hour. They are not reliable: see
/// <https://github.com/StackExchange/StackExchange.Redis/issues/2405>.
pub const ANNOUNCED_PER_HOUR: Duration = Duration::from_mins(5);
const HOUR: Duration = Duration::from_hours(1);

/// How long after an announcement jobs that run may still call, to end the step that they are in: Microsoft's
/// `NodeMaintenanceStarting` comes about 20 s before, and `NodeMaintenanceStart` at the failover.
const GRACE: Duration = Duration::from_secs(5);

/// The longest time for which a replica in maintenance is avoided without a message that it has ended. In
/// Microsoft's time line it takes 3 minutes.
const REPLICA_MAX: Duration = Duration::from_mins(15);

/// The window of the rate of failed calls, and how many must fail in it.
const WINDOW: Duration = Duration::from_secs(10);
const FAILED_MIN: u32 = 3;

/// The pause between probes while the breaker is closed, and the shortest one.
const CLOSED_PAUSE: Duration = Duration::from_secs(15);
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between probes while it is open.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Over what time the workers of a fleet spread their first look after a failover.
pub const SPREAD: Duration = Duration::from_secs(5);

/// The time after which a half-open breaker probes, so that it closes also if nobody calls.
const ROUND: Duration = Duration::from_secs(1);

/// For how long a closed breaker is doubted at most after calls had failed: those who use the dependency may not call it
/// again for long, and the next ones may fail, too.
const DOUBTED_MAX: Duration = Duration::from_mins(1);

/// For how long it must have been closed until an answered call ends that doubt. Where calls fail by turns it opens again
/// before: with one answer as the end, a backlog of jobs that use it took all slots at each turn.
const STEADY: Duration = Duration::from_secs(10);

/// The number of calls that are admitted at once from which on the breaker is closed.
const CLOSED_FROM: u32 = 32;

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BreakerState {
    /// The dependency is used.
    Closed,
    /// It is not used.
    Open,
    /// Few use it, to try whether it serves again.
    HalfOpen,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns the state's name in metrics, logs and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event in the life of a dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// A maintenance is planned for this time, in milliseconds of Unix time, if it is known. It is shown, and
    /// opens nothing: users saw such messages without a maintenance.
    Scheduled(Option<i64>),
    /// A maintenance of the primary begins within about 20 s, or now.
    Begins,
    /// A maintenance of a replica begins.
    ReplicaBegins,
    /// Another node has become the primary.
    Switched,
    /// A maintenance has ended.
    Ended,
    /// The dependency has been scaled: its nodes are others.
    Scaled,
    /// A connection that was held open to watch the dependency is lost.
    Disconnected,
}

/// The result of a call or a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was answered.
    Served,
    /// It failed, because of this.
    Failed(String),
}

/// The reason for which a breaker is open.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    Announced,
    Calls { failed: u32, of: u32, last: String },
    Probe(String),
    Call(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Announced => f.write_str("a maintenance of its primary was announced"),
            Self::Calls { failed, of, last } => {
                write!(f, "{failed} of {of} calls failed within {} s, at last with: {last}", WINDOW.as_secs())
            }
            Self::Probe(reason) => write!(f, "a probe failed: {reason}"),
            Self::Call(reason) => write!(f, "a call failed: {reason}"),
        }
    }
}

/// A change that an event made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The breaker opened, for this reason.
    Opened(String),
    /// It is half-open after it was open for this time.
    HalfOpened(Duration),
    /// It closed.
    Closed,
    /// An announcement was ignored, because announcements alone had kept it open for too long.
    Ignored,
}

#[derive(Debug)]
enum State {
    Closed,
    Open(Open),
    HalfOpen { allowed: u32, admitted: u32, answered: u32 },
}

#[derive(Debug)]
struct Open {
    why: Why,
    /// Until when a maintenance that was announced is waited for, unless it ends before.
    announced_until: Option<Duration>,
    /// Whether a call, a probe or a connection failed.
    is_proven: bool,
    pause: Duration,
}

/// The circuit breaker of one dependency. See the [module's table](self).
#[derive(Debug)]
pub struct Breaker {
    state: State,
    since: Duration,
    /// When it was closed last, and not doubted; `None` while it is.
    away_since: Option<Duration>,
    /// Calls had failed when it opened, and none was answered since it had been closed for [`STEADY`].
    calls_fail: bool,
    probe_at: Duration,
    probed_at: Option<Duration>,
    /// A probe was asked for since the last one began. That one says nothing of what came after it began.
    is_suspected: bool,
    /// The recent calls by the second: the second, how many, and how many of them failed.
    calls: VecDeque<(u64, u32, u32)>,
    /// When announcements alone kept it open.
    announced: VecDeque<(Duration, Duration)>,
    avoid_replicas_until: Option<Duration>,
    scheduled_unix_ms: Option<i64>,
    topology: u64,
    /// How often it has opened.
    openings: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    /// Returns a closed breaker whose first probe is due at once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Closed,
            since: Duration::ZERO,
            away_since: None,
            calls_fail: false,
            probe_at: Duration::ZERO,
            probed_at: None,
            is_suspected: false,
            calls: VecDeque::new(),
            announced: VecDeque::new(),
            avoid_replicas_until: None,
            scheduled_unix_ms: None,
            topology: 0,
            openings: 0,
        }
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open(_) => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns since when it has been in its state.
    #[must_use]
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// Returns why it is open.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        match &self.state {
            State::Open(open) => Some(open.why.to_string()),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    /// Returns when the next probe is due.
    #[must_use]
    pub const fn probe_at(&self) -> Duration {
        self.probe_at
    }

    /// Returns for when a maintenance is scheduled, in milliseconds of Unix time.
    #[must_use]
    pub const fn scheduled_unix_ms(&self) -> Option<i64> {
        self.scheduled_unix_ms
    }

    /// Whether those who read replicas should read the primary instead.
    #[must_use]
    pub fn avoids_replicas(&self, now: Duration) -> bool {
        self.avoid_replicas_until.is_some_and(|until| now < until)
    }

    /// Returns a number that grows whenever connections should be made anew, because the nodes may be others.
    #[must_use]
    pub const fn topology(&self) -> u64 {
        self.topology
    }

    /// Returns how often it has opened: what was admitted before need not be any more.
    #[must_use]
    pub const fn openings(&self) -> u64 {
        self.openings
    }

    /// Whether most of those who use the dependency do without it: while it is not closed, and where calls had failed
    /// until one is answered ten seconds after that, or for a minute at most.
    #[must_use]
    pub fn is_done_without(&self, now: Duration) -> bool {
        let is_doubted = self.calls_fail && now.saturating_sub(self.since) < DOUBTED_MAX;
        self.state() != BreakerState::Closed || is_doubted
    }

    /// Whether one more call may be made. Counts it where that is limited.
    pub fn admit(&mut self) -> bool {
        match &mut self.state {
            State::Closed => true,
            State::Open(_) => false,
            State::HalfOpen { allowed, admitted, .. } => {
                let is_admitted = admitted < allowed;
                *admitted += u32::from(is_admitted);
                is_admitted
            }
        }
    }

    /// Whether a job that runs may call: while it is not open, and a moment longer where a maintenance is only
    /// announced.
    #[must_use]
    pub fn lets_end(&self, now: Duration) -> bool {
        match &self.state {
            State::Closed | State::HalfOpen { .. } => true,
            State::Open(open) => !open.is_proven && now.saturating_sub(self.since) < GRACE,
        }
    }

    /// Takes a signal. `spread` is a random number from 0 to 1.
    pub fn on_signal(&mut self, signal: &Signal, now: Duration, spread: f64) -> Option<Change> {
        match signal {
            Signal::Scheduled(at) => {
                self.scheduled_unix_ms = *at;
                None
            }
            Signal::Begins => {
                self.avoid_replicas_until = Some(now + REPLICA_MAX);
                self.announce(now)
            }
            Signal::ReplicaBegins => {
                self.avoid_replicas_until = Some(now + REPLICA_MAX);
                None
            }
            Signal::Switched | Signal::Ended | Signal::Scaled => {
                self.topology += 1;
                if *signal == Signal::Ended {
                    self.avoid_replicas_until = None;
                    self.scheduled_unix_ms = None;
                }
                if let State::Open(open) = &mut self.state {
                    open.announced_until = None;
                    self.probe_at = self.probe_at.min(now + SPREAD.mul_f64(spread));
                }
                None
            }
            Signal::Disconnected => {
                self.suspect(now);
                None
            }
        }
    }

    /// Takes the answer to a call of somebody who uses the dependency.
    pub fn on_call(&mut self, answer: &Answer, now: Duration) -> Option<Change> {
        let is_steady = self.state() == BreakerState::Closed && now.saturating_sub(self.since) >= STEADY;
        if *answer == Answer::Served && self.calls_fail && is_steady {
            (self.calls_fail, self.away_since) = (false, None);
        }
        match (&mut self.state, answer) {
            (State::Closed, _) => {
                let (of, failed) = self.count(answer, now);
                let Answer::Failed(last) = answer else { return None };
                if failed >= FAILED_MIN && failed * 2 >= of {
                    return Some(self.open(Why::Calls { failed, of, last: last.clone() }, now));
                }
                self.suspect(now);
                None
            }
            (State::Open(_), Answer::Failed(_)) => {
                self.suspect(now);
                None
            }
            (State::Open(_), Answer::Served) => None,
            (State::HalfOpen { allowed, answered, .. }, _) => {
                *answered += 1;
                let have_all = answered >= allowed;
                let (of, failed) = self.count(answer, now);
                if let Answer::Failed(reason) = answer
                    && failed * 2 >= of
                {
                    return Some(self.open(Why::Call(reason.clone()), now));
                }
                if have_all { self.admit_more(now) } else { None }
            }
        }
    }

    /// A probe begins. Its answer is the next that [`on_probe`](Self::on_probe) takes.
    pub const fn on_probe_begins(&mut self) {
        self.is_suspected = false;
    }

    /// Takes the answer to a probe. `spread` is a random number from 0 to 1.
    pub fn on_probe(&mut self, answer: &Answer, now: Duration, spread: f64) -> Option<Change> {
        self.probed_at = Some(now);
        let is_suspected = std::mem::take(&mut self.is_suspected);
        let change = self.after_probe(answer, now, spread);
        if is_suspected && self.state() != BreakerState::Open {
            self.probe_at = self.probe_at.min(now + PAUSE_MIN);
        }
        change
    }

    fn after_probe(&mut self, answer: &Answer, now: Duration, spread: f64) -> Option<Change> {
        match (&mut self.state, answer) {
            (State::Open(open), Answer::Failed(reason)) => {
                open.is_proven = true;
                if open.why == Why::Announced {
                    open.why = Why::Probe(reason.clone());
                }
                self.probe_at = now + open.pause.mul_f64(0.75 + spread / 2.0);
                open.pause = (open.pause * 2).min(PAUSE_MAX);
                None
            }
            (_, Answer::Failed(reason)) => Some(self.open(Why::Probe(reason.clone()), now)),
            (State::Closed, Answer::Served) => {
                self.probe_at = now + CLOSED_PAUSE.mul_f64(0.75 + spread / 2.0);
                None
            }
            (State::Open(open), Answer::Served) => {
                // Until the switch, the old primary may still serve.
                if let Some(until) = open.announced_until.filter(|until| now < *until) {
                    self.probe_at = until;
                    return None;
                }
                let was_open = now.saturating_sub(self.since);
                self.end_announced(now);
                self.topology += 1;
                self.enter(State::HalfOpen { allowed: 1, admitted: 0, answered: 0 }, now);
                self.probe_at = now + ROUND;
                Some(Change::HalfOpened(was_open))
            }
            (State::HalfOpen { .. }, Answer::Served) => self.admit_more(now),
        }
    }

    fn announce(&mut self, now: Duration) -> Option<Change> {
        let left = ANNOUNCED_PER_HOUR.saturating_sub(self.announced_within_an_hour(now));
        match &mut self.state {
            State::Open(open) => {
                let most = if open.is_proven { ANNOUNCED_MAX } else { ANNOUNCED_MAX.min(left) };
                let latest = self.probed_at.unwrap_or_default().max(self.since) + UNPROBED_MAX;
                let until = open.announced_until.unwrap_or(now).max(now + most).min(latest.max(now));
                open.announced_until = Some(until);
                self.probe_at = until;
                None
            }
            _ if left.is_zero() => Some(Change::Ignored),
            _ => {
                let change = self.open(Why::Announced, now);
                let until = now + ANNOUNCED_MAX.min(left);
                if let State::Open(open) = &mut self.state {
                    open.announced_until = Some(until);
                    open.is_proven = false;
                }
                self.probe_at = until;
                Some(change)
            }
        }
    }

    /// Asks for a probe soon, because somebody doubts that the dependency serves.
    pub(super) fn doubt(&mut self, now: Duration) {
        if !matches!(self.state, State::Open(_)) {
            self.suspect(now);
        }
    }

    /// Asks for a probe; while it is open, this proves that it should be.
    fn suspect(&mut self, now: Duration) {
        if let State::Open(open) = &mut self.state {
            open.is_proven = true;
            return;
        }
        self.is_suspected = true;
        let soonest = self.probed_at.map_or(now, |at| now.max(at + PAUSE_MIN));
        self.probe_at = self.probe_at.min(soonest);
    }

    fn open(&mut self, why: Why, now: Duration) -> Change {
        let reason = why.to_string();
        self.forget_old_calls(now);
        let had_failed = self.calls.drain(..).any(|(.., failed)| failed > 0);
        let calls_fail = had_failed || matches!(why, Why::Calls { .. } | Why::Call(_));
        self.openings += 1;
        self.enter(State::Open(Open { why, announced_until: None, is_proven: true, pause: PAUSE_MIN }), now);
        self.calls_fail |= calls_fail;
        self.probe_at = now + PAUSE_MIN;
        Change::Opened(reason)
    }

    /// Returns when it was closed last; `None` while it is.
    pub(super) const fn away_since(&self) -> Option<Duration> {
        self.away_since
    }

    /// Returns for how long it has not been closed, or only in doubt.
    pub(super) fn away_for(&self, now: Duration) -> Duration {
        self.away_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn enter(&mut self, state: State, now: Duration) {
        let is_closed = matches!(state, State::Closed);
        let before = self.away_since.filter(|_| self.is_done_without(now));
        self.away_since = if is_closed { before.filter(|_| self.calls_fail) } else { before.or(Some(now)) };
        self.state = state;
        self.since = now;
    }

    fn admit_more(&mut self, now: Duration) -> Option<Change> {
        let State::HalfOpen { allowed, .. } = self.state else { return None };
        let allowed = allowed * 2;
        let is_closed = allowed >= CLOSED_FROM;
        let next = now + if is_closed { CLOSED_PAUSE } else { ROUND };
        // Answers to calls that were under way when somebody doubted it do not put that probe off.
        self.probe_at = if self.is_suspected { self.probe_at.min(next) } else { next };
        if is_closed {
            self.enter(State::Closed, now);
            return Some(Change::Closed);
        }
        self.state = State::HalfOpen { allowed, admitted: 0, answered: 0 };
        None
    }

    /// Counts a call, from when it opened on: a share of calls that fails by a fault of its own, and does not open a closed
    /// one, must not keep a half-open one from closing. Returns how many there were within the window, and how many of them
    /// failed.
    fn count(&mut self, answer: &Answer, now: Duration) -> (u32, u32) {
        self.forget_old_calls(now);
        let second = now.as_secs();
        if self.calls.back().is_none_or(|&(at, ..)| at != second) {
            self.calls.push_back((second, 0, 0));
        }
        if let Some((_, of, failed)) = self.calls.back_mut() {
            *of += 1;
            *failed += u32::from(*answer != Answer::Served);
        }
        self.calls.iter().fold((0, 0), |(of, failed), &(_, o, f)| (of + o, failed + f))
    }

    fn forget_old_calls(&mut self, now: Duration) {
        let is_old = |&(at, ..): &(u64, u32, u32)| at + WINDOW.as_secs() <= now.as_secs();
        while self.calls.front().is_some_and(is_old) {
            self.calls.pop_front();
        }
    }

    /// Remembers for how long announcements alone kept it open.
    fn end_announced(&mut self, now: Duration) {
        if let State::Open(Open { is_proven: false, .. }) = self.state {
            self.announced.push_back((self.since, now));
        }
    }

    fn announced_within_an_hour(&mut self, now: Duration) -> Duration {
        let begin = now.saturating_sub(HOUR);
        while self.announced.front().is_some_and(|&(_, to)| to <= begin) {
            self.announced.pop_front();
        }
        let before: Duration =
            self.announced.iter().map(|&(from, to)| to.saturating_sub(from.max(begin))).sum();
        match self.state {
            State::Open(Open { is_proven: false, .. }) => before + now.saturating_sub(self.since),
            _ => before,
        }
    }
}

#[cfg(test)]
mod tests;
