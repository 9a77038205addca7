//! The state that the jobs of all processes share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use reprieve_core::BlobName;

use super::plan::{JobPlan, Nature};

/// The state that the jobs of all processes share.
#[derive(Debug)]
pub(super) struct Village {
    pub(super) jobs: Vec<JobPlan>,
    pub(super) cured: AtomicBool,
    /// The steps at which flaky jobs have failed already.
    failed: Mutex<BTreeSet<(usize, u32)>>,
}

impl Village {
    pub(super) fn new(jobs: Vec<JobPlan>) -> Self {
        Self { jobs, cured: AtomicBool::new(false), failed: Mutex::default() }
    }

    /// Returns whether the job fails at this step now.
    pub(super) fn fails(&self, plan: &JobPlan, at: u32) -> bool {
        match &plan.nature {
            Nature::Fails(step) => *step == at,
            Nature::Curable(step) => *step == at && !self.cured.load(Relaxed),
            Nature::Flaky(steps) if steps.contains(&at) => {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert((plan.number, at))
            }
            Nature::Flaky(_) | Nature::Healthy | Nature::Kills(_) => false,
        }
    }
}

/// Returns the job's number in the plan, from the name of one of its blobs.
pub(super) fn number_in(name: &BlobName) -> usize {
    let digits: String = name.as_str().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(usize::MAX)
}
