//! The worker: one control loop, one guardian per delivery, and jobs on threads of their own.
//!
//! | file | actor or concept |
//! |---|---|
//! | `builder` | [`Worker`] and its builder |
//! | `control` | the loop: wait, decide, act; its deliveries, drains and notices in files below it |
//! | `receiver`, `capacity` | when to receive, and how much |
//! | `delivery` | one delivery from its receipt to its settlement |
//! | `isolation` | lets a job that may have killed its worker run alone |
//! | `listen`, `prepare` | the interruption sources; Resume's preparations |
//! | `rules`, `rally` | rules for running jobs and leases; whether all machines of an event are ready |
//! | `drain`, `report` | the figures of a drain; the reports of a drain and of the worker's end |
//! | `publish`, `monitor` | the worker's reports to the roster and to its own process |

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

mod rules;
mod settings;
mod shared;
mod stop;
mod threads;

pub use crate::report::{DrainReport, StopReason, Stopped};
pub use builder::{Worker, WorkerBuilder};
pub use capacity::releasable;
pub use delivery::Outcome;
pub use monitor::Monitor;
pub use publish::{DRAINS, report_every};
pub use settings::{LEASE_MAX, LEASE_MIN, Settings};
pub use stop::{Stopper, Stopping, stopping};
pub use threads::Threads;
