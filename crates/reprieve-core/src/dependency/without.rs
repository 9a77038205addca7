//! The running jobs of a worker that do without a dependency which they use, by how their calls fared, and whether they
//! hold so many slots for so long that others wait for them.
//!
//! A breaker counts calls: a thousand quick answers outvote ten failures, and the ten jobs that then read a slow store
//! have all the slots. So this counts the slots, of all dependencies together, because two that are away would have half of
//! them each. It is pure, as the breaker is. Dependencies have numbers.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long a job must do without to count. Others can wait for so long, and a retry or a small store takes less.
const LONG: Duration = Duration::from_secs(2);

/// For how long the slots are kept for others after the last time that many held them for long: first, and at most, where
/// that happens again and again.
const KEPT_MIN: Duration = Duration::from_secs(10);
const KEPT_MAX: Duration = Duration::from_mins(1);

/// How many calls must have failed in a row, each of which took long, until those that take long are held to be in vain.
const IN_VAIN: u32 = 3;

/// For how long nothing must have been lacked until one job more is tried while slots are kept for others, and for how long
/// that is on trial, unless it is answered sooner. If those that may do without had all slots with it, it is tried later.
const QUIET: Duration = Duration::from_mins(1);
const QUIET_FOR_LAST: Duration = Duration::from_hours(1);

/// When the next time is a first one again.
const REMEMBERED: Duration = Duration::from_mins(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Without {
    /// The runs of jobs that use any.
    runs: BTreeMap<u64, Run>,
    /// How many may do without at once, of all slots.
    most: usize,
    slots: usize,
    kept: Option<Kept>,
    /// When it was judged last.
    looked: Duration,
    /// How many calls have begun.
    calls: u64,
    /// How many calls of each have failed in a row, since the last answer, that took long.
    in_vain: BTreeMap<usize, u32>,
    /// When a job began to do without each last, or did again.
    lacked: BTreeMap<usize, Duration>,
}

#[derive(Debug)]
struct Run {
    kind: &'static str,
    began: Duration,
    /// It was more than may do without.
    is_tried: bool,
    /// The dependencies that it uses.
    uses: BTreeMap<usize, Use>,
}

/// How a run uses a dependency.
#[derive(Debug, Default)]
struct Use {
    /// It does without.
    lack: Option<Lack>,
    /// The number of the last call that had begun when one was answered last, if any was.
    answered: Option<u64>,
    /// The calls that have no answer yet: their numbers, and when they began.
    calls: Vec<(u64, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Lack {
    since: Duration,
    /// A call of it failed or was not made; otherwise it only looked at the state.
    by_call: bool,
    /// How many calls had begun when one was refused last, if one was: answers to these do not end it.
    refused: u64,
}

/// Slots are kept for others.
#[derive(Debug, Clone)]
struct Kept {
    since: Duration,
    until: Duration,
    pause: Duration,
    /// From those that use these, until then.
    of: BTreeMap<usize, Duration>,
}

/// How one more job is counted, and among how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share<'a> {
    pub(crate) kind: &'static str,
    /// The dependencies that jobs of its kind use.
    pub(crate) uses: &'a [usize],
    /// All that is done without now.
    pub(crate) away: &'a [usize],
    /// How many of its kind may run at once if any of that is away, and of all that use anything that is.
    pub(crate) of_kind: usize,
    pub(crate) in_all: usize,
    /// Whether all that it uses serves, as far as the breakers know.
    pub(crate) serves: bool,
}

/// How one more job may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    InShare,
    OnTrial,
}

/// How it is known that a run does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacks {
    /// It saw that it should not call.
    Looked,
    /// A call failed or was not made.
    Called,
    /// A call was refused, whatever its answer is.
    Refused,
}

/// How it is known that it does so no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// It saw that it may call, which tells nothing after a call that failed.
    Looked,
    /// A call was answered, of which it is not known when it began.
    Reported,
    /// The call of this number was answered.
    Called(u64),
}

impl Without {
    /// At least so many may do without at once, of all slots.
    pub(super) fn allow(&mut self, most: usize, slots: usize) {
        (self.most, self.slots) = (self.most.max(most), slots);
    }

