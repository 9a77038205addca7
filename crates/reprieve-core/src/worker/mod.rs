//! The worker: one loop, one guardian for each delivery, and jobs on threads of their own.
//!
//! | file | actor or concept |
//! |---|---|
//! | `builder` | [`Worker`] and its builder |
//! | `dispatcher` | the loop: passes events to their actors, and decisions from one to the others |
//! | `receiver` | when to receive, and how much |
//! | `deliveries` | the guardians of all held deliveries |
//! | `delivery` | one delivery from its receipt to its settlement |
//! | `interruptions`, `approval` | the sources and the active notices; the approvals of events |
//! | `bookkeeper`, `books` | writes the worker's entries of the ledger, in the background; where the others hand them in |
//! | `cancels` | which jobs were cancelled, and the news of it to those that run here |
//! | `drain` | one drain from its order to its report |
//! | `escalation` | which jobs move to a queue that calmer machines serve |
//! | `reporter` | the worker's reports to the roster and to its own process |
//! | `janitor` | removes from the store what nothing needs any more, in small parts |
//! | `isolation` | lets a job that may have killed its worker run alone |
//! | `kind` | one kind of job: its measurements, and its jobs under its limits |
//! | `limits`, `fleet_slots` | the limits of a kind of job; its slots in the whole fleet |
//! | `measure`, `packing` | recent measurements; whether compressing a kind's states pays |
//! | `shared` | the state that all actors share, with the jobs that run now |
//! | `states` | makes what all jobs share, before the first job, and drops it at the end |
//! | `settings`, `stop`, `threads` | the settings; requests to stop; the two kinds of thread |

mod approval;
mod bookkeeper;
mod books;
mod builder;
mod cancels;
mod deliveries;
mod delivery;
mod depends;
mod dispatcher;
mod drain;
mod escalation;
mod fleet_slots;
mod interruptions;
mod isolation;
mod janitor;
mod kind;
mod limits;
mod measure;
mod packing;
mod receiver;
mod reporter;

mod settings;
mod shared;
mod stalls;
mod states;
mod stop;
mod threads;

pub use crate::names::DRAINS;
pub use crate::report::{DrainReport, StopReason, Stopped};
pub use builder::{Worker, WorkerBuilder};
pub use delivery::Outcome;
pub use depends::Depends;
pub use escalation::Escalation;
pub use limits::Limits;
pub use receiver::releasable;
pub use reporter::{Monitor, report_every};
pub use settings::{Expiring, Settings};
pub use stop::{Stopper, Stopping, stopping};
pub use threads::Threads;
