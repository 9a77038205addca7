//! A job's account: how its deliveries ended since it last moved, and the limits.

use serde::{Deserialize, Serialize};

use crate::clock::unix_millis;
use crate::ids::{MessageId, WorkerId};
use crate::shorten::shorten;

/// How many deliveries of a job may fail without a move, unless its kind has other limits. WebJobs and Functions use 5 as well.
/// <https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings>
pub const FAILED_MAX: u32 = 5;

/// How many deliveries may block a thread of their worker for longer than their kind allows, without a move. Each
/// takes a slot along.
pub const BLOCKED_MAX: u32 = 3;

/// How many failed deliveries of a job may be excused without a move, because something that it needs refused a call
/// of its step although it serves otherwise: with the pauses of retries, by default more than eight hours, a night.
/// Then its failures count, as the refusals may be its own fault.
pub const EXCUSED_MAX: u32 = 100;

/// How many deliveries may vanish (their process died) without a move, when the last death is
/// proved on the job.
pub const VANISHED_MAX: u32 = 3;

/// How many deliveries may vanish in total without a move. After the second, a death counts towards
/// [`VANISHED_MAX`] only if the job ran alone. This limit stops jobs that can't be isolated. It is
/// high, because a sound job may be beside a killer until each job of its worker was alone once.
pub const VANISHED_UNPROVED_MAX: u32 = 100;

/// How often a job may survive its time alone, which doubles, and vanish later nevertheless.
const SURVIVED_MAX: u32 = 20;

/// How often a suspect is deferred because the other jobs of its worker did not rest in time. After
/// that it runs beside them, and its death proves nothing.
pub const CROWDED_MAX: u32 = 3;

/// How many ends an account lists. Older ones are only counted.
const RECENT_MAX: usize = 8;

/// How many ends a message's body carries at most. Of many deferrals, the first and the last few
/// are informative enough.
const ENDS_MAX: usize = 8;

/// The longest reason of an end, in bytes of JSON, to keep records small.
const WHY_BYTES_MAX: usize = 200;

/// How one delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndKind {
    /// The job failed.
    Failed,
    /// The attempt of the job took longer than its timeout.
    TimedOut,
    /// The delivery was released because of an interruption, or its process died while the job
    /// rested.
    Interrupted,
    /// The process died.
    Vanished,
    /// The lease was lost, but the process lived.
    Lost,
    /// The delivery was released before it had run a step.
    Deferred,
    /// The delivery was released because the job had to run alone and the other jobs did not rest
    /// in time.
    Crowded,
}

/// The end of one delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The message that was delivered.
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Its dequeue count.
    #[serde(rename = "count")]
    pub count: u32,
    /// How the delivery ended.
    #[serde(rename = "how")]
    pub kind: EndKind,
    /// The worker that held it.
    #[serde(rename = "by")]
    pub worker: WorkerId,
    /// When, in milliseconds since the Unix epoch, by the clock of the worker that recorded it.
    #[serde(rename = "at")]
    pub at_unix_ms: i64,
    /// The reason, in one sentence; may be empty.
    #[serde(rename = "why", default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Steps that were finished but not saved when the job failed. The next delivery saves after
    /// each step, for one step more than this.
    #[serde(rename = "unsaved", default, skip_serializing_if = "super::is_default")]
    pub unsaved_steps: u32,
    /// How long the attempt had run by then, in milliseconds, if its time is limited and was not saved.
    #[serde(rename = "ran", default, skip_serializing_if = "super::is_default")]
    pub ran_ms: u64,
    /// Whether the job failed because its step blocked its thread for longer than its kind allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// Whether the job failed, and is excused because something that it needs refused a call of its step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excused: bool,
    /// Whether the job moved in this delivery, and that is saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

