//! The worker: one control loop, a guardian per delivery, and the jobs on threads of their own.
//!
//! | file | what is in it |
//! |---|---|
//! | `builder` | [`Worker`] and what it is made of |
//! | `control` | the loop: wake, decide, act; its deliveries, its drains and what it does about notices in files below it |
//! | `listen`, `prepare` | the interruption sources; what Resume does |
//! | `rules`, `rally` | what running jobs and leases are told; when all machines of an event are ready |
//! | `fetch`, `capacity` | when to receive, and how much |
//! | `guardian`, `lease` | one delivery from receipt to settlement; its lease |
//! | `order`, `runner`, `registry` | what a message asks for; running it step by step; the kinds, types erased |
//! | `drain`, `report` | the account of a drain; what is said at the end |
//! | `publish`, `monitor` | what the worker shows of itself |

mod builder;
mod capacity;
mod control;
mod drain;
mod fetch;
mod guardian;
mod lease;
mod listen;
mod measure;
mod monitor;
mod order;
mod outcome;
mod prepare;
mod publish;
mod rally;
mod registry;
mod report;
mod rules;
mod runner;
mod settings;
mod shared;
mod stop;
mod threads;

pub use builder::{Worker, WorkerBuilder};
pub use capacity::releasable;
pub use monitor::Monitor;
pub use outcome::Outcome;
pub use publish::{DRAINS, report_every};
pub use report::{DrainReport, StopReason, Stopped};
pub use settings::{LEASE_MAX, LEASE_MIN, Settings};
pub use stop::{Stopper, Stopping, stopping};
pub use threads::Threads;
