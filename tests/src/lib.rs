//! Shared by the whole-system tests: sandboxes, real worker processes, a mock metadata service, and
//! waiting with a limit.
//!
//! A test waits for a condition with a time limit; none sleeps and hopes.

mod account;
pub mod azurite;
mod binary;
mod journal;
mod log;
mod measured;
mod nothing;
mod pictures;
mod run;
mod sandbox;
mod walked;
mod worker;

pub use binary::binary;
pub use journal::{Journal, Stepped};
pub use log::{Line, Log};
pub use measured::{Measured, peak_kib};
pub use nothing::saw_nothing;
pub use pictures::{Picture, pictures};
pub use reprieve_testkit::{Process, until};
pub use run::{Cost, Finished, Made, Run, Unreadable};
pub use sandbox::Sandbox;
pub use walked::Walked;
pub use worker::{RETURN_MEMORY, Worker};