    /// Whether and how one more job may begin.
    pub(super) fn admits(&self, share: &Share<'_>, now: Duration) -> Option<Begins> {
        let is_away = |used: &usize| share.away.contains(used);
        let of_kind = || self.runs.values().filter(|run| run.kind == share.kind).count();
        let in_all = || self.runs.values().filter(|run| run.uses.keys().any(is_away)).count();
        if !share.uses.iter().any(is_away) || of_kind() < share.of_kind && in_all() < share.in_all {
            return Some(Begins::InShare);
        }
        self.may_try(share, now).then_some(Begins::OnTrial)
    }

    /// Whether one job more than may be is tried: what they do without may be back, and without a call nobody finds out.
    fn may_try(&self, share: &Share<'_>, now: Duration) -> bool {
        let in_doubt = || self.runs.values().filter(|run| self.is_in_doubt(run, now));
        let quiet = if in_doubt().count() + 1 < self.slots { QUIET } else { QUIET_FOR_LAST };
        let is_quiet = |used: &usize| self.lacked.get(used).is_none_or(|lacked| *lacked + quiet <= now);
        share.serves && share.uses.iter().all(is_quiet) && !in_doubt().any(|run| run.is_tried)
    }

    /// Whether it does without, or may have to: it has begun lately, and had no answer yet.
    fn is_in_doubt(&self, run: &Run, now: Duration) -> bool {
        let is_new = run.began + QUIET > now;
        run.uses.iter().any(|(used, its)| {
            let lacks = its.lack.is_some() || its.is_in_want(are_in_vain(&self.in_vain, *used), now);
            lacks || is_new && its.answered.is_none()
        })
    }

    /// A run begins, if it may. Returns whether it does.
    pub(super) fn begin(&mut self, run: u64, share: &Share<'_>, now: Duration) -> bool {
        self.look(now);
        let Some(begins) = self.admits(share, now) else { return false };
        let is_tried = begins == Begins::OnTrial;
        let uses = share.uses.iter().map(|used| (*used, Use::default())).collect();
        self.runs.insert(run, Run { kind: share.kind, began: now, is_tried, uses });
        true
    }

    /// A call begins. Returns its number.
    pub(super) fn begin_call(&mut self, run: u64, used: usize, now: Duration) -> u64 {
        self.calls += 1;
        let number = self.calls;
        if let Some(its) = self.use_of(run, used) {
            its.calls.push((number, now));
        }
        number
    }

    /// The call of this number has failed: its run has done without from when that began on.
    pub(super) fn fails(&mut self, run: u64, used: usize, number: u64, now: Duration) {
        self.lacks(run, used, Lacks::Called, now);
        let Some(its) = self.use_of(run, used) else { return };
        let Some(began) = its.end_call(number) else { return };
        if let Some(lack) = &mut its.lack {
            lack.since = lack.since.min(began);
        }
        if began + LONG <= now {
            *self.in_vain.entry(used).or_default() += 1;
        }
    }

    /// A run does without one of what it uses from now on, if it does not yet.
    pub(super) fn lacks(&mut self, run: u64, used: usize, how: Lacks, now: Duration) {
        self.look(now);
        let calls = self.calls;
        let number = used;
        if let Some(used) = self.use_of(run, used) {
            let lack = used.lack.get_or_insert(Lack { since: now, by_call: false, refused: 0 });
            lack.by_call |= how != Lacks::Looked;
            if how == Lacks::Refused {
                lack.refused = calls;
            }
            self.lacked.insert(number, now);
        }
    }

    /// It does so no longer.
    pub(super) fn is_served(&mut self, run: u64, used: usize, how: Served, now: Duration) {
        let ends = |lack: &Lack| match how {
            Served::Looked => !lack.by_call,
            Served::Reported => lack.refused == 0,
            Served::Called(number) => number > lack.refused,
        };
        let (calls, is_answer) = (self.calls, how != Served::Looked);
        let were_in_vain = is_answer && self.in_vain.get(&used).is_some_and(|calls| *calls > 0);
        let Some(its) = self.use_of(run, used) else { return };
        let lack_ends = its.lack.as_ref().is_some_and(ends);
        if lack_ends || were_in_vain {
            self.look(now);
            if is_answer {
                self.in_vain.remove(&used);
            }
        }
        let Some(its) = self.use_of(run, used) else { return };
        if lack_ends {
            its.lack = None;
        }
        if is_answer {
            its.answered = Some(calls);
        }
        if let Served::Called(number) = how {
            its.end_call(number);
        }
    }

