//! One delivery, from its receipt to its settlement.
//!
//! | file | actor or concept |
//! |---|---|
//! | `guardian` | owns the delivery: keeps the lease, waits for the job, and releases the message in a drain |
//! | `lease` | the lease and the settlement: renews, accepts late answers, completes, releases, dead-letters |
//! | `assignment` | the job, the kind and the arguments that the message's body names; the kinds that the worker knows |
//! | `executor` | runs the job on a job thread: arguments, steps, result |
//! | `resume` | the executor's beginning for a redelivered job: judges and claims it, and loads its state |
//! | `save` | decides when a save is due, and saves |
//! | `ending` | the guardian's action at each end of a run: complete, retry, defer, dead-letter, release |
//! | `misfits` | the guardian's action for a message that this worker can't use and another may |
//! | `outcome` | the outcome of the delivery, for the dispatcher, metrics and the log |

mod assignment;
mod ending;
mod executor;
mod guardian;
mod lease;
mod misfits;
mod outcome;
mod resume;
mod save;

pub(super) use assignment::Registry;
pub(super) use guardian::{Batch, Guardian};
pub use outcome::Outcome;
pub(super) use outcome::{DeliveryReport, GivenUp, Limit, NoSlot};
