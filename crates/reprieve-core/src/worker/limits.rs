//! The limits of one kind of job: how many run at once, how long, and how often they fail.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fleet_slots::SLOTS_MAX;
use crate::chance;
use crate::ports::LEASE_MAX;
use crate::record::FAILED_MAX;

/// The shortest timeout: a worker looks at its jobs about once a second.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How many messages over a limit a worker wants to see again in a second at least, so that a slot that
/// becomes free is soon taken.
const SEEN_AGAIN: f64 = 5.0;

/// How many more than its jobs end in a second at most. These find no place: half of what [`RETURNS`] allows, and
/// the other half is for those that it has not seen yet.
const IN_VAIN_MOST: f64 = 150.0;

/// How many messages over a limit a worker returns in a second at most. It costs a request each. Few of them come
/// back in a second, because they are deferred for long; the others are new to it, and all that lies behind them
/// waits for this.
const RETURNS: u32 = 300;

/// The same of messages for whose jobs this machine has no room: each is away while another worker may be idle.
const RETURNS_FOR_ROOM: u32 = 32;

/// How many of these come back in a second at most: half of them, and the other half is for those that it has not seen
/// yet, or the kinds behind them would never be reached.
const ROOM_IN_VAIN: f64 = RETURNS_FOR_ROOM as f64 / 2.0;

/// For how long one of these is deferred at most, unless so many are away that more would come back.
const NO_ROOM_MAX: Duration = Duration::from_mins(1);

/// The mean time for which messages over a limit are deferred, unless more than [`SEEN_AGAIN_MAX`] would
/// return in a second then.
const DEFER_SHORT: Duration = Duration::from_mins(1);
const SEEN_AGAIN_MAX: f64 = 32.0;

/// How many of the messages that a worker can pass in a second may be such that come back: the other half is for those
/// that it has not seen yet. At a slow store, none of these would be reached.
const PASSES_AGAIN: f64 = 0.5;

/// The shortest `stall_after`: a look each second, and a pause between two moves that is no stall.
const STALL_MIN: Duration = Duration::from_secs(10);

/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);

/// About the shortest time for which a message over a limit is deferred, where jobs of its kind are so long, and where
/// they are short; and the longest.
pub(super) const DEFER_MIN: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_secs(1);
const DEFER_MAX: Duration = Duration::from_hours(24);

/// Where no job of a kind has ended for this time, and for four times as long as they took, they take longer now: in
/// this worker, and where other workers may have all places.
const QUIET: Duration = Duration::from_secs(5);
const QUIET_IN_FLEET: Duration = Duration::from_mins(1);

/// When nothing has been deferred for this time, what is deferred then is another backlog.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// How many jobs are expected to end in a second at most: more is measured.
const ENDS_MOST: f64 = 1_000.0;

/// The limits of one kind of job. Set with
/// [`WorkerBuilder::limits`](super::WorkerBuilder::limits).
///
/// A message of a job that is over a limit is not held: it goes back to the queue and returns after a while,
/// at least five seconds, or a second where its jobs are short, and longer the more of them were deferred, so that at
/// most 32 come back in a second, whatever the backlog, or two to five times as many as jobs of the kind end, and at
/// most 150 more than end. A worker returns no more than 300 in a second, and one for each message that it does not
/// return. It costs the job no attempt. A limited kind with a large backlog is better off in a queue of its own: a
/// worker that has only kinds at their limits receives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How many jobs of this kind run at once in this worker. Default: `None`, as many as it has slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_worker: Option<usize>,
    /// How many run at once in all workers of the store, 1 to 1,000. Default: `None`. Each running job holds
    /// one of as many slots in the store, by a lease as long as that of its message; the slot of a worker
    /// that died is free when that has ended. It costs three requests for each job, and one for each renewal.
    /// All workers must agree on the number: while they don't, the largest counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_fleet: Option<u32>,
    /// The memory that one job takes at most, in bytes. Default: `None`. It is no limit that is enforced: with
    /// [`Settings::memory_reserve`](super::Settings::memory_reserve), no job begins whose memory would not leave
    /// the reserve. Without it, what jobs of the kind take is measured, by the memory of this process: set it for
    /// jobs that start other processes, or that take their memory late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How long one step may take. Default: `None`. A step that takes longer is dropped at its next `.await`,
    /// and its job fails with its progress up to the last save. One that blocks its thread writes nothing
    /// any more, and keeps its slot until it returns. At least 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<Duration>,
    /// How long an attempt of a job may run, over all machines, without the time in which it waits.
    /// Default: `None`. Then it fails, and the next attempt continues from its last save with the time anew.
    /// Unlike other failures, these are counted even if the job makes progress. At least 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_timeout: Option<Duration>,
    /// How long a step may make no save and no progress. Default: `None`: a job that stands still is shown, and
    /// nothing is done to it. Then the job is asked to yield, is saved if it does within three seconds, and cut off
    /// else; its delivery has failed. Only time in steps counts, and none in which a call to the store fails: a
    /// step that calls [`JobContext::progress`](crate::JobContext::progress) more often may take as long as it
    /// likes. At least 10 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<Duration>,
    /// How many deliveries may fail without progress before the job goes to the poison queue. Default: 5. At
    /// least 1.
    pub attempts: u32,
    /// The delay after the first failure. After each further one it is four times as long, and up to half of
    /// it more at random. Default: 1 s.
    pub backoff: Duration,
    /// The longest of these delays. Default: 5 min. At most seven days.
    pub backoff_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_worker: None,
            in_fleet: None,
            memory: None,
            step_timeout: None,
            job_timeout: None,
            stall_after: None,
            attempts: FAILED_MAX,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_mins(5),
        }
    }
}

