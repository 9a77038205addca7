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
//! | `deaths` | finds which workers have died |
//! | `cancels` | which jobs were cancelled, and the news of it to those that run here |
//! | `claims` | the right to have a machine replaced, of which the fleet has few |
//! | `drain` | one drain from its order to its report |
//! | `elsewhere` | which kinds of job another machine could begin, while an event is announced here |
//! | `escalation` | which jobs move to a queue that calmer machines serve |
//! | `reporter` | the worker's reports to the roster and to its own process |
//! | `janitor` | removes from the store what nothing needs any more, in small parts |
//! | `isolation` | lets a job that may have killed its worker run alone |
//! | `kind` | one kind of job: its measurements, and its jobs under its limits |
//! | `limits`, `fleet_slots` | the limits of a kind of job; its slots in the whole fleet |
//! | `learner`, `losses` | learns how often machines lose work, from which the interval of checkpoints follows; what it learned |
//! | `measure`, `packing` | recent measurements; whether compressing a kind's states pays |
//! | `stalls`, `spans` | jobs that do not move; the port to whoever knows where they stand |
//! | `stuck` | slots whose threads do not return |
//! | `machine`, `pressure` | looks at the machine, and holds work back while memory or disk run out; what was seen last |
//! | `shared` | the state that all actors share, with the jobs that run now |
//! | `states` | makes what all jobs share, before the first job, and drops it at the end |
//! | `settings`, `stop`, `threads` | the settings; requests to stop; the two kinds of thread |

mod approval;
mod bookkeeper;
mod books;
mod builder;
mod cancels;
mod claims;
mod deaths;
mod deliveries;
mod delivery;
mod depends;
mod dispatcher;
mod drain;
mod elsewhere;
mod escalation;
mod fleet_slots;
mod interruptions;
mod isolation;
mod janitor;
mod kind;
mod learner;
mod limits;
mod losses;
mod machine;
mod measure;
mod packing;
mod pressure;
mod receiver;
mod reporter;

mod settings;
mod shared;
mod spans;
mod stalls;
mod states;
mod stop;
mod stuck;
mod threads;

pub use crate::names::{DIAGNOSES, DRAINS};
pub use crate::report::{DrainReport, StopReason, Stopped};
pub use builder::{Worker, WorkerBuilder};
pub use claims::{Claim, Claims};
pub use delivery::Outcome;
pub use depends::Depends;
pub use escalation::Escalation;
pub use limits::Limits;
pub use receiver::releasable;
pub use reporter::{Monitor, report_every};
pub use settings::{Expiring, Settings};
pub use spans::OpenSpans;
pub use stop::{Stopper, Stopping, stopping};
pub use stuck::spare_slots;
pub use threads::Threads;
