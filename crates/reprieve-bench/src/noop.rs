//! No-op jobs, and the figures of a run that enqueues and drains them.

use anyhow::Result;
use reprieve_core::NewJob;
use serde::Deserialize;

use crate::place::job;

/// The length of a no-op job's payload, the same as the peers'.
pub(crate) const PAYLOAD_BYTES: usize = 200;

/// The figures of one run.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Figures {
    /// The time to enqueue one at a time, as an application does.
    pub(crate) enqueue_seconds: f64,
    /// The time to enqueue in batches, where supported.
    #[serde(default)]
    pub(crate) enqueue_batch_seconds: Option<f64>,
    /// The time from starting the worker processes until the last job is done.
    pub(crate) drain_seconds: f64,
    /// The CPU time of all worker processes.
    #[serde(default)]
    pub(crate) cpu_seconds: Option<f64>,
    /// The CPU time of a server.
    #[serde(default)]
    pub(crate) server_cpu_seconds: Option<f64>,
    /// The peak memory of one worker process.
    #[serde(default)]
    pub(crate) rss_bytes: Option<f64>,
    /// The number of completed jobs.
    pub(crate) completed: usize,
}

impl Figures {
    /// Returns the time to enqueue in the fastest way, and to drain.
    pub(crate) fn together_seconds(&self) -> f64 {
        let batch = self.enqueue_batch_seconds.unwrap_or(f64::INFINITY);
        self.enqueue_seconds.min(batch) + self.drain_seconds
    }
}

/// No-op jobs with their payload.
pub(crate) fn noops(count: usize) -> Result<Vec<NewJob>> {
    let payload = "x".repeat(PAYLOAD_BYTES);
    (0..count).map(|_| job("noop", &payload)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_way_to_enqueue_counts() {
        let figures = Figures { enqueue_seconds: 5.0, drain_seconds: 2.0, ..Figures::default() };
        assert!((figures.together_seconds() - 7.0).abs() < 1e-9);
        let batched = Figures { enqueue_batch_seconds: Some(1.0), ..figures };
        assert!((batched.together_seconds() - 3.0).abs() < 1e-9);
        let slowly_batched = Figures { enqueue_batch_seconds: Some(9.0), ..figures };
        assert!((slowly_batched.together_seconds() - 7.0).abs() < 1e-9);
    }
}