impl End {
    /// The end of the delivery of `message` with dequeue count `count` to `worker`, recorded now.
    pub(crate) fn now(message: &MessageId, count: u32, worker: &WorkerId, kind: EndKind, why: &str) -> Self {
        let mut why = why.to_owned();
        shorten(&mut why, WHY_BYTES_MAX);
        let (message, worker) = (message.clone(), worker.clone());
        let at_unix_ms = unix_millis();
        let (unsaved_steps, ran_ms) = (0, 0);
        let (blocked, excused, moved) = (false, false, false);
        Self { message, count, kind, worker, at_unix_ms, why, unsaved_steps, ran_ms, blocked, excused, moved }
    }

    /// Adds this end to the ends in a message's body.
    pub(crate) fn append_to(self, ends: &mut Vec<Self>) {
        ends.retain(|known| (known.count, &known.message) != (self.count, &self.message));
        if ends.len() >= ENDS_MAX {
            // Those that count are kept for longest.
            let kept = ends.iter().skip(1).take_while(|end| end.excused).count();
            ends.remove(if kept + 1 < ends.len() { kept + 1 } else { 1 });
        }
        ends.push(self);
    }
}

/// Whether other jobs ran beside an owner, which decides what the owner's death proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Company {
    /// Other jobs of the same process ran beside it.
    #[default]
    Shared,
    /// It ran alone: the other jobs had saved and rested.
    Alone,
    /// It rested, with its progress saved.
    Resting,
}

/// How a job's deliveries ended since it last moved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Deliveries that failed.
    #[serde(skip_serializing_if = "super::is_default")]
    pub failed: u32,
    /// Of the failed deliveries, and those that timed out, the ones whose steps blocked their threads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub blocked: u32,
    /// Of the deferred deliveries, those that failed and were excused.
    #[serde(skip_serializing_if = "super::is_default")]
    pub excused: u32,
    /// Deliveries that were interrupted.
    #[serde(skip_serializing_if = "super::is_default")]
    pub interrupted: u32,
    /// Of the interrupted deliveries, those in which the job had not moved.
    #[serde(skip_serializing_if = "super::is_default")]
    pub unmoved: u32,
    /// Deliveries that vanished and count towards [`VANISHED_MAX`].
    #[serde(skip_serializing_if = "super::is_default")]
    pub vanished: u32,
    /// Deliveries that vanished otherwise: after the second death, while other jobs ran.
    #[serde(skip_serializing_if = "super::is_default")]
    pub vanished_unproved: u32,
    /// Deliveries that lost their lease.
    #[serde(skip_serializing_if = "super::is_default")]
    pub lost: u32,
    /// Deliveries that were deferred.
    #[serde(skip_serializing_if = "super::is_default")]
    pub deferred: u32,
    /// Deliveries that were deferred because the job could not run alone.
    #[serde(skip_serializing_if = "super::is_default")]
    pub crowded: u32,
    /// How often the job ran alone for the required time without a death.
    #[serde(skip_serializing_if = "super::is_default")]
    pub survived: u32,
    /// Attempts that took longer than the job's timeout. A move does not clear these.
    #[serde(skip_serializing_if = "super::is_default")]
    pub timed_out: u32,
    /// The latest ends, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<End>,
}

impl Account {
    /// Whether the account lists the end of this delivery.
    #[must_use]
    pub fn holds(&self, message: &MessageId, count: u32) -> bool {
        self.recent.iter().any(|end| end.count == count && end.message == *message)
    }

    /// Enters an end, unless the account lists one of this delivery already. `company` is how a
    /// vanished delivery ran.
    pub fn enter(&mut self, mut end: End, company: Company) {
        if self.holds(&end.message, end.count) {
            return;
        }
        if end.kind == EndKind::Vanished && company == Company::Resting {
            end.kind = EndKind::Interrupted;
        }
        if end.kind == EndKind::Interrupted && !end.moved {
            self.unmoved = self.unmoved.saturating_add(1);
        }
        self.blocked = self.blocked.saturating_add(u32::from(end.blocked));
        self.excused = self.excused.saturating_add(u32::from(end.excused));
        let number = match end.kind {
            EndKind::Failed => &mut self.failed,
            EndKind::TimedOut => &mut self.timed_out,
            EndKind::Interrupted => &mut self.interrupted,
            EndKind::Vanished if self.is_suspect() && company != Company::Alone => {
                &mut self.vanished_unproved
            }
            EndKind::Vanished => &mut self.vanished,
            EndKind::Lost => &mut self.lost,
            EndKind::Deferred => &mut self.deferred,
            EndKind::Crowded => &mut self.crowded,
        };
        *number = number.saturating_add(1);
        if end.kind == EndKind::Vanished {
            // Another process has other jobs, which may rest in time.
            self.crowded = 0;
        }
        shorten(&mut end.why, WHY_BYTES_MAX);
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(end);
    }

