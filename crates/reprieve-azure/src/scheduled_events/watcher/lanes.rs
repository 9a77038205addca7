//! Decides which api-versions are polled, and when.
//!
//! Either of two versions may fail alone, so both are polled each second: the newest, and the newest
//! documented one. While neither answers, an older version may. They are asked at once, and the newest
//! of those that answer is polled each second until one of the two is back.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;

use super::lane::{Lane, Role};
use super::throttle::Throttle;
use crate::scheduled_events::client::{Failure, FailureKind};
use crate::scheduled_events::document::{ApiVersion, EventType};

/// The interval between the polls of a lane that rests.
const REST: Duration = Duration::from_secs(30);

/// How many older versions are asked at once before the first answer: in the first second, in which the VM's
/// name is requested, too, and in the next one. Where the two do not answer at all, that is known later, and
/// then all are.
const AT_ONCE_AT_THE_START: usize = 2;

/// How long after the first second of a watch its second round begins at most, if the first one got 429:
/// at random, because workers that start together may share nothing.
const SECOND_ROUND_LATER: Duration = Duration::from_millis(250);

/// How soon the older versions may be asked all at once again. With the two that fail, which are polled about
/// each second, that makes up to seven requests in a second in which all begin to fail, two more than the
/// documented limit; waiting for the next second would let a notice be heard later than 1.5 s. A 429 to one of
/// them is answered by the next second's poll.
const ALL_AT_ONCE_EVERY: Duration = Duration::from_secs(10);

/// The same where a version that lists evictions has answered since: the service works, and another version
/// may be the one that does now.
const ALL_AT_ONCE_EVERY_ANSWERED: Duration = Duration::from_secs(2);

/// The same after a 429: more requests may be what is wrong.
const ALL_AT_ONCE_EVERY_THROTTLED: Duration = Duration::from_mins(1);

/// How soon a lane is polled again that rests after a 429, when the others get 429 too.
const THROTTLED_AGAIN: Duration = Duration::from_secs(10);

/// How long ago each older version that lists evictions must have been polled before another one is: a little
/// longer than it takes to poll them all.
const LISTING_FIRST: Duration = Duration::from_millis(4_500);

/// How long ago a version that lists no evictions must have been polled before it is again, while none is steady.
const NOT_LISTING_EVERY: Duration = Duration::from_secs(15);

/// How soon an older version that has answered before is polled again when no lane is steady.
const AGAIN: Duration = Duration::from_millis(900);

/// What is asked within this time is asked in one second, and a 429 to it is about the number of requests.
const THIS_SECOND: Duration = Duration::from_millis(900);

/// How long after all were asked at once those that got 429 are asked again: the service counts the requests of a
/// second, and the next tick may follow at once.
const NEXT_SECOND: Duration = Duration::from_millis(1_020);

/// The lanes of a watch, the newest version first.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    throttle: Throttle,
    began: Instant,
    /// When the older versions were last asked all at once.
    all_at_once_at: Option<Instant>,
    /// When those of them that got 429 are asked again.
    again_at: Option<Instant>,
}

impl Lanes {
    /// The lanes of a watch: one if the version is pinned.
    pub(super) fn new(pinned: Option<ApiVersion>, began: Instant) -> Self {
        let role = |version| match version {
            ApiVersion::NEWEST => Role::Newest,
            ApiVersion::DOCUMENTED => Role::Documented,
            _ => Role::Older,
        };
        let all = match pinned {
            Some(version) => vec![Lane::new(version, Role::Documented, began)],
            None => ApiVersion::ALL.map(|version| Lane::new(version, role(version), began)).into(),
        };
        Self { all, throttle: Throttle::default(), began, all_at_once_at: None, again_at: None }
    }

    /// A lane, by its index.
    pub(super) fn lane(&mut self, lane: usize) -> &mut Lane {
        &mut self.all[lane]
    }

