//! The worker's kinds of job, with their types erased. Types are erased only here.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::executor::{Execution, RunOutcome, execute};
use crate::job::Job;
use crate::worker::running::Kind;

/// A kind of job, and the job that runs it.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) kind: Arc<Kind>,
    pub(super) runnable: Arc<dyn Runnable>,
}

/// A job without its types.
#[async_trait]
pub(super) trait Runnable: std::fmt::Debug + Send + Sync {
    async fn run(&self, execution: Execution) -> RunOutcome;
}

struct Typed<J>(J);

impl<J: Job> std::fmt::Debug for Typed<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(J::KIND)
    }
}

#[async_trait]
impl<J: Job> Runnable for Typed<J> {
    async fn run(&self, execution: Execution) -> RunOutcome {
        execute(&self.0, execution).await
    }
}

/// The kinds by name.
#[derive(Debug, Default)]
pub(in crate::worker) struct Registry(BTreeMap<&'static str, Registered>);

impl Registry {
    /// Adds a kind; returns false when one of that name is already registered.
    pub(crate) fn add<J: Job>(&mut self, job: J) -> bool {
        let kind = Arc::new(Kind::new(J::KIND, J::SCHEMA));
        self.0.insert(J::KIND, Registered { kind, runnable: Arc::new(Typed(job)) }).is_none()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Registered> {
        self.0.get(name)
    }

    /// Reports whether a kind is registered.
    pub(in crate::worker) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(in crate::worker) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
