//! The worker's kinds of job, with their types erased. Types are erased only here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::executor::{Execution, RunOutcome, execute};
use crate::job::Job;
use crate::worker::measure::Recent;

/// How long a kind's measurements count: longer than the longest time between two saves.
pub(in crate::worker) const KEPT: Duration = Duration::from_hours(1);

/// One kind of job, as the worker handles it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) schema: u32,
    pub(crate) runnable: Box<dyn Runnable>,
    /// The measured times of checkpoint saves of this kind.
    pub(crate) saves: Recent,
    /// The run times of this kind's jobs that finished in their first delivery.
    pub(crate) runs: Recent,
}

/// A job without its types.
#[async_trait]
pub(crate) trait Runnable: std::fmt::Debug + Send + Sync {
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
pub(in crate::worker) struct Registry(BTreeMap<&'static str, Arc<Kind>>);

impl Registry {
    /// Adds a kind; returns false when one of that name is already registered.
    pub(crate) fn add<J: Job>(&mut self, job: J) -> bool {
        let kind = Kind {
            name: J::KIND,
            schema: J::SCHEMA,
            runnable: Box::new(Typed(job)),
            saves: Recent::new(KEPT),
            runs: Recent::new(KEPT),
        };
        self.0.insert(J::KIND, Arc::new(kind)).is_none()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Kind>> {
        self.0.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
