//! A call to the storage services: signed and sent, limited in time, and its errors explained.

mod access;
mod effort;
mod failure;
mod transport;

pub(crate) use access::Access;
pub(crate) use effort::{Effort, not_applied, temporary, within};
pub(crate) use failure::{
    Target, absent_is_gone, bounded, failure, is_parent, is_speechless, may_be_applied,
};
pub(crate) use transport::Pass;

use azure_core::time::OffsetDateTime;
use jiff::Timestamp;

/// Converts the service's time, which has no fractions of seconds.
pub(crate) fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(at.unix_timestamp()).ok()
}
