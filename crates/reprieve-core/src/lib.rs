//! The heart of Reprieve.

pub mod checkpoint;
pub mod clock;
pub mod conformance;
mod error;
mod ids;
pub mod memory;
mod notice;
pub mod ports;
pub mod worker;

pub use error::{Error, ErrorKind, Result};
pub use ids::{BlobName, Fence, JobId, MessageId, WorkerId, Writer};
pub use notice::{Deadline, Notice, NoticeId, NoticeKind, Phase};