impl Limits {
    /// Returns every fault at once, one sentence each; empty when the limits are valid.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.per_worker == Some(0) {
            faults.push("per-worker is 0, and must be at least 1".to_owned());
        }
        if let Some(count) = self.in_fleet.filter(|count| !(1..=SLOTS_MAX).contains(count)) {
            faults.push(format!("in-fleet is {count}, and must be from 1 to {SLOTS_MAX}"));
        }
        for (name, timeout) in [("step-timeout", self.step_timeout), ("job-timeout", self.job_timeout)] {
            if let Some(timeout) = timeout.filter(|timeout| !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout)) {
                faults.push(format!("{name} is {timeout:?}, and must be from 1s to 365 days"));
            }
        }
        if let Some(after) = self.stall_after.filter(|after| !(STALL_MIN..=TIMEOUT_MAX).contains(after)) {
            faults.push(format!("stall-after is {after:?}, and must be from 10s to 365 days"));
        }
        if self.attempts == 0 {
            faults.push("attempts is 0, and must be at least 1".to_owned());
        }
        if self.backoff > self.backoff_max || self.backoff_max > LEASE_MAX {
            faults.push(format!(
                "backoff is {:?} and backoff-max {:?}; they must be in this order, and at most 7 days",
                self.backoff, self.backoff_max
            ));
        }
        faults
    }

    /// Returns how long a job waits before its next try after `failed` failures and one more.
    pub(super) fn delay_after(&self, failed: u32) -> Duration {
        let base = self.backoff.saturating_mul(4_u32.saturating_pow(failed)).min(self.backoff_max);
        base.mul_f64(1.0 + chance::fraction() / 2.0).min(LEASE_MAX)
    }
}

/// How long the worker receives nothing for each message over a limit that it returned, so that it returns
/// no more than it should.
pub(super) const PAUSE_AFTER_RETURN: Duration = Duration::from_secs(1).checked_div(RETURNS).unwrap();

/// The same after one for whose job this machine has no room.
pub(super) const PAUSE_WITHOUT_ROOM: Duration = Duration::from_secs(1).checked_div(RETURNS_FOR_ROOM).unwrap();

/// The places of one kind of job, as far as this worker knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// How many jobs may run at once.
    pub(super) limit: usize,
    /// How many of this worker ended in a second lately.
    pub(super) ends: f64,
    /// For how long none has begun or ended here; `None` if none ever has.
    pub(super) quiet: Option<Duration>,
    /// How long they run; `None` if that is not known.
    pub(super) run: Option<Duration>,
    /// Other workers may have them.
    pub(super) of_fleet: bool,
    /// How long others seem to hold them; `None` if that is not known, or long.
    pub(super) held_by_others: Option<Duration>,
}

