//! One delivery, from its receipt to its settlement.
//!
//! | file | actor or concept |
//! |---|---|
//! | `guardian` | owns the delivery: keeps the lease, waits for the job, and releases the message in a drain |
//! | `lease` | renews the lease, and takes in answers that come late |
//! | `assignment` | the job, the kind and the arguments that the message's body names |
//! | `executor` | runs the job on a job thread: claim, state, steps, saves, result |
//! | `resume` | the executor's beginning: judges and claims the job, and loads its state |
//! | `ending` | the guardian's action at each end of a run: complete, retry, defer, dead-letter, release |
//! | `settle` | the calls that settle a message |
//! | `outcome` | the outcome of a delivery, for reports and metrics |
//! | `registry` | the worker's kinds of job, types erased |

mod assignment;
mod ending;
mod executor;
mod guardian;
mod lease;
mod outcome;
mod registry;
mod resume;
mod settle;

pub(super) use guardian::Guardian;
pub(super) use outcome::DeliveryReport;
pub use outcome::Outcome;
pub(super) use registry::Registry;
