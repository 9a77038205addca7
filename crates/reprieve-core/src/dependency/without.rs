//! The running jobs of a worker that do without a dependency which they use, by how their calls fared, and whether they
//! hold so many slots for so long that others wait for them.
//!
//! A breaker counts calls: a thousand quick answers outvote ten failures, and the ten jobs that then read a slow store
//! have all the slots. So this counts the slots. It is pure, as the breaker is.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long a job must do without to count. Others can wait for so long, and a retry or a small store takes less.
const LONG: Duration = Duration::from_secs(2);

/// For how long the slots are kept for others after the last time that many held them for long: first, and at most, where
/// that happens again and again.
const KEPT_MIN: Duration = Duration::from_secs(10);
const KEPT_MAX: Duration = Duration::from_mins(1);

/// When the next time is a first one again.
const REMEMBERED: Duration = Duration::from_mins(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Without {
    /// The runs of jobs that use it, and since when each does without, if it does.
    runs: BTreeMap<u64, Option<Lack>>,
    /// How many may do without at once.
    most: usize,
    kept: Option<Kept>,
}

#[derive(Debug, Clone, Copy)]
struct Lack {
    since: Duration,
    /// A call of it failed or was not made; otherwise it only looked at the state.
    by_call: bool,
}

/// Slots are kept for others.
#[derive(Debug, Clone, Copy)]
struct Kept {
    since: Duration,
    until: Duration,
    pause: Duration,
}

impl Without {
    /// At least so many may do without at once.
    pub(super) fn allow(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    /// A run begins.
    pub(super) fn begin(&mut self, run: u64, now: Duration) {
        self.look(now);
        self.runs.insert(run, None);
    }

    /// It does without from now on, if it does not yet: a call failed or was not made, or it saw that it should not call.
    pub(super) fn lacks(&mut self, run: u64, by_call: bool, now: Duration) {
        self.look(now);
        if let Some(lack) = self.runs.get_mut(&run) {
            let before = lack.get_or_insert(Lack { since: now, by_call });
            before.by_call |= by_call;
        }
    }

    /// It does so no longer: a call was answered, or it saw that it should call, which tells nothing after a call that failed.
    pub(super) fn is_served(&mut self, run: u64, by_call: bool, now: Duration) {
        let lacks = |lack: &Lack| by_call || !lack.by_call;
        if self.runs.get(&run).is_some_and(|lack| lack.as_ref().is_some_and(lacks)) {
            self.look(now);
            self.runs.insert(run, None);
        }
    }

    /// It ends, or uses nothing any more.
    pub(super) fn end(&mut self, run: u64, now: Duration) {
        self.look(now);
        self.runs.remove(&run);
    }

    /// Whether slots are kept for others now.
    pub(super) fn keeps_slots(&mut self, now: Duration) -> bool {
        self.look(now);
        self.kept.is_some_and(|kept| now < kept.until)
    }

    /// Returns since when slots are kept for others, or were last.
    pub(super) fn kept_since(&self) -> Option<Duration> {
        self.kept.map(|kept| kept.since)
    }

    /// Returns for how long slots have been kept for others.
    pub(super) fn kept_for(&mut self, now: Duration) -> Duration {
        let is_kept = self.keeps_slots(now);
        self.kept.filter(|_| is_kept).map_or(Duration::ZERO, |kept| now.saturating_sub(kept.since))
    }

    /// Judges the time since it was called last, before anything changes. Meanwhile those who do without can only have
    /// become more that do so for long.
    fn look(&mut self, now: Duration) {
        if let Some(kept) = &mut self.kept {
            let long = count_long(&self.runs, now.min(kept.until));
            if long > 0 && long * 2 >= self.most {
                kept.until = now + kept.pause;
            }
            if now < kept.until {
                return;
            }
        }
        if count_long(&self.runs, now) > self.most {
            let again = self.kept.filter(|kept| now.saturating_sub(kept.until) < REMEMBERED);
            let pause = again.map_or(KEPT_MIN, |kept| (kept.pause * 2).min(KEPT_MAX));
            self.kept = Some(Kept { since: now, until: now + pause, pause });
        }
    }
}

fn count_long(runs: &BTreeMap<u64, Option<Lack>>, at: Duration) -> usize {
    runs.values().flatten().filter(|lack| lack.since + LONG <= at).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// So many runs that began at 0 s, of which half may do without.
    fn running(runs: u64) -> Without {
        let mut without = Without::default();
        without.allow(usize::try_from(runs / 2).unwrap());
        (0..runs).for_each(|run| without.begin(run, s(0)));
        without
    }

    /// All do without from `from` to `to`, and end then; as many begin.
    fn flap(without: &mut Without, from: Duration, to: Duration) {
        (0..8).for_each(|run| without.lacks(run, true, from));
        (0..8).for_each(|run| without.end(run, to));
        (0..8).for_each(|run| without.begin(run, to));
    }

    #[test]
    fn slots_are_kept_for_others_when_more_than_half_are_held_for_long_and_until_ten_seconds_after_that() {
        let mut without = running(8);
        (0..4).for_each(|run| without.lacks(run, true, s(1)));
        assert!(!without.keeps_slots(s(60)), "no more than may");
        without.lacks(4, true, s(60));
        assert!(!without.keeps_slots(s(61)), "a moment");
        assert!(without.keeps_slots(s(62)));
        assert_eq!(without.kept_for(s(70)), s(8));
        // All but one are served again: too few to go on with that.
        (1..8).for_each(|run| without.is_served(run, true, s(80)));
        assert!(without.keeps_slots(s(89)));
        assert!(!without.keeps_slots(s(90)));
        assert_eq!(without.kept_for(s(90)), s(0));
    }

    #[test]
    fn those_who_lack_it_for_a_moment_keep_no_slots_for_others() {
        let mut without = running(8);
        for second in 0..100 {
            (0..8).for_each(|run| without.lacks(run, true, s(second)));
            assert!(!without.keeps_slots(s(second + 1)));
            (0..4).for_each(|run| without.is_served(run, true, s(second + 1)));
            (4..8).for_each(|run| without.end(run, s(second + 1)));
            (4..8).for_each(|run| without.begin(run, s(second + 1)));
        }
    }

    #[test]
    fn slots_stay_kept_while_nothing_happens_for_long() {
        let mut without = running(2);
        (0..2).for_each(|run| without.lacks(run, true, s(1)));
        assert!(without.keeps_slots(s(3)));
        without.end(0, s(100));
        assert!(without.keeps_slots(s(3_600)), "half of those that may still do without");
        without.end(1, s(3_600));
        assert!(without.keeps_slots(s(3_609)));
        assert!(!without.keeps_slots(s(3_610)));
    }

    #[test]
    fn where_it_comes_and_goes_slots_are_kept_ever_longer_up_to_a_minute() {
        let mut without = running(8);
        let mut pauses = Vec::new();
        let mut now = s(0);
        for _ in 0..5 {
            flap(&mut without, now, now + s(10));
            let ended = now + s(10);
            let pause = (1..100).map(s).find(|pause| !without.keeps_slots(ended + *pause)).unwrap();
            pauses.push(pause);
            now = ended + pause;
        }
        assert_eq!(pauses, [10, 20, 40, 60, 60].map(s));
        now += REMEMBERED;
        flap(&mut without, now, now + s(10));
        assert!(without.keeps_slots(now + s(19)));
        assert!(!without.keeps_slots(now + s(20)), "a first time again");
    }

    #[test]
    fn a_look_at_the_state_counts_and_does_not_undo_a_call_that_failed() {
        let mut without = running(2);
        (0..2).for_each(|run| without.lacks(run, false, s(1)));
        without.is_served(0, false, s(2));
        assert!(!without.keeps_slots(s(9)));
        without.lacks(0, true, s(9));
        without.is_served(0, false, s(10));
        assert!(without.keeps_slots(s(11)));
    }

    #[test]
    fn a_run_that_has_not_begun_or_has_ended_counts_for_nothing() {
        let mut without = running(2);
        without.end(1, s(1));
        (0..9).for_each(|run| without.lacks(run, true, s(1)));
        assert!(!without.keeps_slots(s(9)));
    }
}