impl Places {
    /// Returns how long a job holds its place, as far as that is known: as long as they took before, unless it has been
    /// quiet for much longer than that. Then for that time at least, or for as long as messages have been `deferred`: a
    /// worker that gets none of the fleet's places sees only how long others hold them.
    fn held(&self, deferred: Duration) -> Duration {
        // Where others have the places, what becomes of their jobs is not seen here.
        let (quiet, most) = if self.of_fleet {
            (self.quiet.map_or(deferred, |quiet| quiet.min(deferred)), QUIET_IN_FLEET)
        } else {
            (self.quiet.unwrap_or(deferred), QUIET)
        };
        let known = self.run.filter(|run| quiet <= most.max(*run * 4));
        known.unwrap_or_else(|| self.held_by_others.map_or(quiet, |held| held.min(quiet)))
    }

    /// Returns how many jobs are expected to end in a second.
    fn expected_ends(&self, held: Duration) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let at_the_limit = self.limit as f64 / held.as_secs_f64().max(0.001);
        // Without a limit it is something else that is missing.
        if self.limit == usize::MAX { self.ends } else { self.ends.max(at_the_limit.min(ENDS_MOST)) }
    }
}

/// What the job of a deferred message waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// A place under a limit, or what its jobs need. It is deferred for `longest` at most.
    Place { longest: Duration },
    /// Memory of this machine. Another worker may have it.
    Room,
}

impl Missing {
    /// How many messages may return in vain in a second, of all kinds: where they are few, and in any case.
    const fn in_vain(self) -> (f64, f64) {
        match self {
            Self::Place { .. } => (SEEN_AGAIN_MAX, IN_VAIN_MOST),
            Self::Room => (ROOM_IN_VAIN, ROOM_IN_VAIN),
        }
    }

    /// Returns for how long a message is deferred at most, where `count` of its kind are away and `kinds` kinds have
    /// some. No more than `most` may return in a second.
    fn longest(self, count: f64, kinds: f64, most: f64) -> Duration {
        match self {
            Self::Place { longest } => longest,
            // At random up to twice the mean.
            Self::Room => NO_ROOM_MAX.max(seconds(2.0 * count * kinds / ROOM_IN_VAIN.min(most))),
        }
    }
}

/// The messages of one kind that this worker has deferred because of a limit and that have not returned.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<Away>);

#[derive(Debug, Default)]
struct Away {
    /// When they return.
    returns: BinaryHeap<Reverse<Instant>>,
    /// Since when some are deferred again and again, and when the last was.
    since: Option<(Instant, Instant)>,
    /// The last one was deferred because this machine had no room for its job.
    for_room: bool,
}

impl Backlog {
    /// Returns those that have not returned.
    fn away(&self) -> MutexGuard<'_, Away> {
        let mut away = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while away.returns.peek().is_some_and(|first| first.0 <= now) {
            away.returns.pop();
        }
        away
    }

    /// Whether one was deferred lately.
    pub(super) fn is_recent(&self) -> bool {
        self.last().is_some()
    }

    /// Returns how long ago the last one was deferred; `None` if that says nothing any more.
    pub(super) fn last(&self) -> Option<Duration> {
        self.away().since.map(|(_, last)| last.elapsed()).filter(|ago| *ago < FORGOTTEN)
    }

    /// Whether some have not returned that share with those that wait for `missing` what may return in a second.
    pub(super) fn shares(&self, missing: Missing) -> bool {
        let away = self.away();
        !away.returns.is_empty() && (missing != Missing::Room || away.for_room)
    }

    /// Returns for how long one more message is deferred that waits for `missing`, where `kinds` kinds have some that
    /// are, and this one has these `places`. The worker could receive and return `passes` messages in a second.
    ///
    /// It returns behind all that are away, if these return at the rate that is wanted now. Where it was lower when
    /// they were deferred, those that return fill the gaps.
    pub(super) fn deferral(&self, places: Places, kinds: usize, missing: Missing, passes: f64) -> Duration {
        let (now, mut away) = (Instant::now(), self.away());
        let recent = away.since.filter(|(_, last)| now - *last < FORGOTTEN);
        let since = recent.map_or(now, |(since, _)| since);
        away.since = Some((since, now));
        away.for_room = missing == Missing::Room;
        let held = places.held(now - since);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (count, kinds) = (away.returns.len() as f64, kinds.max(1) as f64);
        let (few_most, in_vain) = missing.in_vain();
        let most = passes * PASSES_AGAIN / kinds;
        let longest = missing.longest(count, kinds, passes * PASSES_AGAIN);
        // What all kinds share is only what limits each: else the more kinds there are, the longer a few are away.
        let few = (SEEN_AGAIN / kinds).max((count / DEFER_SHORT.as_secs_f64()).min(few_most / kinds));
        let ends = places.expected_ends(held);
        let rate = few.max(keeping_up(ends, places.limit).min(places.ends + in_vain / kinds));
        let behind = seconds(count / rate.min(most));
        // Without a limit it is no job's end that it waits for.
        let has_limit = places.limit < usize::MAX;
        let shortest = if has_limit { held.clamp(SHORTEST, DEFER_MIN) } else { DEFER_MIN };
        // At random, or those that return together would do so again and again.
        let delay = around(shortest, 0.2) + around(behind, if has_limit { 0.5 } else { 1.0 });
        // Not all at once, where all are deferred for as long.
        let delay = if delay > longest { longest.mul_f64(chance::fraction()).max(shortest) } else { delay };
        let delay = delay.min(longest);
        away.returns.push(Reverse(now + delay));
        delay
    }
}

