//! Jobs, and the queues in which they and slots wait for each other.

use std::collections::VecDeque;

/// The jobs of a run.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) states: Vec<Job>,
    /// Jobs of the fleet's queue.
    fleet: Queue,
    /// Jobs of the queue that only regular machines serve.
    swap: Queue,
    /// Those that are not done.
    pub(super) left: u64,
    /// Those of them that moved to the other queue.
    moved: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The work that is not saved.
    pub(super) left_ms: u64,
    /// Whether there is a state to restore.
    pub(super) is_saved: bool,
    /// How often it was interrupted since it last saved something.
    pub(super) interruptions: u32,
    /// Whether its worker died since then.
    pub(super) is_careful: bool,
    pub(super) home: Home,
}

/// Which machines a job runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Fleet,
    /// The fleet; the worker that receives it next moves it.
    Leaving,
    /// Regular machines for jobs that moved.
    Regular,
}

/// Jobs that can be received, and slots that wait for one.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<usize>,
    /// Slots, with the epoch of their machine: a slot of an earlier one is gone.
    pub(super) free: Vec<(usize, u32, usize)>,
}

impl Jobs {
    pub(super) fn new(jobs_ms: &[u64]) -> Self {
        let job = |left_ms: &u64| Job {
            left_ms: *left_ms,
            is_saved: false,
            interruptions: 0,
            is_careful: false,
            home: Home::Fleet,
        };
        let states: Vec<_> = jobs_ms.iter().map(job).collect();
        let fleet = Queue { jobs: (0..states.len()).collect(), ..Queue::default() };
        Self { left: states.len() as u64, moved: 0, states, fleet, swap: Queue::default() }
    }

    pub(super) const fn are_done(&self) -> bool {
        self.left == 0
    }

    /// The messages of the fleet's queue: jobs that wait there or run.
    pub(super) const fn of_fleet(&self) -> u64 {
        self.left - self.moved
    }

    /// Moves a job to the queue that only regular machines serve.
    pub(super) fn move_away(&mut self, job: usize) {
        self.states[job].home = Home::Regular;
        self.moved += 1;
    }

    /// Counts a job as done.
    pub(super) fn finish(&mut self, job: usize) {
        self.states[job].left_ms = 0;
        self.left -= 1;
        self.moved -= u64::from(self.states[job].home == Home::Regular);
    }

    /// The moved jobs that wait for a machine.
    pub(super) fn waiting_for_swap(&self) -> usize {
        self.swap.jobs.len()
    }

    pub(super) fn queue(&mut self, of_swap: bool) -> &mut Queue {
        if of_swap { &mut self.swap } else { &mut self.fleet }
    }
}
