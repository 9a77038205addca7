//! The mock metadata service: [`MetadataServer`], its [`Config`], and the [`Fault`]s it can be given.

mod announcement;
mod answers;
pub(crate) mod control;
mod faults;
mod instance;
mod server;
mod state;
mod world;

pub use announcement::Announcement;
pub use faults::{Endpoint, Fault};
pub use server::{Config, MetadataServer};
pub use state::{Evicted, State, VmState, Which};
