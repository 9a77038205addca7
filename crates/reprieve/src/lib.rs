//! Queue workers that survive Azure Spot evictions.
//!
//! A [`Job`] is work in steps. [`run`] makes a worker process of it. The worker receives messages
//! under leases and saves each job's progress between steps. When Azure evicts the machine, the
//! worker releases all jobs within seconds, and another machine continues them from their last
//! checkpoints.
//!
//! # Example: a whole worker
//! ```no_run
//! use reprieve::{Job, JobContext, JobError, Step, async_trait};
//!
//! struct CountTo;
//!
//! #[async_trait]
//! impl Job for CountTo {
//!     const KIND: &'static str = "count-to";
//!     type Args = u64;
//!     type Checkpoint = u64;
//!     type Output = u64;
//!
//!     fn begin(&self, _to: &u64) -> u64 {
//!         0
//!     }
//!
//!     async fn step(&self, cx: &JobContext, to: &u64, at: u64) -> Result<Step<u64, u64>, JobError> {
//!         cx.progress(at, *to);
//!         Ok(if at == *to { Step::Done(at) } else { Step::Continue(at + 1) })
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     reprieve::run(|worker| worker.job(CountTo))
//! }
//! ```
//!
//! The binary has every worker flag (see its `--help`), reads `reprieve.toml` and `REPRIEVE_…`
//! variables, logs, and handles SIGTERM, SIGINT and their Windows equivalents.
//!
//! # Layout
//! - [`Job`], [`Step`], [`JobContext`], [`JobError`]: the types with which a team implements a job.
//! - [`run`], or [`WorkerArgs`] and [`work`] for a command with subcommands of its own.
//! - [`StoreArgs`] and [`Client`], for programs that enqueue jobs or inspect a queue; [`block_on`],
//!   [`stop_signal`], [`parse_duration`] and [`fail`] for their `main`.
//! - [`worker`], [`ports`] and the other modules of the core, for custom worker processes;
//!   with the feature `testing`, `testing` and `memory`, for the tests of jobs.

#[doc(hidden)]
#[cfg(feature = "redis")]
mod cache_identity;
pub mod checkup;
mod client;
mod duration;
mod exit;
mod health;
mod job_spans;
mod logging;
mod machine;
mod queues;
#[cfg(target_os = "linux")]
mod readings;
mod repair;
mod secondary;
mod settings;
mod signals;
mod size;
mod stores;
#[cfg(target_os = "linux")]
mod systemd;
mod work;

pub use async_trait::async_trait;
#[cfg(feature = "redis")]
pub use cache_identity::CacheIdentity;
pub use client::Client;
pub use duration::parse_duration;
pub use exit::{block_on, fail};
pub use settings::{CleanArgs, StoreArgs, WorkerArgs};
pub use signals::stop_signal;
pub use work::{run, work};

pub use reprieve_core::{
    Attachment, BlobName, BlobReader, Bytes, Cancel, Deadline, Error, ErrorKind, InputStream, Job,
    JobContext, JobEnd, JobError, JobId, NewJob, Notice, NoticeId, NoticeKind, OldState, OutputStream,
    Producer, Redrive, RedriveFailure, Redriven, Result, SOFT_MARK, Start, Step, StopFlag, WorkerId,
};
pub use reprieve_core::{
    checkpoint, clock, dependency, healing, interruption, ports, pressure, retention, telemetry, worker,
};
#[cfg(feature = "testing")]
pub use reprieve_core::{memory, testing};
#[cfg(feature = "redis")]
pub use reprieve_redis as redis;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/checkpoints.md")]
struct Checkpoints;

#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../docs/redis.md")]
struct Cache;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/jobs.md")]
struct Jobs;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-to-your-project.md")]
struct AddingToYourProject;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
struct Testing;
