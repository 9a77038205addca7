//! A simulated process: tasks of a real worker that can be frozen together, or ended.

use std::future::pending;
use std::sync::Arc;

use reprieve_core::BlobName;
use reprieve_core::memory::ManualNotices;
use reprieve_core::process::Gate;
use reprieve_core::worker::Stopper;
use tokio::sync::mpsc;

use super::history::{Cause, What};
use super::link::Link;
use super::plan::{Nature, Where};
use super::village::{Village, number_in};

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) machine: usize,
    pub(super) old: bool,
    pub(super) shards: usize,
    /// It serves the queue to which jobs move that are interrupted too often.
    pub(super) is_calm: bool,
    pub(super) link: Arc<Link>,
    pub(super) notices: ManualNotices,
    pub(super) stopper: Stopper,
    pub(super) village: Arc<Village>,
    pub(super) gate: Gate,
    /// Receives the machine's number when the process ends.
    pub(super) ends: mpsc::UnboundedSender<usize>,
}

impl Process {
    /// Ends the process: none of its tasks runs any more. Requests that it has sent are still under
    /// way.
    pub(super) fn end(&self, cause: Cause) {
        if self.has_ended() {
            return;
        }
        self.link.end();
        self.gate.freeze();
        self.link.note(What::Ended(cause));
        // The world receives these as long as processes exist.
        let _unheard = self.ends.send(self.machine);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    pub(super) fn freeze(&self) {
        self.gate.freeze();
        self.link.note(What::Frozen);
    }

    pub(super) fn thaw(&self) {
        if !self.has_ended() {
            self.link.note(What::Thawed);
            self.gate.thaw();
        }
    }

    /// Notes that the process has read a blob; reading some arguments kills it.
    pub(super) async fn read(&self, name: &BlobName) {
        let job = number_in(name);
        let nature = self.village.jobs.get(job).map(|job| &job.nature);
        if name.as_str().starts_with("args/") && nature == Some(&Nature::Kills(Where::Args)) {
            self.die_of(job).await;
        }
    }

    /// Kills the process on behalf of job `job`.
    pub(super) async fn die_of(&self, job: usize) {
        self.end(Cause::Job(job));
        pending::<()>().await;
    }
}