    /// It has given up the call of this number, for which it may have waited in vain. If another one was answered since,
    /// it needed that one only.
    pub(super) fn gives_up(&mut self, run: u64, used: usize, number: u64, now: Duration) {
        self.look(now);
        let Some(its) = self.use_of(run, used) else { return };
        if its.answered.is_none_or(|answered| answered < number) {
            self.fails(run, used, number, now);
        } else {
            its.end_call(number);
        }
    }

    fn use_of(&mut self, run: u64, used: usize) -> Option<&mut Use> {
        self.runs.get_mut(&run)?.uses.get_mut(&used)
    }

    /// It ends, or uses nothing any more.
    pub(super) fn end(&mut self, run: u64, now: Duration) {
        self.look(now);
        self.runs.remove(&run);
    }

    /// Whether slots are kept for others now, from those that use this one.
    pub(super) fn keeps_slots(&mut self, used: usize, now: Duration) -> bool {
        self.look(now);
        self.kept.as_ref().is_some_and(|kept| kept.of.get(&used).is_some_and(|until| now < *until))
    }

    /// Returns since when slots are kept for others, or were last.
    pub(super) fn kept_since(&self) -> Option<Duration> {
        self.kept.as_ref().map(|kept| kept.since)
    }

    /// Returns from those that use which ones.
    pub(super) fn kept_of(&self) -> Vec<usize> {
        self.kept.iter().flat_map(|kept| kept.of.keys().copied()).collect()
    }

    /// Returns for how long slots have been kept for others, from those that use this one.
    pub(super) fn kept_for(&mut self, used: usize, now: Duration) -> Duration {
        let is_kept = self.keeps_slots(used, now);
        self.kept.as_ref().filter(|_| is_kept).map_or(Duration::ZERO, |kept| now.saturating_sub(kept.since))
    }

    /// Judges the time since it was called last, before anything changes. Meanwhile those who do without can only have
    /// become more that do so for long.
    fn look(&mut self, now: Duration) {
        let looked = std::mem::replace(&mut self.looked, now);
        if let Some(kept) = self.kept.as_mut().filter(|kept| looked <= kept.until) {
            let long = Long::at(&self.runs, &self.in_vain, now.min(kept.until));
            if long.runs > 0 && long.runs * 2 >= self.most {
                kept.until = now + kept.pause;
                kept.of.extend(long.most_lacked().map(|used| (used, kept.until)));
            }
            if now < kept.until {
                return;
            }
        }
        let long = Long::at(&self.runs, &self.in_vain, now);
        if long.runs > self.most {
            let again = self.kept.as_ref().filter(|kept| now.saturating_sub(kept.until) < REMEMBERED);
            let pause = again.map_or(KEPT_MIN, |kept| (kept.pause * 2).min(KEPT_MAX));
            let until = now + pause;
            let of = long.most_lacked().map(|used| (used, until)).collect();
            self.kept = Some(Kept { since: now, until, pause, of });
        }
    }
}

impl Use {
    /// A call has ended. Returns when it began.
    fn end_call(&mut self, number: u64) -> Option<Duration> {
        let at = self.calls.iter().position(|(call, _)| *call == number)?;
        Some(self.calls.swap_remove(at).1)
    }

    /// Whether its run has done without for long, or waited for an answer `in_vain`.
    fn is_in_want(&self, in_vain: bool, at: Duration) -> bool {
        let mut waits = self.calls.iter().filter(|_| in_vain).map(|(_, began)| *began);
        self.lack.as_ref().is_some_and(|lack| lack.since + LONG <= at)
            || waits.any(|began| began + LONG <= at)
    }
}

fn are_in_vain(in_vain: &BTreeMap<usize, u32>, used: usize) -> bool {
    in_vain.get(&used).is_some_and(|calls| *calls >= IN_VAIN)
}

/// Those that do without for long.
struct Long {
    /// Each counts once, however much it does without.
    runs: usize,
    /// How many lack each.
    of: BTreeMap<usize, usize>,
}

