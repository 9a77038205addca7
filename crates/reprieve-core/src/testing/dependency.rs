//! A dependency without a worker, for tests of its client.

use std::sync::Arc;

use crate::dependency::{Dependency, DependencyHandle, Users, keep};

/// Returns the handle of a dependency that is probed and heard as a worker's, until the runtime ends.
///
/// # Panics
/// Outside a Tokio runtime.
#[must_use]
pub fn dependency(name: &str, dependency: Arc<dyn Dependency>) -> DependencyHandle {
    let handle = DependencyHandle::new(name, Arc::clone(&dependency), &Users::default());
    let _runs = tokio::spawn(keep(handle.clone(), dependency));
    handle
}