    /// The index of a version's lane.
    pub(super) fn of(&self, version: ApiVersion) -> Option<usize> {
        self.all.iter().position(|lane| lane.version == version)
    }

    /// The version in which to try whether another watcher alone gets no answers, of those that list evictions: the
    /// one that this watcher has not tried for longest in this silence, then the one that the others have not, the
    /// last of which is at the end of `tried`; at first the one that was answered last, or the documented one.
    pub(super) fn next_to_try(&self) -> impl FnOnce(&[ApiVersion]) -> ApiVersion + Send + use<> {
        let enough = || (0..self.all.len()).filter(|lane| self.is_enough(*lane)).map(|lane| &self.all[lane]);
        let heard = enough().filter_map(Lane::answered_at).max();
        let known = |lane: &Lane| {
            let own = lane.tried_at().filter(|at| heard.is_none_or(|heard| heard < *at));
            (lane.version, own, (Reverse(lane.answered_at()), lane.role != Role::Documented))
        };
        let known: Vec<_> = enough().map(known).collect();
        move |tried| {
            let others = |version| tried.iter().position(|it| *it == version);
            let next = known.into_iter().min_by_key(|(version, own, last)| (*own, others(*version), *last));
            next.map_or(ApiVersion::DOCUMENTED, |(version, ..)| version)
        }
    }

    /// Notes that this process did nothing for so long, and so heard no answers.
    pub(super) fn slept(&mut self, time: Duration) {
        self.all.iter_mut().for_each(|lane| lane.slept(time));
    }

    /// When one of them was polled last.
    pub(super) fn polled_at(&self) -> Option<Instant> {
        self.all.iter().filter_map(Lane::polled_at).max()
    }

    /// Whether a version that is polled each second got a 429 last.
    pub(super) fn is_throttled(&self) -> bool {
        self.all.iter().any(|lane| lane.is_main() && lane.is_throttled())
    }

    /// The versions in use, the newest first: those that answer, and those that are polled each second
    /// if none does.
    pub(super) fn versions(&self, now: Instant) -> Vec<ApiVersion> {
        let versions = |uses: &dyn Fn(&Lane) -> bool| {
            self.all.iter().filter(|lane| uses(lane)).map(|lane| lane.version).collect::<Vec<_>>()
        };
        let answering = versions(&|lane| lane.answers(now));
        if answering.is_empty() { versions(&|lane| lane.is_main()) } else { answering }
    }

    /// Notes the answer to a poll; without a number it was another process's. Returns whether it counts.
    pub(super) fn answered(&mut self, lane: usize, number: Option<u64>, sent: Instant, at: Instant) -> bool {
        if self.all[lane].was_throttled(at) {
            self.throttle.answered(at, rand::random());
        } else {
            // The others' versions are refused, not the number of requests.
            self.throttle.end();
        }
        self.all[lane].answered(number, sent, at)
    }

    /// Notes that a poll failed. Returns whether that counts as an error.
    pub(super) fn failed(&mut self, lane: usize, failure: &Failure, now: Instant) -> bool {
        let another_is_steady = self.another_is_steady(lane, now);
        let counts = self.all[lane].failed(failure, another_is_steady, now);
        if self.mains().any(|lane| self.all[lane].was_refused(now)) {
            // The service refuses versions, and not only the number of requests.
            self.throttle.end();
        } else if failure.kind != FailureKind::Throttled {
            self.throttle.failed_otherwise();
        } else if self.polls_in_rounds(now)
            && (self.throttle.until().is_some() || !self.asked_all_within(THIS_SECOND, now))
        {
            // What was sent in the first second may be all that the service answers in it.
            let earliest = self.began + Duration::from_secs(1) + SECOND_ROUND_LATER.mul_f64(rand::random());
            self.throttle.throttled(now, earliest, failure.retry_after, rand::random());
        }
        counts
    }

