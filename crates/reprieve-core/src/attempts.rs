//! How often a job may come back, and why that is not its dequeue count: evictions and crashes are dequeues too.

/// Deliveries that may end in a failure of the job before it is dead-lettered. WebJobs and Functions use 5 as well.
/// <https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings>
pub const FAILED_MAX: u32 = 5;

/// Deliveries that may vanish (a process killed without notice) without the checkpoint having moved. Three unannounced
/// losses in a row at one place are more likely the job's doing than the platform's.
pub const CRASHED_MAX: u32 = 3;

/// Deliveries that may be interrupted without the checkpoint having moved. Such a job has steps longer than this fleet's
/// machines live, and would otherwise go round for ever.
pub const STALLED_MAX: u32 = 10;

/// What is known of a job's earlier deliveries when one more has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    /// The queue's dequeue count, this delivery included.
    pub dequeues: u32,
    /// Deliveries that ended in a failure, from the envelope.
    pub failed: u32,
    /// Deliveries that were cut short, from the envelope.
    pub interrupted: u32,
    /// Deliveries that were given back before a step of them had run, from the envelope.
    pub deferred: u32,
}

/// What a job's checkpoint remembers of its deliveries; all zero before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Baseline {
    /// Deliveries that began and vanished since the job last moved.
    pub crashed: u32,
    /// [`Attempts::interrupted`] when the job last moved.
    pub interrupted: u32,
    /// [`Attempts::accounted`] when this was saved. While that stays the same, whoever saved it has vanished.
    pub accounted: u32,
}

impl Attempts {
    /// Deliveries whose end was written into the envelope.
    #[must_use]
    pub const fn accounted(&self) -> u32 {
        self.failed.saturating_add(self.interrupted).saturating_add(self.deferred)
    }

    /// What to remember when the job moves in this delivery.
    #[must_use]
    pub const fn moved(&self) -> Baseline {
        Baseline { crashed: 0, interrupted: self.interrupted, accounted: self.accounted() }
    }

    /// What to remember when this delivery begins where `last`, the newest checkpoint, says that an earlier one was.
    ///
    /// Deliveries that never began are no crashes, however many there were: an answer that was lost, or a worker killed
    /// while the message waited for a slot. So the dequeue count alone counts once, before there is a checkpoint.
    #[must_use]
    pub fn begun(&self, last: Option<Baseline>) -> Baseline {
        let accounted = self.accounted();
        let Some(last) = last else {
            let vanished = self.dequeues.saturating_sub(1) > accounted;
            return Baseline { crashed: u32::from(vanished), interrupted: 0, accounted };
        };
        let vanished = accounted <= last.accounted;
        let crashed = last.crashed.saturating_add(u32::from(vanished));
        Baseline { crashed, interrupted: last.interrupted, accounted }
    }

    /// Says whether the job may run again, beginning as [`begun`](Self::begun) says.
    ///
    /// # Errors
    /// One sentence for the poison queue, when it may not.
    pub fn judge(&self, begun: Baseline) -> Result<(), String> {
        let stalled = self.interrupted.saturating_sub(begun.interrupted);
        if begun.crashed > CRASHED_MAX {
            Err(format!(
                "{} deliveries ended with the worker's death or a lost lease and no progress saved; \
                 look for a crash in this job, or save checkpoints more often",
                begun.crashed
            ))
        } else if stalled > STALLED_MAX {
            Err(format!(
                "{stalled} deliveries were interrupted at the same checkpoint; \
                 make the job's steps shorter than the time its machines live"
            ))
        } else {
            Ok(())
        }
    }

    /// Whether a failure now, on top of those before, is the last.
    #[must_use]
    pub const fn exhausted_by_one_more_failure(&self) -> bool {
        self.failed.saturating_add(1) >= FAILED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(dequeues: u32, failed: u32, interrupted: u32) -> Attempts {
        Attempts { dequeues, failed, interrupted, deferred: 0 }
    }

    /// Plays deliveries that each begin and then end as `ends` says: `i` interrupted, `f` failed, `x` vanished; in
    /// capitals after the job has moved. Returns how many began before one was refused.
    fn play(ends: &str) -> usize {
        let (mut at, mut last) = (attempts(0, 0, 0), None);
        for (begun, end) in ends.chars().enumerate() {
            at.dequeues += 1;
            let since = at.begun(last);
            if at.judge(since).is_err() {
                return begun;
            }
            // A first delivery makes no claim.
            last = if end.is_uppercase() {
                Some(at.moved())
            } else if at.dequeues > 1 {
                Some(since)
            } else {
                last
            };
            match end.to_ascii_lowercase() {
                'i' => at.interrupted += 1,
                'f' => at.failed += 1,
                _ => {}
            }
        }
        ends.len()
    }

    #[test]
    fn interruptions_cost_nothing_while_the_job_moves() {
        assert_eq!(play(&"I".repeat(200)), 200);
        assert_eq!(play(&"i".repeat(20)), 11);
        assert_eq!(play(&("I".to_owned() + &"i".repeat(20))), 11);
    }

    #[test]
    fn vanishing_is_a_crash_until_the_job_moves() {
        assert_eq!(play("xxxxxx"), 4);
        assert_eq!(play(&"xxX".repeat(20)), 60);
        assert_eq!(play("ixixixixixix"), 8, "other ends between do not excuse it");
    }

    #[test]
    fn deliveries_that_never_began_are_no_crashes() {
        let at = attempts(200, 0, 0);
        assert_eq!(at.judge(at.begun(None)), Ok(()));
    }

    #[test]
    fn the_fifth_failure_is_the_last() {
        assert!(!attempts(4, 3, 0).exhausted_by_one_more_failure());
        assert!(attempts(5, 4, 0).exhausted_by_one_more_failure());
    }

    #[test]
    fn counters_that_disagree_with_the_queue_never_overflow() {
        let at = Attempts { dequeues: 1, failed: u32::MAX, interrupted: u32::MAX, deferred: u32::MAX };
        assert_eq!(at.begun(None).crashed, 0);
        assert!(at.exhausted_by_one_more_failure());
    }
}