impl Long {
    fn at(runs: &BTreeMap<u64, Run>, in_vain: &BTreeMap<usize, u32>, at: Duration) -> Self {
        let mut long = Self { runs: 0, of: BTreeMap::new() };
        for run in runs.values() {
            let is_lacked = |(used, its): &(&usize, &Use)| its.is_in_want(are_in_vain(in_vain, **used), at);
            let lacked = run.uses.iter().filter(is_lacked);
            let mut lacked = lacked.map(|(used, _)| *used).peekable();
            long.runs += usize::from(lacked.peek().is_some());
            lacked.for_each(|used| *long.of.entry(used).or_default() += 1);
        }
        long
    }

    /// Those that are lacked by at least half of an equal part: one job in vain must not keep all of its kind waiting while
    /// something else is away.
    fn most_lacked(&self) -> impl Iterator<Item = usize> {
        let counts = |lacking: usize| lacking * self.of.len() * 2 >= self.runs;
        self.of.iter().filter(move |(_, lacking)| counts(**lacking)).map(|(used, _)| *used)
    }
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
        let slots = usize::try_from(runs).unwrap();
        without.allow(slots / 2, slots);
        (0..runs).for_each(|run| begin(&mut without, run, &[0], s(0)));
        without
    }

    /// A run begins that uses these, while nothing is away.
    fn begin(without: &mut Without, run: u64, uses: &[usize], now: Duration) {
        let share = Share { kind: "k", uses, away: &[], of_kind: 0, in_all: 0, serves: true };
        assert!(without.begin(run, &share, now));
    }

    /// All do without from `from` to `to`, and end then; as many begin.
    fn flap(without: &mut Without, from: Duration, to: Duration) {
        (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, from));
        (0..8).for_each(|run| without.end(run, to));
        (0..8).for_each(|run| begin(without, run, &[0], to));
    }

    #[test]
    fn slots_are_kept_for_others_when_more_than_half_are_held_for_long_and_until_ten_seconds_after_that() {
        let mut without = running(8);
        (0..4).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        assert!(!without.keeps_slots(0, s(60)), "no more than may");
        without.lacks(4, 0, Lacks::Called, s(60));
        assert!(!without.keeps_slots(0, s(61)), "a moment");
        assert!(without.keeps_slots(0, s(62)));
        assert_eq!(without.kept_for(0, s(70)), s(8));
        // All but one are served again: too few to go on with that.
        (1..8).for_each(|run| without.is_served(run, 0, Served::Reported, s(80)));
        assert!(without.keeps_slots(0, s(89)));
        assert!(!without.keeps_slots(0, s(90)));
        assert_eq!(without.kept_for(0, s(90)), s(0));
    }

    #[test]
    fn those_who_lack_it_for_a_moment_keep_no_slots_for_others() {
        let mut without = running(8);
        for second in 0..100 {
            (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(second)));
            assert!(!without.keeps_slots(0, s(second + 1)));
            (0..4).for_each(|run| without.is_served(run, 0, Served::Reported, s(second + 1)));
            (4..8).for_each(|run| without.end(run, s(second + 1)));
            (4..8).for_each(|run| begin(&mut without, run, &[0], s(second + 1)));
        }
    }

    #[test]
    fn slots_stay_kept_while_nothing_happens_for_long() {
        let mut without = running(2);
        (0..2).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        assert!(without.keeps_slots(0, s(3)));
        without.end(0, s(100));
        assert!(without.keeps_slots(0, s(3_600)), "half of those that may still do without");
        without.end(1, s(3_600));
        assert!(without.keeps_slots(0, s(3_609)));
        assert!(!without.keeps_slots(0, s(3_610)));
    }

    #[test]
    fn where_it_comes_and_goes_slots_are_kept_ever_longer_up_to_a_minute() {
        let mut without = running(8);
        let mut pauses = Vec::new();
        let mut now = s(0);
        for _ in 0..5 {
            flap(&mut without, now, now + s(10));
            let ended = now + s(10);
            let pause = (1..100).map(s).find(|pause| !without.keeps_slots(0, ended + *pause)).unwrap();
            pauses.push(pause);
            now = ended + pause;
        }
        assert_eq!(pauses, [10, 20, 40, 60, 60].map(s));
        now += REMEMBERED;
        flap(&mut without, now, now + s(10));
        assert!(without.keeps_slots(0, now + s(19)));
        assert!(!without.keeps_slots(0, now + s(20)), "a first time again");
    }

    #[test]
    fn a_look_at_the_state_counts_and_does_not_undo_a_call_that_failed() {
        let mut without = running(2);
        (0..2).for_each(|run| without.lacks(run, 0, Lacks::Looked, s(1)));
        without.is_served(0, 0, Served::Looked, s(2));
        assert!(!without.keeps_slots(0, s(9)));
        without.lacks(0, 0, Lacks::Called, s(9));
        without.is_served(0, 0, Served::Looked, s(10));
        assert!(without.keeps_slots(0, s(11)));
    }

    #[test]
    fn a_run_that_has_not_begun_or_has_ended_counts_for_nothing() {
        let mut without = running(2);
        without.end(1, s(1));
        (0..9).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        assert!(!without.keeps_slots(0, s(9)));
    }

    #[test]
    fn runs_that_do_without_different_ones_count_together_and_each_once() {
        let mut without = Without::default();
        without.allow(4, 8);
        (0..4).for_each(|run| begin(&mut without, run, &[0], s(0)));
        (4..8).for_each(|run| begin(&mut without, run, &[1, 2], s(0)));
        (0..4).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        assert!(!without.keeps_slots(0, s(9)), "no more than may");
        without.lacks(4, 1, Lacks::Called, s(9));
        assert_eq!([0, 1].map(|used| without.keeps_slots(used, s(11))), [true, false], "one in vain");
        without.lacks(5, 1, Lacks::Called, s(11));
        without.lacks(5, 2, Lacks::Called, s(11));
        assert_eq!([0, 1, 2].map(|used| without.keeps_slots(used, s(13))), [true, true, true]);
        // Nobody lacks the others any more, and half may go on with the first.
        (4..6).for_each(|run| without.end(run, s(14)));
        assert_eq!([0, 1].map(|used| without.keeps_slots(used, s(23))), [true, true]);
        assert_eq!([0, 1].map(|used| without.keeps_slots(used, s(24))), [true, false]);
    }

    #[test]
    fn one_more_begins_if_those_that_use_anything_that_is_away_are_fewer_than_may() {
        let mut without = Without::default();
        (0..2).for_each(|run| begin(&mut without, run, &[0], s(0)));
        (2..4).for_each(|run| begin(&mut without, run, &[0, 1], s(0)));
        (4..7).for_each(|run| begin(&mut without, run, &[2], s(0)));
        let admits = |uses: &[usize], away: &[usize], (of_kind, in_all)| {
            let share = Share { kind: "k", uses, away, of_kind, in_all, serves: false };
            without.admits(&share, s(9)) == Some(Begins::InShare)
        };
        assert!(admits(&[0], &[], (0, 0)), "nothing is away");
        assert!(admits(&[3], &[0, 1, 2], (0, 0)), "nothing that it uses is away");
        assert!(admits(&[0], &[0, 1], (8, 5)));
        assert!(!admits(&[0], &[0, 1], (8, 4)), "four use any of these");
        assert!(!admits(&[1], &[0, 1], (8, 4)), "it uses what is away, too");
        assert!(admits(&[1], &[1], (8, 3)), "two use it");
        assert!(!admits(&[1], &[0, 1, 2], (8, 7)));
        assert!(!admits(&[1], &[1], (7, 3)), "seven of its kind run");
    }

    #[test]
    fn a_call_that_is_given_up_counts_unless_another_was_answered_meanwhile() {
        let mut without = running(2);
        let [first, second, third] = [0, 1, 1].map(|run| without.begin_call(run, 0, s(1)));
        without.gives_up(0, 0, first, s(1));
        without.is_served(1, 0, Served::Called(third), s(1));
        without.gives_up(1, 0, second, s(1));
        assert!(!without.keeps_slots(0, s(3)), "the second answer was not waited for");
        let fourth = without.begin_call(1, 0, s(3));
        without.gives_up(1, 0, fourth, s(3));
        assert!(without.keeps_slots(0, s(5)));
    }

    #[test]
    fn a_call_that_hangs_and_fails_counts_from_its_beginning_on() {
        let mut without = running(2);
        let calls = [0, 1].map(|run| without.begin_call(run, 0, s(1)));
        without.fails(0, 0, calls[0], s(21));
        assert!(!without.keeps_slots(0, s(21)), "the other may be answered");
        without.fails(1, 0, calls[1], s(21));
        assert!(without.keeps_slots(0, s(21)));
    }

    #[test]
    fn a_call_that_fails_after_hours_does_not_begin_again_what_ended_long_ago() {
        let mut without = running(4);
        let call = without.begin_call(3, 0, s(0));
        (0..3).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        assert!(without.keeps_slots(0, s(3)));
        (0..3).for_each(|run| without.end(run, s(4)));
        assert!(!without.keeps_slots(0, s(14)));
        without.fails(3, 0, call, s(9_000));
        assert!(!without.keeps_slots(0, s(9_000)));
    }

    #[test]
    fn those_that_wait_for_an_answer_count_where_three_have_waited_in_vain_and_until_one_is_answered() {
        let mut without = running(8);
        for run in 0..3 {
            let call = without.begin_call(run, 0, s(0));
            without.fails(run, 0, call, s(20));
            without.end(run, s(20));
        }
        let calls: Vec<_> = (3..8).map(|run| without.begin_call(run, 0, s(20))).collect();
        assert!(!without.keeps_slots(0, s(21)));
        assert!(without.keeps_slots(0, s(22)));
        // An answer: the others may have one, too.
        without.is_served(3, 0, Served::Called(calls[0]), s(30));
        assert!(without.keeps_slots(0, s(39)));
        assert!(!without.keeps_slots(0, s(40)));
        // One that fails after it is the first in a row.
        without.fails(4, 0, calls[1], s(50));
        assert!(!without.keeps_slots(0, s(100)));
    }

    /// One more begins while four of so many may do without what is kept from them.
    fn tries(without: &mut Without, run: u64, serves: bool, now: Duration) -> bool {
        let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 4, in_all: 4, serves };
        without.begin(run, &share, now)
    }

    #[test]
    fn one_by_one_more_are_tried_when_nothing_was_lacked_for_a_minute() {
        let mut without = running(8);
        (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        without.end(0, s(30));
        assert!(!tries(&mut without, 8, true, s(61)), "seven do without, and it might be the eighth");
        without.end(1, s(61));
        assert!(!tries(&mut without, 8, true, s(60)), "too early");
        assert!(!tries(&mut without, 8, false, s(61)), "a breaker is not closed");
        assert!(tries(&mut without, 8, true, s(61)));
        assert!(!tries(&mut without, 9, true, s(120)), "it has called nothing yet");
        let call = without.begin_call(8, 0, s(120));
        without.is_served(8, 0, Served::Called(call), s(120));
        assert!(tries(&mut without, 9, true, s(120)));
        without.end(2, s(120));
        assert!(!tries(&mut without, 10, true, s(179)));
        assert!(tries(&mut without, 10, true, s(180)), "no call in a minute");
        assert!(without.keeps_slots(0, s(180)));
    }

    #[test]
    fn while_one_that_is_tried_does_without_no_other_is() {
        let mut without = running(8);
        (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        (0..3).for_each(|run| without.end(run, s(100)));
        assert!(tries(&mut without, 8, true, s(100)));
        let call = without.begin_call(8, 0, s(100));
        without.fails(8, 0, call, s(100));
        assert!(!tries(&mut without, 9, true, s(3_000)));
        without.end(8, s(3_000));
        assert!(tries(&mut without, 9, true, s(3_000)));
    }

    #[test]
    fn one_with_which_all_slots_might_do_without_is_tried_after_an_hour() {
        let mut without = running(2);
        (0..2).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        without.end(0, s(60));
        let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 1, in_all: 1, serves: true };
        assert!(!without.begin(2, &share, s(3_600)));
        assert!(without.begin(2, &share, s(3_601)));
    }

    #[test]
    fn a_call_that_was_refused_counts_until_one_that_began_later_is_answered() {
        let mut without = running(2);
        without.lacks(0, 0, Lacks::Called, s(1));
        let number = without.begin_call(1, 0, s(1));
        without.lacks(1, 0, Lacks::Refused, s(1));
        // It is the answer that refuses it, and one that came beside it tells nothing.
        without.is_served(1, 0, Served::Called(number), s(1));
        without.is_served(1, 0, Served::Reported, s(1));
        assert!(without.keeps_slots(0, s(3)));
        let number = without.begin_call(1, 0, s(3));
        without.is_served(1, 0, Served::Called(number), s(3));
        without.end(0, s(3));
        assert!(!without.keeps_slots(0, s(13)));
    }
}
