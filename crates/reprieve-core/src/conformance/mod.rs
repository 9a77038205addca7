//! Conformance suites for backends: one public async function per promise of a port.
//!
//! A backend runs a whole suite through its macro, which generates one test per promise, so that
//! the list of tests shows the promises' names. Each test calls the fixture function once and gets
//! stores of its own.
//!
//! Leases in the suites are whole seconds, because some services have no shorter ones. All waiting
//! is [`tokio::time`]'s: a backend on tokio's clock runs the suites under a paused clock, any other
//! in real time.
//!
//! # Example: running all suites for a backend
//! ```
//! use reprieve_core::conformance::Fixture;
//! use reprieve_core::{clock, memory};
//!
//! /// Two handles of one new, empty store; a guard, such as a temporary directory, lives as long as the test.
//! async fn fixture() -> Fixture {
//!     clock::simulate(clock::wall_now()); // Only under a paused clock: what is stamped goes on with it.
//!     let store = memory::store();
//!     Fixture::new(store.clone(), store).with_guard("a temporary directory")
//! }
//!
//! reprieve_core::queue_conformance!(fixture, start_paused = true);
//! reprieve_core::records_conformance!(fixture, start_paused = true);
//! reprieve_core::damage_conformance!(fixture, start_paused = true);
//! reprieve_core::blobs_conformance!(fixture, start_paused = true);
//! reprieve_core::roster_conformance!(fixture, start_paused = true);
//! reprieve_core::protocol_conformance!(fixture, start_paused = true);
//! reprieve_core::ledger_conformance!(fixture, start_paused = true);
//! # fn main() {}
//! ```
//! The arguments after the fixture are passed to `#[tokio::test(…)]`; a backend in real time passes
//! none. The crate that runs the suites needs tokio's `macros` and `rt`, and `test-util` for a
//! paused clock.

mod bodies;

pub mod blobs;
pub mod damage;
pub mod ledger;
pub mod protocol;
pub mod queue;
pub mod records;
pub mod roster;

use std::any::Any;
use std::fmt;

use crate::ports::Store;

/// The input of a test: one new, empty store, as two processes open it.
pub struct Fixture {
    /// The store.
    pub store: Store,
    /// The same store as another process opens it: opened a second time if possible, otherwise a
    /// clone.
    pub another: Store,
    /// Resources that the stores need, dropped after them; see [`with_guard`](Self::with_guard).
    pub guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// Creates a fixture from two handles to one new, empty store.
    #[must_use]
    pub fn new(store: Store, another: Store) -> Self {
        Self { store, another, guard: Box::new(()) }
    }

    /// Keeps `guard`, such as a temporary directory or a server, until the test ends.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Send + Sync + 'static) -> Self {
        self.guard = Box::new(guard);
        self
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, another, .. } = self;
        f.debug_struct("Fixture").field("store", store).field("another", another).finish_non_exhaustive()
    }
}

/// Generates a module with one test per named promise; see [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance {
    ($suite:ident, $module:ident, $fixture:ident, $attributes:tt, $($promise:ident),* $(,)?) => {
        #[cfg(test)]
        mod $module {
            $(
                #[tokio::test $attributes]
                async fn $promise() {
                    let fixture = super::$fixture().await;
                    $crate::conformance::$suite::$promise(&fixture).await;
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Checks that a suite's functions are those that its macro names, so that every promise is
    /// tested.
    #[track_caller]
    fn check(suite: &str, sources: &[&str]) {
        let lines = || sources.iter().flat_map(|source| source.lines());
        let functions = lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let functions: BTreeSet<_> = functions.collect();
        let listed = lines().filter_map(|line| line.strip_prefix("            ")?.strip_suffix(','));
        let is_name = |text: &&str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let listed: BTreeSet<_> = listed.filter(is_name).collect();
        assert!(functions.len() > 2, "{suite} has promises");
        assert_eq!(functions, listed, "{suite}: functions, and the macro's list of them");
    }

    #[test]
    fn each_macro_names_every_promise_of_its_suite() {
        check(
            "queue",
            &[
                include_str!("queue/mod.rs"),
                include_str!("queue/delivery.rs"),
                include_str!("queue/lease.rs"),
                include_str!("queue/letters.rs"),
                include_str!("queue/settle.rs"),
            ],
        );
        check("records", &[include_str!("records.rs")]);
        check("damage", &[include_str!("damage.rs")]);
        check("protocol", &[include_str!("protocol.rs")]);
        check(
            "blobs",
            &[include_str!("blobs/mod.rs"), include_str!("blobs/parts.rs"), include_str!("blobs/ranges.rs")],
        );
        check("roster", &[include_str!("roster.rs")]);
        check("ledger", &[include_str!("ledger.rs")]);
    }
}
