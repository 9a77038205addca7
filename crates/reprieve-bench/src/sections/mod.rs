//! The sections, one file each, and the code they share.

pub(crate) mod checkpoint;
mod compute;
mod depth;
mod failure;
mod footprint;
mod large;
mod notice;
mod recovery;
mod storage;
mod throughput;

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Result;
use clap::ValueEnum;
use rand::rngs::SmallRng;

use crate::measure::{Kind, Measures};
use crate::peers::Peer;

/// A part of the benchmarks that can run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Enqueues and drains 50,000 no-op jobs, on Reprieve, hand-written SQLite and the peers.
    Throughput,
    /// The cost of a job with 10³, 10⁵ and 10⁶ others waiting.
    Depth,
    /// Kills and stops a job half way, on Reprieve and on the peers.
    Failure,
    /// From a notice until all leases are released.
    Notice,
    /// From a worker's death until another one resumes its job.
    Recovery,
    /// Saving and loading checkpoints by size.
    Checkpoint,
    /// Saves, drains, attachments and memory of jobs with large data.
    Large,
    /// Timers beside jobs that compute, and the cost of a call of `compute`.
    Compute,
    /// An idle worker, a starting one, and the size of the binaries.
    Footprint,
    /// On a storage account: no-op jobs, transactions, notices and checkpoints.
    Storage,
}

impl Section {
    /// Whether the peers take part.
    pub(crate) const fn has_peers(self) -> bool {
        matches!(self, Self::Throughput | Self::Failure)
    }

    /// Whether the peers on storage take part.
    pub(crate) const fn has_storage_peers(self) -> bool {
        matches!(self, Self::Storage)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Depth => "depth",
            Self::Failure => "failure",
            Self::Notice => "notice",
            Self::Recovery => "recovery",
            Self::Checkpoint => "checkpoint",
            Self::Large => "large",
            Self::Compute => "compute",
            Self::Footprint => "footprint",
            Self::Storage => "storage",
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The directory of the trials.
    pub(crate) work: PathBuf,
    /// The requested number of rounds.
    pub(crate) rounds: Option<usize>,
    /// Whether this is a quick run.
    pub(crate) quick: bool,
    pub(crate) peers: Rc<[Peer]>,
    /// The peers that work on a storage account.
    pub(crate) storage_peers: Rc<[Peer]>,
    pub(crate) random: SmallRng,
    pub(crate) measures: Measures,
    pub(crate) not_measured: Vec<String>,
}

impl Bench {
    /// Runs one section. An error ends only that section, and is reported.
    pub(crate) async fn run(&mut self, section: Section) -> Result<()> {
        match section {
            Section::Throughput => throughput::run(self).await,
            Section::Depth => depth::run(self).await,
            Section::Failure => failure::run(self).await,
            Section::Notice => notice::run(self).await,
            Section::Recovery => recovery::run(self).await,
            Section::Checkpoint => checkpoint::run(self).await,
            Section::Large => large::run(self).await,
            Section::Compute => compute::run(self).await,
            Section::Footprint => footprint::run(self).await,
            Section::Storage => Box::pin(storage::run(self)).await,
        }
    }

    /// Returns the number of rounds: the requested number, or the section's own.
    fn rounds(&self, own: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { own })
    }

    /// Returns the full amount, or the amount of a quick run.
    fn amount<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    fn add(&mut self, kind: Kind, value: f64) {
        self.measures.add(kind, value);
    }

    /// Records once that a measurement failed, and reports it.
    pub(crate) fn missed(&mut self, what: &str, error: &anyhow::Error) {
        let line = format!("{what}: {error:#}");
        say(&format!("NOT MEASURED: {line}"));
        if !self.not_measured.contains(&line) {
            self.not_measured.push(line);
        }
    }
}

/// Prints progress to stderr.
#[expect(clippy::print_stderr, reason = "this is a program's way to speak; stdout belongs to the results")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
