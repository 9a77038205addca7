//! The number of requests, by operation and by the status of their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// The requests since the start, or since the counts were last reset. Each is a storage
/// transaction, answered or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By operation; operations without requests are left out.
    pub operations: BTreeMap<Operation, OperationCounts>,
}

/// The requests for one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCounts {
    /// All requests that arrived.
    pub requests: u64,
    /// The statuses of the answers. A request that is missing here was not answered, or not yet.
    pub statuses: BTreeMap<u16, u64>,
}

impl Counts {
    /// Returns the number of requests for all operations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.operations.values().map(|counts| counts.requests).sum()
    }

    /// Returns the number of requests for this operation.
    #[must_use]
    pub fn requests(&self, operation: Operation) -> u64 {
        self.operations.get(&operation).map_or(0, |counts| counts.requests)
    }

    /// Returns the number of requests for this operation that were answered with this status.
    #[must_use]
    pub fn answered(&self, operation: Operation, status: u16) -> u64 {
        let counts = self.operations.get(&operation);
        counts.and_then(|counts| counts.statuses.get(&status)).copied().unwrap_or(0)
    }

    pub(super) fn count_request(&mut self, operation: Operation) {
        self.operations.entry(operation).or_default().requests += 1;
    }

    pub(super) fn count_answer(&mut self, operation: Operation, status: u16) {
        *self.operations.entry(operation).or_default().statuses.entry(status).or_default() += 1;
    }
}
