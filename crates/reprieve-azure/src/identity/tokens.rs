//! Tokens for services other than the store.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use azure_core::cloud::CloudConfiguration;
use azure_core::credentials::{Secret, TokenCredential};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reprieve_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::{Chain, FreshToken, NoIdentity};

/// Tokens of one service for the identity that this program runs as, the one that its store would use. A task
/// fetches the next one at half the life of the last, so that one is at hand also when the identity service is not.
#[derive(Debug)]
pub struct Tokens(FreshToken);

/// An access token, with the object id of its identity.
#[derive(Clone)]
pub struct Token {
    secret: Secret,
    object_id: Option<String>,
    expires: SystemTime,
}

impl Tokens {
    /// Tokens for `scope` of this pod's workload identity, of this VM's managed identity, or of the Azure CLI's
    /// login, whichever gives one first. `client_id` chooses one of several identities. Nothing is fetched yet.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) when the client can't be set up.
    pub fn of_this_machine(scope: &'static str, client_id: Option<String>) -> Result<Self> {
        let chain = Chain::of_this_machine(scope, client_id, CloudConfiguration::AzurePublic)?;
        Ok(Self(FreshToken::new(chain)))
    }

    /// Tokens for `scope` of this credential.
    #[must_use]
    pub fn of(scope: &'static str, credential: Arc<dyn TokenCredential>) -> Self {
        Self(FreshToken::new(Chain::of(scope, credential)))
    }

    /// Returns the present token: at once while there is a valid one.
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) when there is no identity, and [`Unavailable`](ErrorKind::Unavailable) when
    /// it gives no token at the moment.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn token(&self) -> Result<Token> {
        let token = self.0.token().await.map_err(error)?;
        let object_id = object_id(token.token.secret());
        Ok(Token { object_id, expires: token.expires_on.into(), secret: token.token })
    }

    /// The end of the present token; `None` without a valid one.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.at_hand().map(|(_, expires)| expires)
    }
}

impl Token {
    /// The token, which must not be logged.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.secret.secret()
    }

    /// The object id of the identity, from the claim `oid`; `None` where the token can't be read.
    /// <https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference>
    #[must_use]
    pub fn object_id(&self) -> Option<&str> {
        self.object_id.as_deref()
    }

    /// When it ends.
    #[must_use]
    pub const fn expires(&self) -> SystemTime {
        self.expires
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("object_id", &self.object_id).finish_non_exhaustive()
    }
}

fn error(failure: NoIdentity) -> Error {
    let kind = if failure.may_pass() { ErrorKind::Unavailable } else { ErrorKind::Denied };
    Error::new(kind, "sign in to Azure", failure.to_string()).with_source(failure)
}

/// Reads the claim without a check of the signature: the service that gets the token checks it.
fn object_id(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        oid: String,
    }
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&claims).ok().map(|Claims { oid }| oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_id_is_a_claim_of_the_token() {
        let token = |claims: &str| format!("head.{}.sign", BASE64_URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(object_id(&token(r#"{"aud":"a","oid":"5d1"}"#)), Some("5d1".to_owned()));
        for other in [&token(r#"{"aud":"a"}"#), &token("[]"), "opaque", "a.b", "a.!.c", ""] {
            assert_eq!(object_id(other), None, "{other}");
        }
    }
}
