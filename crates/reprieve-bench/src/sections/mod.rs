//! What is measured, a file for each section, and what the sections share.

pub(crate) mod checkpoint;
mod depth;
mod failure;
mod footprint;
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

/// A part of the benchmarks that can be run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// 50,000 no-op jobs, enqueued and drained, beside SQLite by hand and the peers.
    Throughput,
    /// What a job costs with 10³, 10⁵ and 10⁶ others waiting.
    Depth,
    /// A job killed and stopped half way, on ours and on the peers.
    Failure,
    /// From a notice until all leases are released.
    Notice,
    /// From the death of a worker until another one goes on.
    Recovery,
    /// Saving and loading checkpoints by size.
    Checkpoint,
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

    /// Whether the peers on storage do.
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
            Self::Footprint => "footprint",
            Self::Storage => "storage",
        }
    }
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct Bench {
    /// Where the trials have their places.
    pub(crate) work: PathBuf,
    /// How many rounds were asked for.
    pub(crate) rounds: Option<usize>,
    /// Whether the benchmarks are only tried out.
    pub(crate) quick: bool,
    pub(crate) peers: Rc<[Peer]>,
    /// Those that work on a storage account.
    pub(crate) storage_peers: Rc<[Peer]>,
    pub(crate) random: SmallRng,
    pub(crate) measures: Measures,
    pub(crate) not_measured: Vec<String>,
}

impl Bench {
    /// Runs one section. What fails in it is told and left out; the error of a section ends that section only.
    pub(crate) async fn run(&mut self, section: Section) -> Result<()> {
        match section {
            Section::Throughput => throughput::run(self).await,
            Section::Depth => depth::run(self).await,
            Section::Failure => failure::run(self).await,
            Section::Notice => notice::run(self).await,
            Section::Recovery => recovery::run(self).await,
            Section::Checkpoint => checkpoint::run(self).await,
            Section::Footprint => footprint::run(self).await,
            Section::Storage => Box::pin(storage::run(self)).await,
        }
    }

    /// How many rounds: those that were asked for, or this section's own number.
    fn rounds(&self, own: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { own })
    }

    /// The full amount, or the one for trying out.
    fn amount<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    fn add(&mut self, kind: Kind, value: f64) {
        self.measures.add(kind, value);
    }

    /// Notes that something could not be measured, once, and says so.
    pub(crate) fn missed(&mut self, what: &str, error: &anyhow::Error) {
        let line = format!("{what}: {error:#}");
        say(&format!("NOT MEASURED: {line}"));
        if !self.not_measured.contains(&line) {
            self.not_measured.push(line);
        }
    }
}

/// Says what is under way to whoever waits.
#[expect(clippy::print_stderr, reason = "this is a program's way to speak; stdout belongs to the results")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