    /// When to call [`wake`](Self::wake): when the last lane that is steady should have had its next
    /// answer, when a pause after 429 ends, or a second after all older versions were asked at once.
    pub(super) fn wakes_at(&self, now: Instant) -> Option<Instant> {
        let steady = self.all.iter().filter_map(Lane::steady_until).max().filter(|until| *until > now);
        let silent = steady.filter(|_| !self.throttle.is_slow()).or(self.throttle.until());
        silent.into_iter().chain(self.again_at).min()
    }

    /// Returns the lanes to poll at the time that [`wakes_at`](Self::wakes_at) returned.
    pub(super) fn wake(&mut self, now: Instant) -> Vec<usize> {
        let asks_again = self.again_at.take_if(|at| now >= *at).is_some();
        let pause_is_over = self.throttle.until().is_some_and(|until| now >= until);
        if pause_is_over && self.polls_in_rounds(now) {
            self.begin_round(now)
        } else if asks_again && self.throttle.until().is_none() && !self.any_is_steady(now) {
            self.older().filter(|lane| self.is_yet_to_be_asked(*lane)).collect()
        } else {
            self.urgent(now)
        }
    }

    /// Returns the lanes to poll in this second.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<usize> {
        if self.polls_in_rounds(now) && self.throttle.until().is_some() {
            return Vec::new();
        }
        let mains: Vec<_> = self.mains().filter(|lane| self.main_is_due(*lane, now)).collect();
        if self.mains().any(|lane| self.all[lane].is_steady(now)) {
            return mains;
        }
        // While the two do not answer, they may get the 429.
        let mut due = self.due_older(now);
        due.extend(mains);
        due
    }

    /// Returns the lanes to poll at once because no lane is steady any more: those that rest, and all
    /// older versions that list evictions, or the one that answered last if all were asked just before.
    pub(super) fn urgent(&mut self, now: Instant) -> Vec<usize> {
        if self.throttle.is_slow() || self.any_is_steady(now) {
            return Vec::new();
        }
        let is_throttled = self.throttle.until().is_some();
        let is_urgent = |lane: &Lane| {
            lane.is_resting()
                && (!is_throttled || !lane.is_throttled() || lane.is_unpolled_for(THROTTLED_AGAIN, now))
        };
        let mut urgent: Vec<_> = self.mains().filter(|lane| is_urgent(&self.all[*lane])).collect();
        if self.may_ask_all_at_once(is_throttled, now) {
            self.again_at = Some(now + NEXT_SECOND);
            let first_second = now.saturating_duration_since(self.began) < Duration::from_secs(1);
            let is_first = self.all_at_once_at.replace(now).is_none() && !first_second;
            let has_answered = self.all.iter().any(|lane| lane.answered_at().is_some());
            let at_most = if has_answered || is_first { self.all.len() } else { AT_ONCE_AT_THE_START };
            let listing = self.older().filter(|lane| self.lists_evictions(*lane));
            let is_due = |lane: &usize| self.all[*lane].is_unpolled_for(AGAIN, now);
            urgent.extend(listing.filter(is_due).take(at_most));
        } else if !is_throttled {
            let answered = self.older().filter(|lane| self.all[*lane].answered_at().is_some());
            let last = answered.max_by_key(|lane| self.all[*lane].answered_at());
            urgent.extend(last.filter(|lane| self.all[*lane].is_unpolled_for(AGAIN, now)));
        }
        urgent
    }

    /// Whether all older versions may be asked at once, as far as the time since the last time says.
    fn may_ask_all_at_once(&self, is_throttled: bool, now: Instant) -> bool {
        let Some(last) = self.all_at_once_at else { return true };
        let has_answered = |lane: usize| self.all[lane].answered_at() >= Some(last);
        let every = match () {
            () if is_throttled => ALL_AT_ONCE_EVERY_THROTTLED,
            () if (0..self.all.len()).any(|lane| self.lists_evictions(lane) && has_answered(lane)) => {
                ALL_AT_ONCE_EVERY_ANSWERED
            }
            () => ALL_AT_ONCE_EVERY,
        };
        now.saturating_duration_since(last) >= every
    }

    /// Whether a lane is due that is polled each second unless it rests.
    fn main_is_due(&mut self, lane: usize, now: Instant) -> bool {
        let another_is_steady = self.another_is_steady(lane, now);
        let lane = &mut self.all[lane];
        !lane.rests(now, another_is_steady) || lane.is_unpolled_for(REST, now)
    }

    /// Returns the older versions to poll in this second: the one in use, and those that may be better.
    fn due_older(&self, now: Instant) -> Vec<usize> {
        let in_use = self.older().find(|lane| self.all[*lane].is_steady(now));
        match in_use {
            Some(in_use) if self.lists_evictions(in_use) => {
                let newer = self.older().filter(|lane| *lane < in_use);
                let newer = newer.filter(|lane| self.all[*lane].is_unpolled_for(REST, now));
                newer.chain([in_use]).collect()
            }
            in_use => {
                let others = || self.older().filter(|lane| Some(*lane) != in_use);
                let longest_unpolled = |lanes: &mut dyn Iterator<Item = usize>| {
                    lanes.min_by_key(|lane| self.all[*lane].polled_at())
                };
                // The versions that list no evictions only when all others have just been tried, and rarely.
                let listing = longest_unpolled(&mut others().filter(|lane| self.lists_evictions(*lane)));
                let listing = listing.filter(|lane| self.all[*lane].is_unpolled_for(LISTING_FIRST, now));
                let may_be_next = |lane: &usize| {
                    self.lists_evictions(*lane) || self.all[*lane].is_unpolled_for(NOT_LISTING_EVERY, now)
                };
                let throttled: Vec<_> = others().filter(|lane| self.is_yet_to_be_asked(*lane)).collect();
                if !throttled.is_empty() && self.again_at.is_some() {
                    return in_use.into_iter().collect();
                }
                let listing = longest_unpolled(&mut throttled.into_iter()).or(listing);
                let next = listing.or_else(|| longest_unpolled(&mut others().filter(may_be_next)));
                let new = others().filter(|lane| self.is_new(*lane) && Some(*lane) != next);
                next.into_iter().chain(new.take(AT_ONCE_AT_THE_START - 1)).chain(in_use).collect()
            }
        }
    }

    /// Returns the lanes to poll after a pause: the one that answered last, if that was after the last 429.
    /// Else one of the two that are polled each second, and in every second round two older ones that list
    /// evictions, in each one of both if the two are silent; those first that were not polled for the longest
    /// time. None of the older ones waits for its first poll.
    fn begin_round(&mut self, now: Instant) -> Vec<usize> {
        let is_second = self.throttle.begin_round(now);
        if self.throttle.is_answered() {
            return (0..self.all.len())
                .max_by_key(|lane| self.all[*lane].answered_at())
                .into_iter()
                .collect();
        }
        let mut mains: Vec<_> = self.mains().collect();
        let mut older: Vec<_> = self.older().filter(|lane| self.lists_evictions(*lane)).collect();
        for lanes in [&mut mains, &mut older] {
            // Of those that were asked at once, the last ones may have got the 429.
            lanes.sort_by_key(|lane| (self.all[*lane].polled_at(), Reverse(*lane)));
        }
        let new = older.iter().filter(|lane| self.is_new(**lane)).count();
        // Where the two do not even answer, the older ones are what is left.
        let is_silent = self.mains().all(|lane| !self.all[lane].is_throttled());
        let (of_mains, of_older) = match () {
            () if new > 0 => (1, new.min(AT_ONCE_AT_THE_START)),
            () if is_silent => (1, 1),
            () if is_second && !older.is_empty() => (0, 2),
            () => (1, 0),
        };
        mains.into_iter().take(of_mains).chain(older.into_iter().take(of_older)).collect()
    }

    fn mains(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.all.iter().filter(|lane| lane.is_main()).count()
    }

    fn older(&self) -> impl Iterator<Item = usize> + use<> {
        self.mains().count()..self.all.len()
    }

    fn lists_evictions(&self, lane: usize) -> bool {
        self.all[lane].version.knows(&EventType::Preempt)
    }

    /// Whether the version lists evictions, and was not asked again after a 429, which says nothing of it: many were
    /// asked at once.
    fn is_yet_to_be_asked(&self, lane: usize) -> bool {
        self.lists_evictions(lane) && self.all[lane].is_yet_to_be_asked()
    }

    /// Whether an answer in this lane says whether there is an eviction: all that a watch can know if it is pinned.
    pub(super) fn is_enough(&self, lane: usize) -> bool {
        self.lists_evictions(lane) || self.all.len() == 1
    }

    /// Whether the version lists evictions, and was never asked.
    fn is_new(&self, lane: usize) -> bool {
        self.lists_evictions(lane) && self.all[lane].polled_at().is_none()
    }

    /// Whether the older versions were asked all at once so shortly before.
    fn asked_all_within(&self, before: Duration, now: Instant) -> bool {
        self.all_at_once_at.is_some_and(|at| now.saturating_duration_since(at) < before)
    }

    /// Whether polls come in rounds, with the pauses of the throttle, where there are any.
    fn polls_in_rounds(&self, now: Instant) -> bool {
        self.throttle.is_slow() || !self.any_is_steady(now)
    }

    pub(super) fn any_is_steady(&self, now: Instant) -> bool {
        self.all.iter().any(|lane| lane.is_steady(now))
    }

    fn another_is_steady(&self, lane: usize, now: Instant) -> bool {
        let others = self.all.iter().enumerate().filter(|(other, _)| *other != lane);
        others.map(|(_, other)| other).any(|other| other.is_steady(now))
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::{Error, ErrorKind};

    use super::*;

    const NEWEST: usize = 0;
    const DOCUMENTED: usize = 1;

    /// Polls at intervals, for as many seconds; `status` is the answer of a lane at a time, if it has one. Returns
    /// the time and the lane of each poll.
    fn polls(
        interval: Duration,
        seconds: u64,
        status: impl Fn(usize, Duration) -> Option<u16>,
    ) -> Vec<(Duration, usize)> {
        polls_of(None, interval, seconds, status)
    }

    /// The same of a watch that may be pinned.
    fn polls_of(
        pinned: Option<ApiVersion>,
        interval: Duration,
        seconds: u64,
        status: impl Fn(usize, Duration) -> Option<u16>,
    ) -> Vec<(Duration, usize)> {
        let began = Instant::now();
        let mut lanes = Lanes::new(pinned, began);
        let (mut now, mut next, mut polled) = (began, began, Vec::new());
        while now < began + Duration::from_secs(seconds) {
            let mut due = if now >= next { lanes.tick(now) } else { lanes.wake(now) };
            next = if now >= next { now + interval } else { next };
            while let Some(lane) = due.pop() {
                let Some((number, _)) = lanes.lane(lane).next_poll(now) else { continue };
                polled.push((now - began, lane));
                match status(lane, now - began) {
                    None => continue,
                    Some(200) => {
                        lanes.answered(lane, Some(number), now, now);
                        continue;
                    }
                    Some(status) => {
                        let error = Error::new(ErrorKind::Unavailable, "ask", "no");
                        lanes.failed(lane, &Failure::new(FailureKind::of_status(status), error), now);
                    }
                }
                due.extend(lanes.urgent(now));
            }
            now = lanes.wakes_at(now).map_or(next, |at| at.max(now).min(next));
        }
        polled
    }

    /// Polls each second. Returns the seconds of the polls of `watched`.
    fn polled(watched: usize, seconds: u64, status: impl Fn(usize, u64) -> u16) -> Vec<u64> {
        let status = |lane, at: Duration| Some(status(lane, at.as_secs()));
        let polls = polls(Duration::from_secs(1), seconds, status).into_iter();
        polls.filter(|(_, lane)| *lane == watched).map(|(at, _)| at.as_secs()).collect()
    }

    /// The documents say so.
    #[test]
    fn a_watch_sends_at_most_eight_requests_in_a_second() {
        let intervals = || (1_020..=1_250).step_by(10).map(Duration::from_millis);
        for (mains, interval) in [None, Some(429), Some(500)]
            .map(|it| intervals().map(move |every| (it, every)))
            .into_iter()
            .flatten()
        {
            let status = |lane, at| match lane {
                _ if at < Duration::from_secs(10) => Some(200),
                NEWEST | DOCUMENTED => mains,
                _ => Some(429),
            };
            let polls = polls(interval, 30, status);
            let most = polls.iter().map(|(from, _)| {
                polls.iter().filter(|(at, _)| at >= from && *at < *from + Duration::from_secs(1)).count()
            });
            let most = most.max();
            assert!(most <= Some(8), "{mains:?} {interval:?}: {most:?} {polls:?}");
        }
    }

    /// Also where one version is pinned, which has no older ones to ask in every second round.
    #[test]
    fn the_pauses_between_rounds_that_get_only_429_are_those_that_are_documented() {
        for pinned in [None, Some(ApiVersion::DOCUMENTED), Some(ApiVersion::V2017_08_01)] {
            let from = Duration::from_secs(10);
            let status = |_, at| Some(if at < from { 200 } else { 429 });
            let mut times: Vec<_> = polls_of(pinned, Duration::from_secs(1), 30, status)
                .into_iter()
                .map(|(at, _)| at)
                .filter(|at| *at >= from)
                .collect();
            times.dedup();
            let pauses: Vec<_> =
                times.windows(2).map(|two| two[1].saturating_sub(two[0]).as_millis()).collect();
            for (pause, at_most) in pauses.iter().zip([250, 1_500, 3_000, 3_000, 3_000]) {
                assert!((at_most * 3 / 4..=at_most).contains(pause), "{pinned:?}: {pauses:?}");
            }
            assert!(pauses.len() >= 6, "{pinned:?}: {pauses:?}");
        }
    }

    /// Tries the next version after those that others have tried.
    fn tries(lanes: &mut Lanes, tried: &[ApiVersion], now: Instant) -> ApiVersion {
        let version = lanes.next_to_try()(tried);
        let lane = lanes.of(version).expect("a lane");
        lanes.lane(lane).tries(now);
        version
    }

    #[test]
    fn versions_are_tried_in_turn_and_the_likeliest_first() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut lanes = Lanes::new(None, now);
        assert_eq!(tries(&mut lanes, &[], now), ApiVersion::DOCUMENTED, "none was answered yet");
        lanes.answered(3, None, at(1), at(1));
        let mut tried = Vec::new();
        for second in 2..14 {
            tried.push(tries(&mut lanes, &[], at(second)));
        }
        assert_eq!(tried[0], lanes.all[3].version, "it was answered last");
        let listing: std::collections::BTreeSet<_> = ApiVersion::ALL.into_iter().take(6).collect();
        assert_eq!(tried[..6].iter().copied().collect::<std::collections::BTreeSet<_>>(), listing);
        assert_eq!(tried[..6], tried[6..], "again in the same order");
        lanes.answered(NEWEST, None, at(20), at(20));
        assert_eq!(tries(&mut lanes, &[], at(23)), ApiVersion::NEWEST, "in the next silence");
        lanes.answered(NEWEST, None, at(30), at(30));
        let others = [ApiVersion::NEWEST, lanes.all[3].version];
        assert_eq!(tries(&mut lanes, &others, at(33)), ApiVersion::DOCUMENTED, "others have tried these");
    }

    /// However many watchers there are, each tries each version.
    #[test]
    fn watchers_that_try_in_turn_do_not_keep_to_one_version_each() {
        for number in 1..=12 {
            let now = Instant::now();
            let mut watchers: Vec<_> = (0..number).map(|_| (Lanes::new(None, now), Vec::new())).collect();
            let mut tried = Vec::new();
            for turn in 0..6 * number {
                let (lanes, own) = &mut watchers[turn % number];
                let version = tries(lanes, &tried, now + Duration::from_secs(turn as u64 + 1));
                tried.retain(|it| *it != version);
                tried.push(version);
                own.push(version);
            }
            for (_, mut own) in watchers {
                own.sort_unstable();
                own.dedup();
                assert_eq!(own.len(), 6, "of {number}");
            }
        }
    }

    #[test]
    fn a_version_that_lists_no_evictions_is_enough_only_if_it_is_pinned() {
        let now = Instant::now();
        let lanes = Lanes::new(None, now);
        let enough: Vec<_> = (0..ApiVersion::ALL.len()).filter(|lane| lanes.is_enough(*lane)).collect();
        assert_eq!(enough, [0, 1, 2, 3, 4, 5]);
        assert!(Lanes::new(Some(ApiVersion::V2017_08_01), now).is_enough(0));
    }

    #[test]
    fn a_version_that_got_429_in_a_burst_of_all_is_asked_in_the_next_second() {
        let status = |lane, second| match (lane, second) {
            (DOCUMENTED, ..20) => 200,
            (5, 20) => 429,
            (5, _) => 200,
            _ => 503,
        };
        assert_eq!(polled(5, 24, status), [20, 21, 22, 23]);
    }

    #[test]
    fn every_older_version_that_lists_evictions_is_asked_by_the_second_second() {
        for only in 2..=5 {
            let polled = polled(only, 3, |lane, _| if lane == only { 200 } else { 400 });
            assert!(polled.contains(&0) || polled.contains(&1), "{only}: {polled:?}");
        }
    }

    #[test]
    fn a_version_that_fails_is_polled_every_30_s_while_the_other_answers() {
        let mut expected: Vec<u64> = (0..10).collect();
        expected.extend((39..300).step_by(30));
        assert_eq!(polled(NEWEST, 300, |lane, _| if lane == NEWEST { 500 } else { 200 }), expected);
    }

    #[test]
    fn a_version_that_gets_429_rests_at_once() {
        let expected: Vec<u64> = (0..300).step_by(30).collect();
        assert_eq!(polled(NEWEST, 300, |lane, _| if lane == NEWEST { 429 } else { 200 }), expected);
    }

    #[test]
    fn the_other_ones_first_failure_ends_the_rest() {
        let fails = |lane, second| lane == NEWEST || lane == DOCUMENTED && second == 100;
        let polled = polled(NEWEST, 120, |lane, second| if fails(lane, second) { 500 } else { 200 });
        assert!(polled.contains(&100), "{polled:?}");
    }

    #[test]
    fn the_newest_older_version_that_answers_is_polled_until_a_newer_one_is_back() {
        let answers = |lane, second| lane >= 3 || lane == DOCUMENTED && !(20..80).contains(&second);
        let status = |lane, second| if answers(lane, second) { 200 } else { 500 };
        // The documented version rests, and shows by its poll after 88 s that it is back.
        assert_eq!(polled(3, 120, status), (20..89).collect::<Vec<_>>());
        assert_eq!(polled(2, 120, status), [20, 50, 80], "it may be back, too");
        assert_eq!(polled(4, 120, status), [20]);
        assert_eq!(polled(7, 120, status), [0; 0], "it lists no evictions");
    }

    #[test]
    fn a_429_beside_a_refused_version_leads_to_an_older_one_at_once() {
        for refused in [404, 500] {
            let status = |lane, second| match lane {
                DOCUMENTED => refused,
                NEWEST if (5..7).contains(&second) => 500,
                NEWEST if second >= 20 => 429,
                _ => 200,
            };
            let polled = polled(2, 24, status);
            assert!(
                [5, 20, 21, 22, 23].iter().all(|second| polled.contains(second)),
                "{refused}: {polled:?}"
            );
        }
    }
}
