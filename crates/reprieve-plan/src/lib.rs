//! What a batch costs on Spot machines, and when it is done.
//!
//! A [`Task`] is work with a deadline. A [`policy`] decides at each moment where it runs: on Spot, on
//! a regular machine, or nowhere. [`replay()`] runs a task under a policy through one [`Window`] of a
//! trace, and returns what it cost and when it was done.
//!
//! A [`plan`] compares whole strategies: it simulates a [`fleet`], its queue and its jobs under each, and
//! advises one.
//!
//! - [`plan`]: from jobs, prices and what is known of evictions to a table, an advice and its assumptions.
//! - [`fleet`]: the simulation, with [`lifetime`] for how long machines live and [`vm_state`] for what becomes of them.
//! - [`measured`]: the rate and the best hour of the day that a fleet's own ledger shows.
//! - [`support`]: what Azure refuses to run on Spot.
//! - [`Series`]: how many Spot machines could be had over time, from a trace or [generated].
//! - [`policy`]: greedy, uniform progress, and a dynamic programme over an estimated Markov chain.
//! - [`safety`]: the net below every policy, which keeps the deadline.
//! - [`omniscient`]: the least that any schedule could cost, for comparison.
//!
//! Times are whole milliseconds and prices whole billionths per hour, so that sums are exact. There
//! is no I/O: the caller reads files and passes their text.
//!
//! # Example: a deadline in a generated window
//!
//! ```
//! use reprieve_plan::{Price, Task, generated::Markov, policy::Programme, replay};
//!
//! let hour = 3_600_000;
//! let task = Task {
//!     jobs: 12,
//!     job_ms: hour / 2,
//!     deadline_ms: 9 * hour,
//!     ..Task::new(Price::from_nanos_per_hour(64_000_000), Price::from_nanos_per_hour(192_000_000))
//! };
//! task.check()?;
//!
//! let spot = Markov { available: 0.6, mean_up_ms: 2 * hour }.series(10 * 24 * hour, 7);
//! let outcome = replay(&task, &Programme::new(&task), &spot.window(0, task.deadline_ms, 1));
//! assert!(outcome.met_deadline);
//! assert!(outcome.cost <= task.regular.cost(1, task.all_regular_ms()));
//! # Ok::<(), reprieve_plan::TaskError>(())
//! ```

pub mod availability;
pub mod checkpoint;
pub mod compare;
pub mod fleet;
pub mod generated;
pub mod history;
pub mod lifetime;
pub mod measured;
pub mod money;
pub mod omniscient;
pub mod plan;
pub mod policy;
pub mod replay;
pub mod safety;
pub mod support;
pub mod task;
pub mod vm_state;
mod words;

pub use availability::{Series, TraceError, Window};
pub use history::History;
pub use money::{Cost, Price};
pub use policy::{Moment, Place, Policy};
pub use replay::{Outcome, replay};
pub use task::{Task, TaskError};
