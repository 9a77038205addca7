//! A call to the storage services: signed and sent, limited in time, and its errors explained.

mod access;
mod effort;
mod failure;
mod transport;

pub(crate) use access::Access;
pub(crate) use effort::{Effort, not_applied, temporary, within};
pub(crate) use failure::{Target, bounded, failure, is_parent, is_speechless};
pub(crate) use transport::{Pass, root_cause};
