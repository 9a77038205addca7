//! The jobs of a replay: they take hours, in steps of about a minute.

use std::future::pending;
use std::time::Duration;

use reprieve_core::{Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::journal::{StepEnd, Witness};

/// The kinds of job. The second has a limit for steps that stand still.
pub(super) const KINDS: [&str; 2] = ["march", "guarded"];

/// How many deliveries of a job may fail without progress.
pub(super) const ATTEMPTS: u32 = 5;

/// A job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct March {
    /// Its number.
    pub number: usize,
    /// Its kind.
    pub kind: usize,
    /// Its steps.
    pub steps: u32,
    /// How long each takes.
    pub step_s: u64,
    /// What is special about it.
    pub habit: Habit,
}

/// What is special about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Habit {
    /// It yields at the end of a step only.
    Plods,
    /// It yields within a step.
    Yields,
    /// It fails so often at this step.
    Fails {
        /// The step.
        at: u32,
        /// How often.
        times: usize,
    },
    /// It panics at this step, each time.
    Panics(u32),
    /// It hangs at this step, once.
    Hangs(u32),
}

/// The checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Place {
    /// The steps that are done; the name is that which the observer of the store reads.
    at: u32,
    sum: u64,
}

/// A kind of job in one process.
#[derive(Debug)]
pub(super) struct Marching<const KIND: usize>(pub(super) Witness);

const fn after(sum: u64, at: u32) -> u64 {
    sum.wrapping_mul(31).wrapping_add(at as u64 + 1)
}

impl March {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}-{}", KINDS[self.kind], self.number)
    }

    /// The result that it must have.
    #[must_use]
    pub fn result(&self) -> u64 {
        (0..self.steps).fold(0, after)
    }
}

/// Notes how a step ended; if nothing else did, it was cut off.
struct Inside<'a> {
    witness: &'a Witness,
    job: usize,
    delivery: u32,
    is_over: bool,
}

impl Inside<'_> {
    fn note(&self, end: StepEnd) {
        self.witness.note(self.job, self.delivery, end);
    }

    fn end(&mut self, end: StepEnd) {
        self.is_over = true;
        self.note(end);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.note(StepEnd::Dropped);
        }
    }
}

#[async_trait::async_trait]
impl<const KIND: usize> Job for Marching<KIND> {
    const KIND: &'static str = KINDS[KIND];
    type Args = March;
    type Checkpoint = Place;
    type Output = u64;

    fn begin(&self, _: &March) -> Place {
        Place { at: 0, sum: 0 }
    }

    async fn step(&self, cx: &JobContext, march: &March, place: Place) -> Result<Step<Place, u64>, JobError> {
        let (witness, job) = (&self.0, march.number);
        let mut inside = Inside { witness, job, delivery: cx.delivery(), is_over: false };
        inside.note(StepEnd::Began);
        match march.habit {
            Habit::Fails { at, times }
                if at == place.at
                    && witness.journal.count(job, |end| end == StepEnd::Failed { last: false }) < times =>
            {
                inside.end(StepEnd::Failed { last: false });
                return Err(JobError::retry(format!("disk quota of tenant {job} is used up")));
            }
            Habit::Panics(at) if at == place.at => {
                let before = witness.journal.count(job, |end| matches!(end, StepEnd::Failed { .. }));
                inside.end(StepEnd::Failed { last: before + 1 == ATTEMPTS as usize });
                panic!("page {job} of the book is missing");
            }
            Habit::Hangs(at)
                if at == place.at && witness.journal.count(job, |end| end == StepEnd::Hung) == 0 =>
            {
                inside.note(StepEnd::Hung);
                pending::<()>().await;
            }
            _ => {}
        }
        tokio::select! {
            biased;
            () = sleep(Duration::from_secs(march.step_s)) => {}
            () = cx.interrupted(), if march.habit == Habit::Yields => {
                inside.end(StepEnd::Yielded);
                return Ok(Step::Continue(place));
            }
        }
        let place = Place { at: place.at + 1, sum: after(place.sum, place.at) };
        if place.at >= march.steps {
            inside.end(StepEnd::JobDone);
            return Ok(Step::Done(place.sum));
        }
        inside.end(StepEnd::Done);
        Ok(Step::Continue(place))
    }
}