    /// Replaces a wrongly recorded death by `end`, which the process itself reports. Returns false
    /// when the account lists no such death, or no longer.
    pub(crate) fn correct(&mut self, end: &End) -> bool {
        let is_it = |known: &&mut End| {
            known.kind == EndKind::Vanished && known.count == end.count && known.message == end.message
        };
        let Some(known) = self.recent.iter_mut().find(is_it) else { return false };
        *known = end.clone();
        // The counter in which the death was counted is not known. The first deaths always count as
        // proved.
        let number =
            if self.vanished_unproved > 0 { &mut self.vanished_unproved } else { &mut self.vanished };
        *number = number.saturating_sub(1);
        self.lost = self.lost.saturating_add(1);
        true
    }

    /// Whether the job must run alone: it vanished so often without a move that the next death
    /// counts as its own.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.vanished + 1 >= VANISHED_MAX
    }

    /// How many times longer than at first a suspect waits until it can be alone, and is alone:
    /// twice as long after each death beside other jobs, which proved nothing. So it outlasts the
    /// steps of its neighbours and its own in the end, however long they are.
    pub(crate) const fn isolation_factor(&self) -> u32 {
        const DOUBLINGS_MAX: u32 = 16;
        let doublings = self.vanished_unproved;
        1 << if doublings < DOUBLINGS_MAX { doublings } else { DOUBLINGS_MAX }
    }

    /// Whether the next failure is the last of so many `attempts`.
    #[must_use]
    pub const fn is_exhausted_by_one_more_failure(&self, attempts: u32) -> bool {
        self.failed.saturating_add(1) >= attempts
    }

    /// Checks whether the job may run again.
    ///
    /// # Errors
    /// The reason for the dead letter, in one sentence, when it may not.
    pub fn judge(&self) -> Result<(), String> {
        let all = self.vanished.saturating_add(self.vanished_unproved);
        if self.vanished >= VANISHED_MAX {
            return Err(format!(
                "{all} deliveries ended with the death of their worker and no progress, the last one while this job ran \
                 alone; look for a crash or too little memory in this job"
            ));
        }
        if all >= VANISHED_UNPROVED_MAX || self.vanished_unproved.min(self.survived) >= SURVIVED_MAX {
            return Err(format!(
                "{all} deliveries ended with the death of their worker and no progress; look for a crash in this job, or \
                 make its steps shorter than the time its machines live"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(count: u32, kind: EndKind) -> End {
        End {
            message: MessageId::new("m"),
            count,
            kind,
            worker: WorkerId::new("w"),
            at_unix_ms: 0,
            why: String::new(),
            unsaved_steps: 0,
            ran_ms: 0,
            blocked: false,
            excused: false,
            moved: false,
        }
    }

    /// Plays deliveries that end as `ends` lists: `x` vanished beside other jobs, `X` alone, `r`
    /// resting, `f` failed, `i` interrupted. Returns how many began before one was refused.
    fn play(ends: &str) -> usize {
        let mut account = Account::default();
        for (begun, (letter, count)) in ends.chars().zip(1..).enumerate() {
            if account.judge().is_err()
                || (letter == 'f' && account.is_exhausted_by_one_more_failure(FAILED_MAX))
            {
                return begun;
            }
            let (kind, company) = match letter {
                'x' => (EndKind::Vanished, Company::Shared),
                'X' => (EndKind::Vanished, Company::Alone),
                'r' => (EndKind::Vanished, Company::Resting),
                'f' => (EndKind::Failed, Company::Shared),
                _ => (EndKind::Interrupted, Company::Shared),
            };
            account.enter(end(count, kind), company);
        }
        ends.len()
    }

    #[test]
    fn an_end_that_is_excused_is_counted_after_many_deferrals() {
        let mut ends = Vec::new();
        for count in 1..100 {
            end(count, EndKind::Deferred).append_to(&mut ends);
            if count % 10 == 2 && count < 60 {
                End { excused: true, ..end(count, EndKind::Deferred) }.append_to(&mut ends);
            }
        }
        let mut account = Account::default();
        for end in ends {
            account.enter(end, Company::Shared);
        }
        assert_eq!((account.excused, account.deferred), (6, 8));
    }

    #[test]
    fn the_third_death_counts_only_when_the_job_was_alone() {
        assert_eq!(play("xxXxxx"), 3);
        assert_eq!(play("xxxxX.........."), 5);
        assert_eq!(play(&"x".repeat(150)), 100);
        assert_eq!(play("XXXX"), 3);
    }

    #[test]
    fn a_suspect_gets_twice_the_time_after_each_death_in_company() {
        let factor =
            |vanished_unproved| Account { vanished_unproved, ..Account::default() }.isolation_factor();
        assert_eq!([0, 1, 2, 8, 12, 13, u32::MAX].map(factor), [1, 2, 4, 256, 4_096, 8_192, 65_536]);
    }

    #[test]
    fn a_job_that_dies_after_twenty_times_alone_is_refused() {
        for (vanished_unproved, survived, refused) in [(19, 30, false), (60, 19, false), (20, 20, true)] {
            let account = Account { vanished_unproved, survived, ..Account::default() };
            assert_eq!(
                account.judge().is_err(),
                refused,
                "{vanished_unproved} deaths, {survived} times alone"
            );
        }
    }

    #[test]
    fn a_death_while_the_job_rested_is_an_interruption() {
        assert_eq!(play(&"r".repeat(50)), 50);
        assert_eq!(play("xrrrxrrrX."), 9);
    }

    #[test]
    fn a_death_that_its_process_denies_counts_no_more() {
        let mut account = Account::default();
        for count in 1..=3 {
            account.enter(end(count, EndKind::Vanished), Company::Shared);
        }
        assert_eq!((account.vanished, account.vanished_unproved), (2, 1));
        for count in [2, 3, 1] {
            assert!(account.correct(&end(count, EndKind::Lost)));
            assert!(!account.correct(&end(count, EndKind::Lost)), "once");
        }
        assert_eq!((account.vanished, account.vanished_unproved, account.lost), (0, 0, 3));
        assert!(!account.correct(&end(4, EndKind::Lost)), "it is not known");
    }

    #[test]
    fn interruptions_never_refuse_and_the_fifth_failure_is_the_last() {
        assert_eq!(play(&"i".repeat(500)), 500);
        assert_eq!(play("fififififififi"), 8);
    }

    #[test]
    fn interruptions_are_counted_also_by_whether_the_job_had_moved() {
        let mut account = Account::default();
        account.enter(End { moved: true, ..end(1, EndKind::Interrupted) }, Company::Shared);
        account.enter(end(2, EndKind::Interrupted), Company::Shared);
        assert_eq!((account.interrupted, account.unmoved), (2, 1));
    }

    #[test]
    fn a_delivery_ends_once_and_reasons_are_cut() {
        let mut account = Account::default();
        account.enter(End { why: "é".repeat(400), ..end(1, EndKind::Failed) }, Company::Shared);
        account.enter(end(1, EndKind::Vanished), Company::Shared);
        assert_eq!((account.failed, account.vanished, account.recent.len()), (1, 0, 1));
        assert!(account.recent[0].why.len() <= WHY_BYTES_MAX + 3);
    }

    #[test]
    fn numbers_at_their_limit_do_not_overflow() {
        let mut account = Account { failed: u32::MAX, vanished_unproved: u32::MAX, ..Account::default() };
        account.enter(end(1, EndKind::Failed), Company::Shared);
        assert!(account.is_exhausted_by_one_more_failure(FAILED_MAX));
        assert!(account.judge().is_err());
    }
}
