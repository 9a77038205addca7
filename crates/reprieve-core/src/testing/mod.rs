//! A test kit for jobs: a simulated world in which a job is evicted, killed, frozen and cut off from
//! its store at every step, and must end as if nothing had happened.
//!
//! | file | concept |
//! |---|---|
//! | `harness` | [`Harness`]: which runs, and the [`Report`] |
//! | `points` | the moments at which a job is disturbed |
//! | `world` | one run: its store, its workers, its disturbance |
//! | `probe` | the job as the workers of a run see it |
//! | `clock` | holds the paused clock while a step waits for something real |
//! | `difference` | compares two runs, and shows the first [`Difference`] |
//! | `context` | [`TestContext`]: to call a step by hand |
//! | `dependency` | [`dependency()`]: for tests of a dependency's client |

mod clock;
mod context;
mod dependency;
mod difference;
mod harness;
mod points;
mod probe;
mod world;

pub use context::TestContext;
pub use dependency::dependency;
pub use difference::Difference;
pub use harness::{Harness, POINTS_MAX, Report};
pub use world::World;
