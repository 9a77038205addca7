//! The result of the job `walk` of `test-jobs`.

use serde::{Deserialize, Serialize};

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// A digest of the numbers of all steps: wrong if a step was left out or counted twice.
    pub sum: u64,
    /// The delivery in which it finished.
    pub delivery: u32,
    /// The process that finished it.
    pub pid: u32,
}
