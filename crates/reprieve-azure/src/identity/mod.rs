//! Tokens of the identity that this program runs as: found once, refreshed before they expire.
//!
//! The store has its own; [`Tokens`] are for other services.

mod chain;
mod fresh_token;
mod metadata;
mod tokens;

use std::fmt;

use azure_core::error::ErrorKind;

pub(crate) use chain::Chain;
pub(crate) use fresh_token::FreshToken;
pub(crate) use metadata::is_azure_vm;
pub use tokens::{Token, Tokens};

/// The scope of the store's tokens: both services of every account, in every cloud.
/// <https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory>
pub(crate) const STORAGE: &str = "https://storage.azure.com/.default";

/// Why there is no token.
#[derive(Debug, Clone)]
pub(crate) struct NoIdentity {
    message: String,
    may_pass: bool,
}

impl NoIdentity {
    fn new(message: impl Into<String>, may_pass: bool) -> Self {
        Self { message: message.into(), may_pass }
    }

    /// Whether a later try may succeed without a change by an operator.
    pub(crate) const fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// Wraps it in an error of the SDK, which passes it to the caller.
    fn into_sdk(self) -> azure_core::Error {
        azure_core::Error::new(ErrorKind::Credential, self)
    }
}

impl fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NoIdentity {}
