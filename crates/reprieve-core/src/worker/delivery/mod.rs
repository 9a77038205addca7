//! One delivery, from its receipt to its settlement.
//!
//! | file | actor or concept |
//! |---|---|
//! | `guardian` | owns the delivery: keeps the lease, waits for the job, releases the message in a drain, and reports the outcome |
//! | `lease` | the lease and the settlement: renews, accepts late answers, completes, releases, dead-letters |
//! | `assignment` | the job, the kind and the arguments that the message's body names; the kinds that the worker knows |
//! | `executor` | runs the job on a job thread: arguments, steps, result |
//! | `resume` | the executor's beginning for a redelivered job: judges and claims it, and loads its state |
//! | `save` | decides when a save is due, and saves |
//! | `ending` | the guardian's action at each end of a run: complete, retry, defer, dead-letter, release |

mod assignment;
mod ending;
mod executor;
mod guardian;
mod lease;
mod resume;
mod save;

pub(super) use assignment::Registry;
pub use guardian::Outcome;
pub(super) use guardian::{DeliveryReport, Guardian};
