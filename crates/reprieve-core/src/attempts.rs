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

/// The counts as they were when the checkpoint last moved, from its header; zero before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Baseline {
    /// [`Attempts::crashed`] then.
    pub crashed: u32,
    /// [`Attempts::interrupted`] then.
    pub interrupted: u32,
}

impl Attempts {
    /// Earlier deliveries that nobody accounted for: the process died, or lost its lease.
    #[must_use]
    pub const fn crashed(&self) -> u32 {
        let known = self.failed.saturating_add(self.interrupted).saturating_add(self.deferred);
        self.dequeues.saturating_sub(1).saturating_sub(known)
    }

    /// The counts to remember when the checkpoint moves in this delivery.
    #[must_use]
    pub const fn baseline(&self) -> Baseline {
        Baseline { crashed: self.crashed(), interrupted: self.interrupted }
    }

    /// Says whether the job may run again.
    ///
    /// # Errors
    /// One sentence for the poison queue, when it may not.
    pub fn judge(&self, since: Baseline) -> Result<(), String> {
        let crashed = self.crashed().saturating_sub(since.crashed);
        let stalled = self.interrupted.saturating_sub(since.interrupted);
        if crashed > CRASHED_MAX {
            Err(format!(
                "{crashed} deliveries ended with the worker's death or a lost lease and no progress saved; \
                 look for a crash in this job, or save checkpoints more often"
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
        self.failed + 1 >= FAILED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dequeues: u32, failed: u32, interrupted: u32, since: (u32, u32), ok: bool) {
        let attempts = Attempts { dequeues, failed, interrupted, deferred: 0 };
        let since = Baseline { crashed: since.0, interrupted: since.1 };
        assert_eq!(attempts.judge(since).is_ok(), ok, "{attempts:?} since {since:?}");
    }

    #[test]
    fn interruptions_cost_no_attempt_while_the_checkpoint_moves() {
        check(101, 0, 100, (0, 95), true);
        check(101, 0, 100, (0, 89), false);
    }

    #[test]
    fn crashes_are_what_no_counter_explains_and_count_only_without_progress() {
        check(4, 0, 0, (0, 0), true);
        check(5, 0, 0, (0, 0), false);
        check(50, 0, 0, (47, 0), true);
        check(9, 2, 6, (0, 0), true);
    }

    #[test]
    fn the_fifth_failure_is_the_last() {
        let at = |failed| Attempts { dequeues: failed + 1, failed, interrupted: 0, deferred: 0 };
        assert!(!at(3).exhausted_by_one_more_failure());
        assert!(at(4).exhausted_by_one_more_failure());
    }

    #[test]
    fn counters_that_disagree_with_the_queue_never_underflow() {
        assert_eq!(Attempts { dequeues: 1, failed: 7, interrupted: 9, deferred: u32::MAX }.crashed(), 0);
    }
}