/// Returns so many seconds; [`DEFER_MAX`] at most.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(DEFER_MAX.as_secs_f64()))
}

/// Returns a random time that is shorter or longer than `mean` by this share at most.
fn around(mean: Duration, share: f64) -> Duration {
    mean.mul_f64(1.0 + share * (2.0 * chance::fraction() - 1.0))
}

/// Returns how many messages must return in a second, at random, so that at least five of six times a place
/// that becomes free is taken before the time of one more job has passed: if one job may run at a time, five for
/// each that ends, and if many may, two. By the loss formula of Erlang.
fn keeping_up(ends: f64, limit: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let more = 4.0 / limit.max(1) as f64;
    ends * (1.0 + more.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY_TIME: Missing = Missing::Place { longest: LEASE_MAX };

    /// The messages that return in a second of 20,000 that were deferred.
    async fn returning(places: Places, kinds: usize, passes: f64) -> f64 {
        let backlog = Backlog::default();
        // Deferred again and again for long.
        let now = Instant::now();
        tokio::time::advance(Duration::from_mins(10)).await;
        backlog.away().since = Some((now, Instant::now()));
        for _ in 0..20_000 {
            let _delay = backlog.deferral(places, kinds, ANY_TIME, passes);
        }
        let returns = backlog.away().returns.clone().into_sorted_vec();
        // In the first half of the time, which is that of the most of them.
        10_000.0 / (returns[10_000].0 - returns[19_999].0).as_secs_f64()
    }

    fn places(ends: f64, limit: usize) -> Places {
        Places { limit, ends, quiet: None, run: None, of_fleet: false, held_by_others: None }
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_return_as_places_become_free_and_a_bounded_number_more() {
        for (ends, limit, kinds, rate) in [
            (0.0, 1, 1, 32.0),
            (0.5, 1, 1, 32.0),
            (0.0, 1, 2, 16.0),
            (8.0, 1, 1, 40.0),
            (8.0, 8, 1, 32.0),
            (80.0, 8, 1, 160.0),
            (80.0, 8, 3, 130.0),
            (500.0, 32, 1, 650.0),
        ] {
            let seen = returning(places(ends, limit), kinds, f64::INFINITY).await;
            assert!((rate * 0.6..rate * 1.3).contains(&seen), "{ends} end, {limit} at once, {kinds}: {seen}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_what_a_worker_can_pass_returns_at_most() {
        for (ends, limit, kinds, passes, rate) in [
            (0.0, 1, 1, 20.0, 10.0),
            (0.0, 1, 2, 20.0, 5.0),
            (80.0, 8, 1, 160.0, 80.0),
            (0.0, 1, 1, 2.0, 1.0),
        ] {
            let seen = returning(places(ends, limit), kinds, passes).await;
            assert!((rate * 0.6..rate * 1.3).contains(&seen), "{ends} end, {passes} can be passed: {seen}");
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let for_room = |count, kinds| (count * kinds) as f64 / mean(count, kinds, Missing::Room, 16.0);
        assert!((5.0..9.5).contains(&for_room(1_500, 1)), "{}", for_room(1_500, 1));
        assert!((5.0..9.5).contains(&for_room(1_500, 3)), "{}", for_room(1_500, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn what_jobs_take_counts_until_none_has_ended_for_much_longer() {
        let run = Some(Duration::from_millis(62));
        for (quiet_s, of_fleet, rate) in
            [(0, false, 80.0), (4, false, 80.0), (6, false, 32.0), (50, true, 80.0), (70, true, 32.0)]
        {
            let known = Places { run, quiet: Some(Duration::from_secs(quiet_s)), of_fleet, ..places(0.0, 1) };
            let seen = returning(known, 1, f64::INFINITY).await;
            assert!(
                (rate * 0.6..rate * 1.3).contains(&seen),
                "none for {quiet_s} s, of the fleet {of_fleet}: {seen}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_has_had_no_place_of_the_fleet_knows_how_long_others_hold_them() {
        for (held_ms, rate) in [(None, 32.0), (Some(100), 80.0), (Some(5_000), 32.0)] {
            let held_by_others = held_ms.map(Duration::from_millis);
            let of_others = Places { of_fleet: true, held_by_others, ..places(0.0, 4) };
            let seen = returning(of_others, 1, f64::INFINITY).await;
            assert!((rate * 0.6..rate * 1.3).contains(&seen), "{held_ms:?} ms: {seen} a second");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_ones_of_a_kind_of_short_jobs_return_soon() {
        let delay = |run_ms, quiet_ms| {
            let (run, quiet) = (Some(Duration::from_millis(run_ms)), Some(Duration::from_millis(quiet_ms)));
            Backlog::default()
                .deferral(Places { quiet, run, ..places(1.0, 1) }, 1, ANY_TIME, f64::INFINITY)
                .as_secs_f64()
        };
        assert!((0.8..1.2).contains(&delay(10, 10)));
        assert!((2.4..3.6).contains(&delay(3_000, 10)));
        assert!((4.0..6.0).contains(&delay(60_000, 10)));
    }

    /// The mean time for which one more message is deferred, where so many of its kind are away, and `kinds` have some.
    fn mean(count: usize, kinds: usize, missing: Missing, passes: f64) -> f64 {
        let backlog = Backlog::default();
        let long = Instant::now() + Duration::from_hours(24);
        let delay = || {
            backlog.away().returns = vec![Reverse(long); count].into();
            backlog.deferral(places(0.0, usize::MAX), kinds, missing, passes).as_secs_f64()
        };
        (0..500).map(|_| delay()).sum::<f64>() / 500.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_is_no_longer_where_several_kinds_are_over_their_limits() {
        for (count, kinds, seconds) in
            [(480, 1, 65.0), (480, 4, 65.0), (10, 4, 13.0), (1_920, 1, 65.0), (1_920, 4, 245.0)]
        {
            let seen = mean(count, kinds, ANY_TIME, f64::INFINITY);
            assert!(
                (seconds * 0.85..seconds * 1.15).contains(&seen),
                "{count} of each of {kinds} kinds: {seen} s"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_machine_has_no_room_for_takes_half_of_its_returns_however_much_it_is() {
        for (count, kinds) in [(100, 1), (500, 1), (1_500, 1), (10_000, 1), (1_000, 3), (10_000, 3)] {
            let seen = mean(count, kinds, Missing::Room, f64::INFINITY);
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let returns = (count * kinds) as f64 / seen;
            assert!(returns < 19.0, "{count} of each of {kinds} kinds: {returns} a second");
            assert!(count > 500 || seen <= 35.0, "few are soon seen again, after {seen} s");
        }
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(Limits::default().check(), Vec::<String>::new());
        let short = Some(Duration::from_millis(999));
        let bad = Limits {
            per_worker: Some(0),
            in_fleet: Some(1_001),
            memory: None,
            step_timeout: short,
            job_timeout: short,
            stall_after: short,
            attempts: 0,
            backoff: Duration::from_secs(2),
            backoff_max: Duration::from_secs(1),
        };
        assert_eq!(bad.check().len(), 7, "{:?}", bad.check());
    }

    #[test]
    fn the_delay_grows_fourfold_up_to_its_limit() {
        let twice = Limits { backoff: Duration::from_secs(2), ..Limits::default() };
        let cases = [
            (Limits::default(), [(0, 1), (1, 4), (2, 16), (3, 64), (4, 256), (5, 300), (u32::MAX, 300)]),
            (twice, [(0, 2), (1, 8), (2, 32), (3, 128), (4, 300), (5, 300), (u32::MAX, 300)]),
        ];
        for (limits, delays) in cases {
            for (failed, base) in delays {
                let (delay, base) = (limits.delay_after(failed), Duration::from_secs(base));
                assert!((base..=base.mul_f64(1.5)).contains(&delay), "{failed}: {delay:?}");
            }
        }
    }
}
