//! Receives messages: as many as the worker can run, and no more read-ahead than it can release
//! within the budget; at once while there is work and room for it, and at growing intervals while
//! the queue is empty.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::delivery::{Batch, NoSlot};
use super::kind::{is_any_free, open};
use super::limits::{PAUSE_AFTER_RETURN, PAUSE_WITHOUT_ROOM};
use super::measure::Recent;
use super::shared::{RunningJob, Shared};
use crate::chance;
use crate::error::Result;
use crate::ports::Delivery;
use crate::retry::bounded;
use crate::watch;

/// The wait after the first empty receive.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest wait of an idle worker. A Storage queue bills every receive, and ten seconds is a
/// short wait for a job that arrives at an idle fleet.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest time for one receive. Messages that it leased without an answer return when their
/// leases end.
const RECEIVE_TRY: Duration = Duration::from_secs(30);

/// The shortest gap between two rounds of the loop that counts as a freeze.
const FREEZE_MIN: Duration = Duration::from_millis(1_500);

/// How long the worker receives nothing after a job was too long for this machine.
const TOO_LONG_REST: Duration = Duration::from_secs(10);

/// The most releases that are under way at once in a drain. Past a few tens, a storage service only
/// answers each of them later.
pub(super) const RELEASES_AT_ONCE: usize = 64;

/// The assumed time of a release until one has been measured: that of a slow storage service.
const ASSUMED_RELEASE: Duration = Duration::from_millis(100);

/// The weight of one message in the share of those over a limit: about the last 16 count.
const SHARE_OF_ONE: f64 = 1.0 / 16.0;

/// In what time the share of those over a limit halves: what was received some seconds ago says little about
/// what a queue has now.
const SHARE_HALVES: Duration = Duration::from_secs(2);

/// At a slow store it halves in the time in which so many messages are received and returned one by one, or they could
/// never raise it enough for two at a time; and in this time at most.
const SHARE_HALVES_IN: u32 = 32;
const SHARE_HALVES_MOST: Duration = Duration::from_mins(1);

/// How much work is read ahead: enough to hide a slow receive, and far less than any lease.
const AHEAD: Duration = Duration::from_secs(1);

/// How long nothing is read ahead after no slot became free for what was. Then the jobs that took them count as slow.
const NO_AHEAD: Duration = Duration::from_secs(2);

/// How long what is read ahead waits at least while no slot becomes free for it.
const PATIENCE_MIN: Duration = Duration::from_millis(100);

/// The most messages that are held besides while it is judged why their jobs failed.
const JUDGED_MAX: usize = 256;

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Decides when to receive and how much, and receives.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    pace: Pace,
    /// The number of long-running jobs at the last look.
    slow: usize,
    receiving: Pending<Received>,
    arrival: Pending<()>,
    /// Receiving failed. Arrivals are ignored until the backoff ends.
    failed: bool,
    /// Until when nothing is read ahead, because no slot became free for what was.
    no_ahead_until: Option<Instant>,
    /// When the leases of the last receive end.
    leases_end: Instant,
    /// The worker receives nothing until then, because the last job was too long for this machine.
    rests_until: Option<Instant>,
    returned: Share,
    /// Until when the messages over a limit count that were returned, one after the other.
    returned_until: Instant,
    /// How many of the deliveries only wait for a look at what their jobs need.
    judged: watch::Receiver<usize>,
    /// When the loop last asked for room. It runs every second, so a long gap is a freeze.
    asked_at: Instant,
    /// After a freeze the worker receives nothing until every lease is verified: a message that it
    /// receives could be one that it holds.
    thawed: bool,
}

/// The result of a receive.
pub(super) struct Received {
    batch: Batch,
    deliveries: Result<Vec<Delivery>>,
}

