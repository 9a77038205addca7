//! The core of Reprieve: a queue worker whose jobs survive the eviction of their VM.
//!
//! A team implements [`Job`]; a [`Worker`](worker::Worker) runs it. The worker receives messages
//! under leases and saves each job's progress between steps. When an interruption source announces
//! an eviction, the worker releases every message within seconds, and another machine continues
//! from the last checkpoint. This crate contains no HTTP, Azure, SQL or file access: all I/O goes
//! through the [`ports`], and each backend is a crate of its own.
//!
//! # Layout
//! - [`Job`], [`Step`], [`JobContext`], [`JobError`]: what a team implements and uses.
//!   [`InputStream`], [`OutputStream`]: inputs and outputs of any size.
//! - [`Producer`], [`NewJob`]: enqueue jobs. [`Redrive`]: sends dead letters again. [`Shards`]:
//!   several queues used as one.
//! - [`worker`]: the dispatcher, the guardians of the leases, the drain.
//! - [`interruption`]: decides what a notice calls for, without I/O.
//! - [`ports`]: queue, records, blobs, interruptions, roster.
//! - [`record`], [`envelope`]: the formats of a job's record and of its messages. [`checkpoint`]:
//!   how often progress is saved.
//! - [`clock`]: the time.
//!
//! With the feature `testing`, for dev-dependencies:
//! - `testing`: the test kit for jobs.
//! - `memory`, `conformance`: in-memory backends with faults on demand, and the test suites that
//!   every backend must pass.
//! - `chance`, `process`: random choices and tasks, replaceable so that a simulation can be
//!   replayed.
//!
//! # Example: a job of a hundred steps survives a drain in the middle
//! ```
//! use reprieve_core::memory::ManualNotices;
//! use reprieve_core::worker::{Worker, stopping};
//! use reprieve_core::{Job, JobContext, JobError, NewJob, Notice, NoticeKind, Producer, Step, memory};
//!
//! struct CountTo;
//!
//! #[async_trait::async_trait]
//! impl Job for CountTo {
//!     const KIND: &'static str = "count-to";
//!     type Args = u32;
//!     type Checkpoint = u32;
//!     type Output = u32;
//!
//!     fn begin(&self, _: &u32) -> u32 { 0 }
//!
//!     async fn step(&self, _: &JobContext, to: &u32, at: u32) -> Result<Step<u32, u32>, JobError> {
//!         tokio::time::sleep(std::time::Duration::from_millis(1)).await;
//!         Ok(if at == *to { Step::Done(at) } else { Step::Continue(at + 1) })
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let store = memory::store();
//! Producer::new(store.clone()).enqueue(vec![NewJob::of::<CountTo>(&100)?]).await?;
//!
//! // The first machine receives an eviction notice.
//! let notices = std::sync::Arc::new(ManualNotices::answered());
//! let first = Worker::builder(store.clone()).job(CountTo).interruptions(notices.clone()).build()?;
//! let monitor = first.monitor();
//! let (_stopper, never) = stopping();
//! tokio::spawn(first.run(never));
//! tokio::time::sleep(std::time::Duration::from_millis(50)).await;
//! notices.notice(Notice::now("A123", NoticeKind::Preempt));
//! while monitor.last_drain().is_none() { tokio::time::sleep(std::time::Duration::from_millis(1)).await }
//! assert_eq!(monitor.last_drain().unwrap().released_saved, 1);
//!
//! // The second continues from the checkpoint.
//! let second = Worker::builder(store.clone()).job(CountTo).build()?;
//! let (stopper, stopping) = stopping();
//! let running = tokio::spawn(second.run(stopping));
//! while store.queue.depth().await?.total > 0 { tokio::time::sleep(std::time::Duration::from_millis(5)).await }
//! stopper.stop();
//! assert_eq!(running.await.unwrap().completed, 1);
//! # Ok::<(), reprieve_core::Error>(())
//! # }).unwrap();
//! ```

mod attachment;
mod cancel;
#[cfg(not(feature = "testing"))]
mod chance;
#[cfg(feature = "testing")]
pub mod chance;
pub mod checkpoint;
mod child_ids;
mod children;
pub mod clock;
#[cfg(not(feature = "testing"))]
#[expect(unreachable_pub, reason = "tests read states")]
mod codec;
#[cfg(feature = "testing")]
pub mod codec;
mod compute;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod context;
mod deadline;
pub mod dependency;
pub mod envelope;
mod error;
mod estimate;
mod files;
mod hash;
pub mod healing;
mod ids;
pub mod interruption;
mod job;
mod job_end;
pub mod ledger;
mod long_step;

#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod mutex;
mod names;
mod notice;

pub mod panics;
pub mod ports;
pub mod pressure;
#[cfg(not(feature = "testing"))]
#[expect(unreachable_pub, reason = "a simulation replaces it")]
mod process;
#[cfg(feature = "testing")]
pub mod process;
mod producer;
mod queue_name;
pub mod record;
mod redrive;
mod report;
pub mod retention;
pub mod retry;
mod run_clock;
mod saving;
mod shards;
mod shared_state;
mod shorten;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod time_limit;
mod turns;
mod wait_time;
mod watch;
pub mod worker;

pub use attachment::{ATTACHMENT_NAME_BYTES_MAX, Attachment};
pub use bytes::Bytes;
pub use cancel::Cancel;
pub use compute::StopFlag;
pub use context::JobContext;
pub use deadline::{Deadline, SOFT_MARK};
pub use error::{Error, ErrorKind, Result};
pub use files::{BlobReader, InputStream, OutputStream};
pub use ids::{
    BLOB_NAME_BYTES_MAX, BlobName, Fence, JOB_ID_BYTES_MAX, JobId, MessageId, PayloadName, WorkerId, Writer,
};
pub use job::{Job, JobError, OldState, Step};
pub use job_end::JobEnd;
pub use notice::{Initiator, Notice, NoticeId, NoticeKind, Phase};
pub use producer::{NewJob, Producer};
pub use queue_name::QueueName;
pub use redrive::{Redrive, RedriveFailure, Redriven};
pub use retry::Patience;
pub use shards::Shards;
pub use shared_state::Start;
