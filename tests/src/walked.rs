//! What a walk of `test-jobs` comes to.

use serde::{Deserialize, Serialize};

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// Of the numbers of all steps: wrong if one was left out or counted twice.
    pub sum: u64,
    /// In which delivery it was finished.
    pub delivery: u32,
    /// The process that finished it.
    pub pid: u32,
}