/// An event of the receiver.
pub(super) enum ReceiverEvent {
    Received(Received),
    /// A message may have become receivable.
    Arrived,
    /// A receive is due.
    Due,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            judged: shared.judged.subscribe(),
            shared,
            pace: Pace::new(),
            slow: 0,
            receiving: None,
            arrival: None,
            failed: false,
            no_ahead_until: None,
            leases_end: Instant::now(),
            rests_until: None,
            returned: Share { last: 0.0, at: Instant::now() },
            returned_until: Instant::now(),
            asked_at: Instant::now(),
            thawed: false,
        }
    }

    /// Reports whether a receive is under way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Returns the earliest end of a lease that is held or being taken, with `held` deliveries
    /// held.
    pub(super) fn leases_end(&self, held: usize) -> Option<Instant> {
        let ends = self.shared.running.map(RunningJob::lease_ends);
        // Messages that are being received, or were received just now, do not run yet.
        let unseen = self.is_receiving() || held > ends.len();
        ends.into_iter().chain(unseen.then_some(self.leases_end)).min()
    }

    /// Receives as soon as possible.
    pub(super) fn hurry(&mut self) {
        self.pace.hurry();
    }

    /// Stops waiting for arrivals. A receive under way goes on, because it may have leased
    /// messages.
    pub(super) fn stop(&mut self) {
        self.arrival = None;
    }

    /// Drops a receive under way: messages that it leases return when their leases end.
    pub(super) fn abandon(&mut self) {
        self.receiving = None;
    }

    /// Pauses receiving after a job was too long for this machine. More such jobs may follow, and
    /// another worker should have the time to take them.
    pub(super) fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + TOO_LONG_REST);
        self.arrival = None;
    }

    /// Counts a message over a limit that was returned. No more than a batch of them is returned at once, and
    /// over time no more than one for each [`PAUSE_AFTER_RETURN`] and one for each message that was not over a limit:
    /// those lie between the others in the queue, and must not wait for them.
    pub(super) fn note_return(&mut self) {
        self.returned.note(1.0, self.share_halves());
        self.pause_after_return(PAUSE_AFTER_RETURN);
    }

    /// Counts a message that was returned because no slot was free, or because the machine had no room for its job.
    pub(super) fn note_without_slot(&mut self, no_slot: NoSlot) {
        if no_slot == NoSlot::Stalled {
            self.no_ahead_until = Some(Instant::now() + NO_AHEAD);
        }
        if no_slot != NoSlot::HopedAtLimit {
            self.returned.note(0.0, self.share_halves());
        }
        self.pause_after_return(if no_slot == NoSlot::NoRoom {
            PAUSE_WITHOUT_ROOM
        } else {
            PAUSE_AFTER_RETURN
        });
    }

    fn pause_after_return(&mut self, pause: Duration) {
        self.returned_until = self.returned_until.max(Instant::now()) + pause;
        if self.rests_until() > Instant::now() {
            self.arrival = None;
        }
    }

    /// Counts a message that was not over a limit.
    pub(super) fn note_taken(&mut self) {
        if !self.returned.is_none() {
            self.returned.note(0.0, self.share_halves());
        }
        self.returned_until =
            self.returned_until.checked_sub(PAUSE_AFTER_RETURN).unwrap_or(self.returned_until);
    }

    /// Returns in what time the share of those over a limit halves.
    fn share_halves(&self) -> Duration {
        (self.shared.pass_takes() * SHARE_HALVES_IN).clamp(SHARE_HALVES, SHARE_HALVES_MOST)
    }

    /// Returns until when the worker receives nothing.
    fn rests_until(&self) -> Instant {
        let batch = u32::try_from(self.shared.store.queue.batch_max()).unwrap_or(u32::MAX);
        let returns = self.returned_until.checked_sub(PAUSE_AFTER_RETURN * batch);
        let returns = returns.unwrap_or(self.returned_until);
        self.rests_until.map_or(returns, |until| until.max(returns))
    }

    /// Ends the pause.
    pub(super) fn end_rest(&mut self) {
        self.rests_until = None;
    }

    /// Counts the long-running jobs: their slots will not be free soon. Called once a second.
    pub(super) fn count_slow_jobs(&mut self) {
        self.slow = self.shared.running.count(|job| job.runs_longer_than(AHEAD));
        self.no_ahead_until.take_if(|until| *until <= Instant::now());
    }

    /// Returns how many messages to receive when `held` are held; `None` to wait.
    fn room(&mut self, held: usize) -> Option<usize> {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.asked_at, now);
        self.thawed |= gap > FREEZE_MIN.max(self.shared.settings.lease / 2);
        if self.thawed {
            self.thawed = self.shared.running.count(|job| job.lease_ends() <= now) > 0;
        }
        let rests = self.shared.rules.get().throttle.paused || self.shared.isolation.is_wanted();
        if self.is_receiving() || self.thawed || rests {
            return None;
        }
        let capacity = self.capacity();
        let room = capacity.room(self.busy(&capacity, held));
        // A worker without a job takes one at a time: waiting might free nothing.
        let room = if !self.shared.is_under_pressure() {
            room
        } else if held > 0 {
            0
        } else {
            room.min(1)
        };
        Some(room).filter(|room| *room > 0)
    }

    /// Returns how many of the `held` deliveries have a slot, or may come to have one. A job that fails by its own fault
    /// while what it needs serves waits for up to a second for a look at that; no other kind waits with it.
    fn busy(&self, capacity: &Capacity, held: usize) -> usize {
        held.saturating_sub(self.judged.get().min(capacity.spare()))
    }

    fn capacity(&self) -> Capacity {
        let shared = &self.shared;
        Capacity {
            concurrency: shared.usable_slots(),
            open: open(&shared.kinds).unwrap_or(usize::MAX),
            slow: self.slow,
            batch: shared.store.queue.batch_max(),
            budget: shared.settings.budget,
            release: shared.settlements.p95(),
            run: shared.runs.mean().filter(|_| self.no_ahead_until.is_none()),
            returned_share: if !self.returned.is_none() && is_any_free(&shared.kinds) {
                self.returned.now(self.share_halves())
            } else {
                0.0
            },
        }
    }

    /// Returns when the next receive is due.
    fn due(&self) -> Instant {
        self.pace.next().max(self.rests_until())
    }

    /// Waits for the next event. Without room, no receive is due and arrivals are ignored.
    /// Cancel-safe: timers, and futures that are kept and polled again.
    pub(super) async fn next(&mut self, may_receive: bool, held: usize) -> ReceiverEvent {
        let due = if may_receive { self.room(held).map(|_| self.due()) } else { None };
        let far = Instant::now() + LONGEST;
        tokio::select! {
            biased;
            received = ready(&mut self.receiving) => {
                self.receiving = None;
                ReceiverEvent::Received(received)
            }
            () = ready(&mut self.arrival), if due.is_some() => {
                self.arrival = None;
                ReceiverEvent::Arrived
            }
            () = sleep_until(due.unwrap_or(far)), if due.is_some() => ReceiverEvent::Due,
            // There may be room.
            () = self.judged.changed(), if may_receive && due.is_none() => ReceiverEvent::Due,
            else => std::future::pending().await,
        }
    }

    /// Takes the result of a receive, and adjusts the pace.
    pub(super) fn received(&mut self, received: Received) -> (Batch, Vec<Delivery>) {
        let Received { batch, deliveries } = received;
        self.failed = deliveries.is_err();
        let deliveries = deliveries.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to receive messages; retrying");
            Vec::new()
        });
        if deliveries.is_empty() {
            self.pace.slow_down();
        } else {
            self.pace.hurry();
            self.shared.receives.note(batch.since.elapsed());
        }
        (batch, deliveries)
    }

    /// Starts a receive when one is due; until then waits for an arrival.
    pub(super) fn receive_if_due(&mut self, held: usize) {
        let Some(room) = self.room(held) else { return };
        let unseen = held > self.shared.running.len();
        let now = Instant::now();
        if now >= self.due() {
            let (queue, lease) = (Arc::clone(&self.shared.store.queue), self.shared.lease());
            let capacity = self.capacity();
            let (count, ahead) = capacity.asked(room, self.busy(&capacity, held));
            let (ends, patience) = (now + lease, patience(&self.shared.runs));
            let batch = Batch { since: now, lease, ahead, patience };
            self.leases_end = if unseen { self.leases_end.min(ends) } else { ends };
            self.arrival = None;
            self.receiving = Some(Box::pin(async move {
                let deliveries = bounded("receive", RECEIVE_TRY, queue.receive(count, lease)).await;
                Received { batch, deliveries }
            }));
        } else if self.arrival.is_none() && !self.failed && self.rests_until() <= now {
            let queue = Arc::clone(&self.shared.store.queue);
            self.arrival = Some(Box::pin(async move { queue.arrived().await }));
        }
    }
}

