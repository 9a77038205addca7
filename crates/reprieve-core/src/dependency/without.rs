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

/// For how long a dependency stays suspected after the last time that many did without for long: first, and at most, where
/// that happens again and again.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// How many calls must have failed in a row, each of which took long, until those that take long are held to be in vain.
const IN_VAIN: u32 = 3;

/// For how long nobody must have begun to do without until one job more than may is tried, and for how long one without a
/// call is on trial at least. If those that may do without had all slots with it, it is tried later.
const QUIET: Duration = Duration::from_mins(1);
const QUIET_FOR_LAST: Duration = Duration::from_hours(1);

/// How many that were tried must have fared well in a row until nothing is suspected any more, as a half-open breaker admits
/// all after so many calls.
const ENOUGH: usize = 32;

/// When the next time is a first one again.
const REMEMBERED: Duration = Duration::from_mins(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Without {
    /// The runs of jobs that use any.
    runs: BTreeMap<u64, Run>,
    slots: usize,
    /// What jobs did without for so long that others waited for their slots, also that of before.
    suspected: BTreeMap<usize, Suspicion>,
    /// What was suspected, and what is so no longer, since this was taken.
    news: Vec<News>,
    /// How many calls have begun.
    calls: u64,
    /// How many calls of each have failed in a row, since the last answer, that took long.
    in_vain: BTreeMap<usize, u32>,
    /// When a job began to do without each last.
    lacked: BTreeMap<usize, Duration>,
    /// Those that have done so since a call was answered. A job that makes none shows too little.
    in_row: BTreeMap<usize, Row>,
}

/// Lacks in a row.
#[derive(Debug, Default)]
struct Row {
    /// How many there were within an hour of each other.
    lacks: u32,
    /// How long after its beginning a job has found out by its first call, at most.
    first_call: Duration,
}

#[derive(Debug)]
struct Run {
    kind: &'static str,
    began: Duration,
    /// How many of its kind may do without at once, and of all.
    of_kind: usize,
    in_all: usize,
    /// It was more than may do without.
    is_tried: bool,
    /// Its step was dropped. Later news of its calls is ignored, and it may still hold its slot.
    is_dropped: bool,
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
    /// Since the last lack of any run, this one has shown that the dependency serves.
    has_shown: bool,
    /// The calls that have no answer yet: their numbers, and when they began.
    calls: Vec<(u64, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Lack {
    since: Duration,
    /// A call of it failed or was not made; otherwise it only looked at the state.
    by_call: bool,
    /// How many calls had begun when one was refused last, if one was: answers to these do not end it.
    refused: Option<u64>,
    /// So many others fared well meanwhile that it counts no more, unless it does without again.
    is_over: bool,
}

/// That a dependency does not serve, although its breaker is closed. Only what shows that it serves ends that: where no job
/// may begin, none can do without.
#[derive(Debug, Clone)]
struct Suspicion {
    since: Duration,
    pause: Duration,
    /// When many did without for long last, whatever it was.
    many: Duration,
    /// When it was seen to serve first since the last lack.
    serves: Option<Duration>,
    /// How many that were tried have shown that since.
    well: usize,
    ended: Option<Duration>,
}

/// What others are to hear of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Suspected(usize),
    Over(usize),
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
    /// There are so many slots.
    pub(super) fn have_slots(&mut self, slots: usize) {
        self.slots = slots;
    }

    /// Whether and how one more job may begin.
    pub(super) fn admits(&self, share: &Share<'_>, now: Duration) -> Option<Begins> {
        let is_away = |used: &usize| share.away.contains(used);
        let of_kind = || self.runs.values().filter(|run| run.kind == share.kind).count();
        if !share.uses.iter().any(is_away) {
            return Some(Begins::InShare);
        }
        let in_all = self.runs.values().filter(|run| run.uses.keys().any(is_away)).count();
        if of_kind() < share.of_kind && in_all < share.in_all && self.leaves_a_slot(in_all + 1, is_away) {
            return Some(Begins::InShare);
        }
        self.may_try(share, now).then_some(Begins::OnTrial)
    }

    /// Whether so many that use what `is_away` leave the others a slot, where some hold theirs that did without something
    /// else before.
    fn leaves_a_slot(&self, count: usize, is_away: impl Fn(&usize) -> bool) -> bool {
        let others = self.runs.values().filter(|run| !run.uses.keys().any(&is_away));
        let forgiven = others.filter(|run| run.is_forgiven()).count();
        forgiven == 0 || count + forgiven < self.slots
    }

    /// Whether one job more than may be is tried: what they do without may be back, and without a call nobody finds out.
    /// The more have fared well, the more are on trial at once.
    fn may_try(&self, share: &Share<'_>, now: Duration) -> bool {
        let in_doubt = || self.runs.values().filter(|run| self.is_in_doubt(run, now));
        let quiet = if in_doubt().count() + 1 < self.slots { QUIET } else { QUIET_FOR_LAST };
        let well = share.uses.iter().filter_map(|used| self.suspicion(*used)).map(|it| it.well).min();
        let on_trial = in_doubt().filter(|run| run.is_tried && self.is_on_trial_for(run, share.uses)).count();
        share.serves
            && share.uses.iter().all(|used| self.is_quiet(*used, quiet, now))
            && on_trial <= well.unwrap_or(0)
    }

    /// Whether it does without, or may have to: it had no answer yet, and waits for one, or has run no longer than others before
    /// the call by which they found out.
    fn is_in_doubt(&self, run: &Run, now: Duration) -> bool {
        run.uses.iter().any(|(used, its)| {
            let first_call = self.in_row.get(used).map_or(Duration::ZERO, |row| row.first_call);
            let is_new = run.began + first_call.clamp(QUIET, QUIET_FOR_LAST) > now;
            let waits = its.calls.iter().any(|(_, began)| *began + LONG <= now);
            its.lack.is_some() || its.answered.is_none() && (is_new || waits)
        })
    }

    /// Whether it was tried for the sake of one of these, and since that is suspected.
    fn is_on_trial_for(&self, run: &Run, uses: &[usize]) -> bool {
        let is_of = |used: &usize| self.suspicion(*used).is_some_and(|it| it.since <= run.began);
        uses.iter().any(|used| run.uses.contains_key(used) && is_of(used))
    }

    fn suspicion(&self, used: usize) -> Option<&Suspicion> {
        self.suspected.get(&used).filter(|it| it.ended.is_none())
    }

    /// A run begins, if it may. Returns whether it does.
    pub(super) fn begin(&mut self, run: u64, share: &Share<'_>, now: Duration) -> bool {
        self.look(now);
        let Some(begins) = self.admits(share, now) else { return false };
        let uses = share.uses.iter().map(|used| (*used, Use::default())).collect();
        let (kind, of_kind, in_all) = (share.kind, share.of_kind, share.in_all);
        let is_tried = begins == Begins::OnTrial;
        self.runs.insert(run, Run { kind, began: now, of_kind, in_all, is_tried, is_dropped: false, uses });
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
        // Until it, or one that began later, was answered it was done without.
        let is_latest = its.answered.is_none_or(|answered| answered < number);
        if let Some(lack) = its.lack.as_mut().filter(|_| is_latest) {
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
        let Some(run) = self.run_in_step(run) else { return };
        let age = now.saturating_sub(run.began);
        let Some(its) = run.uses.get_mut(&used) else { return };
        let is_first = its.lack.is_none() && its.answered.is_none();
        let before = its.current_lack().copied();
        let new = Lack { since: now, by_call: false, refused: None, is_over: false };
        let lack = its.lack.insert(before.unwrap_or(new));
        lack.by_call |= how != Lacks::Looked;
        if how == Lacks::Refused {
            lack.refused = Some(calls);
        }
        if before.is_none() {
            self.note_lack(used, if is_first { age } else { Duration::ZERO }, now);
        }
    }

    /// Counts a lack, and forgets the signs that the dependency serves. `first_call` is how long after its beginning the
    /// run made its first call; zero for a later call.
    fn note_lack(&mut self, used: usize, first_call: Duration, now: Duration) {
        let is_lone = self.is_quiet(used, QUIET_FOR_LAST, now);
        let row = self.in_row.entry(used).or_default();
        row.lacks = if is_lone { 1 } else { row.lacks.saturating_add(1) };
        row.first_call = row.first_call.max(first_call);
        self.lacked.insert(used, now);
        if let Some(suspicion) = self.suspected.get_mut(&used) {
            (suspicion.serves, suspicion.well) = (None, 0);
        }
        self.runs
            .values_mut()
            .filter_map(|run| run.uses.get_mut(&used))
            .for_each(|its| its.has_shown = false);
    }

    /// A run has shown that it serves. One in its share counts if it began when nothing had been lacked for as long as before a
    /// trial: most calls may be answered while the others keep it away.
    fn note_well(&mut self, run: u64, used: usize, now: Duration) {
        let counts =
            self.runs.get(&run).is_some_and(|it| it.is_tried || self.is_quiet(used, QUIET, it.began));
        let Some(suspicion) = self.suspected.get_mut(&used).filter(|it| it.ended.is_none()) else { return };
        let Some(its) = self.runs.get_mut(&run).and_then(|run| run.uses.get_mut(&used)) else { return };
        suspicion.serves.get_or_insert(now);
        suspicion.well += usize::from(counts && !std::mem::replace(&mut its.has_shown, true));
    }

    /// Whether nobody had begun to do without it for this long.
    fn is_quiet(&self, used: usize, quiet: Duration, at: Duration) -> bool {
        self.lacked.get(&used).is_none_or(|lacked| *lacked + quiet <= at)
    }

    /// Whether this is later than the last lack.
    fn is_after_lack(&self, used: usize, at: Duration) -> bool {
        self.lacked.get(&used).is_none_or(|lacked| *lacked < at)
    }

    /// It does so no longer.
    pub(super) fn is_served(&mut self, run: u64, used: usize, how: Served, now: Duration) {
        let ends = |lack: &Lack| match how {
            Served::Looked => !lack.by_call,
            Served::Reported => lack.refused.is_none(),
            Served::Called(number) => lack.refused.is_none_or(|refused| number > refused),
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
        // The answer to a call that was refused tells nothing.
        let does_without = its.lack.is_some();
        if is_answer && !does_without && self.is_after_lack(used, now) {
            self.end_row(used);
            self.note_well(run, used, now);
        }
    }

    /// Ends the row of lacks, because a call was answered. Keeps how late jobs call while any run does without or the
    /// dependency is suspected: calls of other jobs may be answered all that time.
    fn end_row(&mut self, used: usize) {
        let lacks = |run: &Run| run.uses.get(&used).is_some_and(|its| its.current_lack().is_some());
        if self.suspicion(used).is_none() && !self.runs.values().any(lacks) {
            self.in_row.remove(&used);
        } else if let Some(row) = self.in_row.get_mut(&used) {
            row.lacks = 0;
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

    /// Returns the run unless its step was dropped.
    fn run_in_step(&mut self, run: u64) -> Option<&mut Run> {
        self.runs.get_mut(&run).filter(|run| !run.is_dropped)
    }

    fn use_of(&mut self, run: u64, used: usize) -> Option<&mut Use> {
        self.run_in_step(run)?.uses.get_mut(&used)
    }

    /// Its slot is free, or it uses nothing any more.
    pub(super) fn end(&mut self, run: u64, now: Duration) {
        self.drop_step(run, now);
        self.runs.remove(&run);
    }

    /// Ends the step of a run, and its calls with it. Work that the step computes may still hold the slot, so the run counts
    /// as before.
    pub(super) fn drop_step(&mut self, run: u64, now: Duration) {
        self.look(now);
        self.show_what_was_not_lacked(run, now);
        if let Some(run) = self.runs.get_mut(&run) {
            run.is_dropped = true;
            run.uses.values_mut().for_each(|its| its.calls.clear());
        }
    }

    /// What a run has not lacked, and does not wait for, serves as far as this run goes, if it began after the last lack.
    fn show_what_was_not_lacked(&mut self, number: u64, now: Duration) {
        let Some(run) = self.runs.get(&number).filter(|run| !run.is_dropped) else { return };
        let is_shown = |(used, its): &(&usize, &Use)| {
            its.lack.is_none() && its.calls.is_empty() && self.is_after_lack(**used, run.began)
        };
        let shown: Vec<_> = run.uses.iter().filter(is_shown).map(|(used, _)| *used).collect();
        for used in shown {
            self.note_well(number, used, now);
        }
    }

    /// Whether it is suspected not to serve: those that use it have a share of the slots then.
    pub(super) fn suspects(&mut self, used: usize, now: Duration) -> bool {
        self.look(now);
        self.suspicion(used).is_some()
    }

    /// Takes the news.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Returns for how long it has been suspected, and no longer than until one more job is tried.
    pub(super) fn suspected_for(&mut self, used: usize, now: Duration) -> Duration {
        self.look(now);
        self.suspicion(used).map_or(Duration::ZERO, |it| now.saturating_sub(it.since).min(QUIET))
    }

    /// Judges the time since it was called last, before anything changes. Meanwhile those who do without can only have
    /// become more that do so for long.
    fn look(&mut self, now: Duration) {
        let mut long = Long::at(&self.runs, &self.in_vain, now);
        if self.end_suspicions(&long, now) {
            long = Long::at(&self.runs, &self.in_vain, now);
        }
        let are_in_row =
            long.all.of.keys().any(|used| self.in_row.get(used).is_some_and(|row| row.lacks > 1));
        let leave_none = (are_in_row || long.all.runs > 1) && long.leaves_none(self.slots);
        for used in long.too_many(leave_none).flat_map(Count::most_lacked) {
            self.suspect(used, now);
        }
    }

    fn suspect(&mut self, used: usize, now: Duration) {
        if self.suspicion(used).is_some() {
            return;
        }
        let again = self
            .suspected
            .get(&used)
            .filter(|it| it.ended.is_some_and(|ended| now.saturating_sub(ended) < REMEMBERED));
        let pause = again.map_or(PAUSE_MIN, |it| (it.pause * 2).min(PAUSE_MAX));
        let suspicion = Suspicion { since: now, pause, many: now, serves: None, well: 0, ended: None };
        self.suspected.insert(used, suspicion);
        self.news.push(News::Suspected(used));
    }

    /// Ends those that are over. Returns whether some jobs that do without count no more.
    fn end_suspicions(&mut self, long: &Long, now: Duration) -> bool {
        let mut count_fewer = false;
        for (used, it) in self.suspected.iter_mut().filter(|(_, it)| it.ended.is_none()) {
            if long.are_many(*used) {
                it.many = now;
            }
            let lacked = self.lacked.get(used).copied().unwrap_or_default();
            // What a client takes for refused it tells after the answer.
            let serves = it.serves.is_some_and(|since| since + LONG <= now);
            let have_enough_fared_well = it.well >= ENOUGH;
            let is_over = serves && it.many.max(lacked) + it.pause <= now || have_enough_fared_well;
            if is_over {
                it.ended = Some(now);
                self.news.push(News::Over(*used));
            }
            if have_enough_fared_well {
                let lacks = self.runs.values_mut().filter_map(|run| run.uses.get_mut(used)?.lack.as_mut());
                lacks.for_each(|lack| lack.is_over = true);
                count_fewer = true;
            }
        }
        count_fewer
    }
}

impl Run {
    /// Whether it did without something before that was seen to serve.
    fn is_forgiven(&self) -> bool {
        self.uses.values().any(|its| its.lack.as_ref().is_some_and(|lack| lack.is_over))
    }
}

impl Use {
    /// Returns its lack, unless that is over.
    fn current_lack(&self) -> Option<&Lack> {
        self.lack.as_ref().filter(|lack| !lack.is_over)
    }

    /// A call has ended. Returns when it began.
    fn end_call(&mut self, number: u64) -> Option<Duration> {
        let at = self.calls.iter().position(|(call, _)| *call == number)?;
        Some(self.calls.swap_remove(at).1)
    }

    /// Whether its run has done without for long, or waited for an answer `in_vain`.
    fn is_in_want(&self, in_vain: bool, at: Duration) -> bool {
        let mut waits = self.calls.iter().filter(|_| in_vain).map(|(_, began)| *began);
        self.current_lack().is_some_and(|lack| lack.since + LONG <= at)
            || waits.any(|began| began + LONG <= at)
    }
}

fn are_in_vain(in_vain: &BTreeMap<usize, u32>, used: usize) -> bool {
    in_vain.get(&used).is_some_and(|calls| *calls >= IN_VAIN)
}

/// Those that do without for long.
#[derive(Default)]
struct Long {
    /// There may be the least of what their kinds may have in all.
    all: Count,
    kinds: BTreeMap<&'static str, Count>,
    /// Others that did without before it was seen to serve.
    forgiven: usize,
}

/// Some of them.
#[derive(Default)]
struct Count {
    /// Each counts once, however much it does without.
    runs: usize,
    /// How many there may be.
    most: usize,
    /// How many lack each.
    of: BTreeMap<usize, usize>,
}

impl Long {
    fn at(runs: &BTreeMap<u64, Run>, in_vain: &BTreeMap<usize, u32>, at: Duration) -> Self {
        let mut long = Self::default();
        for run in runs.values() {
            let is_lacked = |(used, its): &(&usize, &Use)| its.is_in_want(are_in_vain(in_vain, **used), at);
            let lacked: Vec<_> = run.uses.iter().filter(is_lacked).map(|(used, _)| *used).collect();
            if lacked.is_empty() {
                long.forgiven += usize::from(run.is_forgiven());
                continue;
            }
            long.all.add(run.in_all, &lacked);
            long.kinds.entry(run.kind).or_default().add(run.of_kind, &lacked);
        }
        long
    }

    /// Those that are more than may be, so that others wait for their slots: all, or those of a kind. All are where they
    /// `leave_none`.
    fn too_many(&self, leave_none: bool) -> impl Iterator<Item = &Count> {
        let all = (leave_none || self.all.is_too_many()).then_some(&self.all);
        all.into_iter().chain(self.kinds.values().filter(|kind| kind.is_too_many()))
    }

    /// Whether they leave the others no slot beside those that were forgiven, and may have fewer than all: one slot can't be
    /// shared.
    fn leaves_none(&self, slots: usize) -> bool {
        self.all.most < slots && self.all.runs + self.forgiven >= slots
    }

    /// Whether they are at least half of those that may be: all, or those of a kind that lacks this.
    fn are_many(&self, used: usize) -> bool {
        self.all.are_many() || self.kinds.values().any(|kind| kind.of.contains_key(&used) && kind.are_many())
    }
}

impl Count {
    fn add(&mut self, most: usize, lacked: &[usize]) {
        self.most = if self.runs == 0 { most } else { self.most.min(most) };
        self.runs += 1;
        for used in lacked {
            *self.of.entry(*used).or_default() += 1;
        }
    }

    fn is_too_many(&self) -> bool {
        self.runs > self.most
    }

    fn are_many(&self) -> bool {
        self.runs > 0 && self.runs.saturating_mul(2) >= self.most
    }

    /// What at least half of an equal part lack: one job that calls without success must not keep its whole kind waiting while
    /// something else is away.
    fn most_lacked(&self) -> impl Iterator<Item = usize> {
        let counts = |lacking: usize| lacking * self.of.len() * 2 >= self.runs;
        self.of.iter().filter(move |(_, lacking)| counts(**lacking)).map(|(used, _)| *used)
    }
}

#[cfg(test)]
mod tests;
