//! The worker: one control loop, a guardian per delivery, and the jobs on threads of their own.
//!
//! | file | actor or concept |
//! |---|---|
//! | `builder` | [`Worker`] and what it is made of |
//! | `control` | the loop: wait, decide, act; its deliveries, drains and notices in files below it |
//! | `receiver`, `capacity` | when to receive, and how much |
//! | `delivery` | one delivery from its receipt to its settlement |
//! | `isolation` | lets a job run alone that may have killed its worker |
//! | `listen`, `prepare` | the interruption sources; what Resume does |
//! | `rules`, `rally` | how running jobs and leases are treated; when all machines of an event are ready |
//! | `drain`, `report` | the account of a drain; what is reported at the end |
//! | `publish`, `monitor` | what the worker shows of itself |

mod builder;
mod capacity;
mod control;
mod delivery;
mod drain;
mod isolation;
mod listen;
mod measure;
mod monitor;
mod prepare;
mod publish;
mod rally;
mod receiver;
mod report;
mod rules;
mod settings;
mod shared;
mod stop;
mod threads;

pub use builder::{Worker, WorkerBuilder};
pub use capacity::releasable;
pub use delivery::Outcome;
pub use monitor::Monitor;
pub use publish::{DRAINS, report_every};
pub use report::{DrainReport, StopReason, Stopped};
pub use settings::{LEASE_MAX, LEASE_MIN, Settings};
pub use stop::{Stopper, Stopping, stopping};
pub use threads::Threads;