/// Returns how long what is read ahead waits while no slot becomes free for it: twice as long as almost all recent jobs
/// took. Much longer, and another worker may be idle.
fn patience(runs: &Recent) -> Duration {
    match runs.mean() {
        // Most receives are of short jobs, and the percentile costs more.
        Some(mean) if mean > PATIENCE_MIN / 4 => {
            runs.p95().map_or(PATIENCE_MIN, |p95| (p95 * 2).clamp(PATIENCE_MIN, AHEAD * 2))
        }
        _ => PATIENCE_MIN,
    }
}

/// Awaits the pending future; waits without limit when there is none.
async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// Returns how many messages a drain of `budget` can release when each release takes `each`. Half
/// of the budget is for releases; jobs need the other half to yield.
#[must_use]
pub fn releasable(budget: Duration, each: Duration) -> usize {
    let rounds = (budget / 2).as_secs_f64() / each.max(Duration::from_micros(10)).as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the min")]
    let releasable = (rounds.min(1e6) as usize).saturating_mul(RELEASES_AT_ONCE).max(1);
    releasable
}

/// The share of messages over a limit among the last ones.
#[derive(Debug)]
struct Share {
    last: f64,
    at: Instant,
}

impl Share {
    /// Whether none was ever returned.
    fn is_none(&self) -> bool {
        self.last <= 0.0
    }

