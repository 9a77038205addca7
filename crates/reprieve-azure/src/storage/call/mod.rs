//! A call to the storage services: signed and sent, limited in time, and its errors explained.

mod access;
mod effort;
mod failure;
mod transport;

pub(crate) use access::Access;
pub(crate) use effort::{Effort, not_applied, temporary, within};
pub(crate) use failure::{
    Target, absent_is_gone, bounded, failure, is_about_blocks, is_beyond_the_end, is_parent, is_speechless,
    may_be_applied,
};
pub(crate) use transport::{Client, Pass};

use azure_core::http::headers::{HeaderName, Headers};
use azure_core::time::{OffsetDateTime, parse_rfc7231};
use jiff::Timestamp;

/// Converts the service's time, which has no fractions of seconds.
pub(crate) fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(at.unix_timestamp()).ok()
}

/// The time of an answer by the service's clock, if it has a `Date` that can be parsed.
pub(crate) fn date(headers: &Headers) -> Option<OffsetDateTime> {
    parse_rfc7231(headers.get_optional_str(&HeaderName::from_static("date"))?).ok()
}
