//! Why a request got no answer, described without its URL, which contains the SAS.

use std::error::Error as _;
use std::fmt;

use azure_core::error::ErrorKind;

use crate::cause::root_cause;

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The host's name could not be resolved.
    Name,
    /// There was no connection: nothing was sent.
    Connection,
    /// The connection ended or stalled after data was sent.
    BrokenOff,
    /// Another server answered, such as the login page of a network.
    Stranger,
}

/// A request that got no answer, or only a part of one.
#[derive(Debug)]
pub(crate) struct Unanswered {
    host: String,
    pub(crate) obstacle: Obstacle,
    cause: String,
}

impl Unanswered {
    /// There was no answer.
    pub(super) fn to_the_request(host: &str, error: &reqwest::Error) -> Self {
        let obstacle = match error.is_connect() {
            true if is_about_a_name(error) => Obstacle::Name,
            true => Obstacle::Connection,
            false => Obstacle::BrokenOff,
        };
        Self { host: host.to_owned(), obstacle, cause: root_cause(error) }
    }

    /// The answer began but did not end.
    pub(super) fn to_the_end(host: &str, error: &reqwest::Error) -> Self {
        Self { host: host.to_owned(), obstacle: Obstacle::BrokenOff, cause: root_cause(error) }
    }

    /// The answer was not the service's.
    pub(super) fn by_the_service(host: &str) -> Self {
        Self { host: host.to_owned(), obstacle: Obstacle::Stranger, cause: String::new() }
    }

    /// Wraps it in an error of the SDK, which passes it to the caller.
    pub(crate) fn into_sdk(self) -> azure_core::Error {
        let kind = match self.obstacle {
            Obstacle::Name | Obstacle::Connection => ErrorKind::Connection,
            Obstacle::BrokenOff | Obstacle::Stranger => ErrorKind::Io,
        };
        azure_core::Error::new(kind, self)
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.obstacle {
            Obstacle::Name => write!(f, "no address is known for {}: {}", self.host, self.cause),
            Obstacle::Connection => write!(f, "{} can't be reached: {}", self.host, self.cause),
            Obstacle::BrokenOff => write!(f, "the connection to {} broke off: {}", self.host, self.cause),
            Obstacle::Stranger => {
                write!(
                    f,
                    "{} answered, but not as the storage service does; does a proxy answer in its place?",
                    self.host
                )
            }
        }
    }
}

impl std::error::Error for Unanswered {}

/// Whether a connection failed because of the host's name. The HTTP client has no type for that,
/// only this text.
fn is_about_a_name(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.to_string() == "dns error" {
            return true;
        }
        cause = error.source();
    }
    false
}