    /// Returns it where it `halves` in this time.
    fn now(&self, halves: Duration) -> f64 {
        self.last * (-self.at.elapsed().as_secs_f64() / halves.as_secs_f64()).exp2()
    }

    fn note(&mut self, is_returned: f64, halves: Duration) {
        let now = self.now(halves);
        *self = Self { last: now + (is_returned - now) * SHARE_OF_ONE, at: Instant::now() };
    }
}

/// The inputs that decide how many messages may be held.
#[derive(Debug, Clone, Copy)]
struct Capacity {
    /// The number of jobs that can run at once.
    concurrency: usize,
    /// The number of jobs that may be held by the limits of their kinds.
    open: usize,
    /// Jobs that have run for longer than [`AHEAD`]: their slots will not be free soon.
    slow: usize,
    /// The most messages of one receive.
    batch: usize,
    budget: Duration,
    /// The 95th percentile of recent calls that settled a message; `None` before the first.
    release: Option<Duration>,
    /// The mean run time of jobs; `None` before the first has ended.
    run: Option<Duration>,
    /// The share of messages that go back because of a limit, from 0 to 1; 0 where nothing else can be begun.
    returned_share: f64,
}

impl Capacity {
    /// Returns the most messages that may be held: one job for every slot, and no more read-ahead
    /// than can still be released within the budget. Slow storage makes a worker read less ahead,
    /// but never leaves a slot idle.
    fn most(&self) -> usize {
        let releasable = self.releasable().saturating_sub(self.concurrency);
        (self.concurrency + self.read_ahead().min(releasable)).min(self.open)
    }

    /// Returns how many messages a drain can release.
    fn releasable(&self) -> usize {
        releasable(self.budget, self.release.unwrap_or(ASSUMED_RELEASE))
    }

    /// Returns how many messages may be held besides that need no slot any more.
    fn spare(&self) -> usize {
        self.releasable().saturating_sub(self.most()).min(JUDGED_MAX)
    }

    /// Returns how many messages may wait for a slot: as many as can be done within [`AHEAD`]. Zero
    /// until jobs are known to be short, so that no message waits here while another worker is
    /// idle.
    fn read_ahead(&self) -> usize {
        let Some(run) = self.run else { return 0 };
        let brisk = self.concurrency.saturating_sub(self.slow);
        let rounds = AHEAD.as_secs_f64() / run.max(Duration::from_micros(10)).as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the min")]
        let ahead = (rounds * f64::from(u32::try_from(brisk).unwrap_or(u32::MAX))).min(1e6) as usize;
        ahead.min(self.batch)
    }

    /// Returns how many messages to receive when `held` are held; 0 to wait. While every slot is
    /// busy, the worker waits until half a batch fits, so that many short jobs do not need one
    /// receive each.
    fn room(&self, held: usize) -> usize {
        let room = self.most().saturating_sub(held);
        if held >= self.concurrency && room < self.batch / 2 { 0 } else { room.min(self.batch) }
    }

    /// Returns how many messages to ask for so that about `room` are left when those over a limit went back: few
    /// slots would otherwise receive them one by one, and other kinds behind them wait for all these receives. A
    /// drain must be able to release them all. Also how many may wait for a slot, if that is more than `room`: what
    /// is not over a limit then must not be kept from a worker that is idle.
    fn asked(&self, room: usize, held: usize) -> (usize, Option<usize>) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let all = room as f64 / (1.0 - self.returned_share).max(0.01);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least zero")]
        let all = (all as usize).min(self.batch).min(self.releasable().saturating_sub(held)).max(room);
        (all, (all > room).then(|| self.most().saturating_sub(self.concurrency)))
    }
}

