//! What all jobs of a worker share, such as a pool of connections or a model: made once, before the
//! first job, and dropped at the worker's end.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use crate::ids::WorkerId;

/// A value that all jobs of a worker share.
struct State {
    name: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

/// The values in the order in which they were made. The last clone drops them in the reverse order,
/// because a value may use those that were made before it.
#[derive(Clone, Default)]
pub(crate) struct SharedStates(Arc<Made>);

#[derive(Clone, Default)]
struct Made(Vec<Arc<State>>);

impl Drop for Made {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

impl SharedStates {
    /// Adds a value after all others. There is none of its type yet.
    pub(crate) fn push<T: Send + Sync + 'static>(&mut self, value: T) {
        let state = State { name: type_name::<T>(), value: Box::new(value) };
        Arc::make_mut(&mut self.0).0.push(Arc::new(state));
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.0.len()
    }

    /// Returns the value of type `T`.
    ///
    /// # Panics
    /// When there is none: a mistake of the program, which a test of the job finds.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> &T {
        self.0.0.iter().find_map(|state| state.value.downcast_ref()).unwrap_or_else(|| {
            let name = type_name::<T>();
            panic!("the worker shares no {name}; add one with .share(…) where its jobs are added")
        })
    }
}

impl fmt::Debug for SharedStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.0.iter().map(|state| state.name)).finish()
    }
}

/// What a function of [`WorkerBuilder::share`](crate::worker::WorkerBuilder::share) may use.
#[derive(Debug, Clone)]
pub struct Start {
    pub(crate) worker: WorkerId,
    pub(crate) concurrency: usize,
    pub(crate) states: SharedStates,
}

impl Start {
    /// The worker's id.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// How many jobs may run at once, for example for the size of a pool.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Returns a value that was shared before this one.
    ///
    /// # Panics
    /// When there is none of this type.
    #[must_use]
    pub fn shared<T: Send + Sync + 'static>(&self) -> &T {
        self.states.get()
    }
}