/// The backoff of receiving.
#[derive(Debug)]
struct Pace {
    wait: Duration,
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { wait: SHORTEST, next: Instant::now() }
    }

    /// Returns when the next receive is due, if there is room.
    fn next(&self) -> Instant {
        self.next
    }

    /// Receives at once: something was received or may have arrived.
    fn hurry(&mut self) {
        self.wait = SHORTEST;
        self.next = Instant::now();
    }

    /// Waits twice as long each time nothing was received or receiving failed, plus or minus a
    /// quarter at random, so that the workers of a fleet do not poll in step.
    fn slow_down(&mut self) {
        self.next = Instant::now() + self.wait.mul_f64(0.75 + chance::fraction() / 2.0);
        self.wait = (self.wait * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_asks_ever_more_rarely_and_a_busy_one_at_once() {
        let mut pace = Pace::new();
        let mut waits = Vec::new();
        for _ in 0..9 {
            pace.slow_down();
            waits.push(pace.next() - Instant::now());
        }
        assert!(waits[0] >= SHORTEST.mul_f64(0.75) && waits[0] <= SHORTEST.mul_f64(1.25), "{waits:?}");
        assert!(waits[8] >= LONGEST.mul_f64(0.75) && waits[8] <= LONGEST.mul_f64(1.25), "{waits:?}");
        pace.hurry();
        assert_eq!(pace.next(), Instant::now());
    }

    fn capacity(concurrency: usize) -> Capacity {
        let budget = Duration::from_secs(10);
        Capacity {
            concurrency,
            open: usize::MAX,
            slow: 0,
            batch: 32,
            budget,
            release: None,
            run: None,
            returned_share: 0.0,
        }
    }

    #[test]
    fn nothing_is_read_ahead_before_jobs_are_known_to_be_short() {
        assert_eq!(capacity(8).most(), 8);
        for (run_ms, most) in [(1, 40), (200, 40), (500, 24), (2_000, 12), (9_000, 8)] {
            let known = Capacity { run: Some(Duration::from_millis(run_ms)), ..capacity(8) };
            assert_eq!(known.most(), most, "jobs of {run_ms} ms");
        }
    }

    #[test]
    fn slots_that_long_jobs_have_taken_are_not_read_ahead_for() {
        let known = Capacity { run: Some(Duration::from_millis(500)), ..capacity(8) };
        assert_eq!(Capacity { slow: 6, ..known }.most(), 12);
        assert_eq!(Capacity { slow: 8, ..known }.most(), 8);
        assert_eq!(Capacity { concurrency: 0, ..known }.most(), 0);
    }

    #[test]
    fn slow_releases_shorten_the_read_ahead_and_leave_every_slot_its_job() {
        for (release_ms, most) in [(1, 128), (100, 128), (1_000, 128), (4_000, 100), (60_000, 100)] {
            let release = Some(Duration::from_millis(release_ms));
            let slow = Capacity { release, run: Some(Duration::from_millis(1)), batch: 28, ..capacity(100) };
            assert_eq!(slow.most(), most, "a release of {release_ms} ms");
        }
    }

    #[test]
    fn a_busy_worker_receives_by_the_half_batch_and_an_idle_one_at_once() {
        let short = Capacity { run: Some(Duration::from_millis(1)), ..capacity(8) };
        assert_eq!(short.room(0), 32);
        assert_eq!(short.room(8), 32);
        assert_eq!(short.room(24), 16);
        assert_eq!(short.room(25), 0);
        assert_eq!(short.room(7), 32);
        assert_eq!(Capacity { batch: 128, ..short }.room(8), 128);
        assert_eq!(Capacity { batch: 128, ..short }.room(73), 0);
        assert_eq!(Capacity { open: 3, ..short }.room(1), 2, "by the limits of the kinds");
        assert_eq!(Capacity { open: 3, ..short }.room(5), 0);
        assert_eq!(capacity(2).room(1), 1);
        assert_eq!(capacity(2).room(2), 0);
    }

    #[test]
    fn where_most_go_back_a_batch_is_asked_for_and_as_few_may_wait_as_otherwise() {
        assert_eq!(capacity(8).asked(8, 0), (8, None));
        let most = Capacity { returned_share: 0.9375, ..capacity(8) };
        assert_eq!(most.asked(1, 7), (16, Some(0)));
        assert_eq!(most.asked(8, 0), (32, Some(0)));
        let short = Capacity { run: Some(Duration::from_millis(500)), ..most };
        assert_eq!(short.asked(1, 23), (16, Some(16)), "may be read ahead");
        let slow = Capacity { release: Some(Duration::from_secs(4)), ..most };
        assert_eq!(slow.asked(2, 58), (6, Some(0)), "can be released in a drain");
        assert_eq!(slow.asked(2, 64), (2, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_share_of_those_over_a_limit_is_soon_forgotten() {
        let mut share = Share { last: 0.0, at: Instant::now() };
        (0..100).for_each(|_| share.note(1.0, SHARE_HALVES));
        assert!(share.now(SHARE_HALVES) > 0.99, "{share:?}");
        (0..16).for_each(|_| share.note(0.0, SHARE_HALVES));
        assert!(share.now(SHARE_HALVES) < 0.4, "by what was not over a limit: {share:?}");
        (0..100).for_each(|_| share.note(1.0, SHARE_HALVES));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(share.now(SHARE_HALVES) < 0.04, "by time: {share:?}");
    }
}
