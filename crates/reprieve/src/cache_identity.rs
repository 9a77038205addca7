//! Signs in to a cache with Microsoft Entra ID.

use std::time::SystemTime;

use async_trait::async_trait;
use reprieve_azure::identity::Tokens;
use reprieve_core::Result;
use reprieve_redis::{Identity, SignIn};

/// The identity that this program runs as, for [`Redis::with_identity`](reprieve_redis::Redis::with_identity): the
/// settings' `identity = true`.
///
/// The password of a connection is a token, and its user the token's object id, which is the user that a cache gives
/// access to. The next token is fetched at half the life of the last, and connections are then made anew.
/// <https://learn.microsoft.com/azure/redis/entra-for-authentication>
#[derive(Debug)]
pub struct CacheIdentity(Tokens);

impl CacheIdentity {
    /// The scope of its tokens.
    pub const SCOPE: &'static str = "https://redis.azure.com/.default";

    /// The identity of this pod or VM, or the Azure CLI's login. `AZURE_CLIENT_ID` chooses one of several, as it does
    /// for the store.
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorKind::Internal) when its client can't be set up.
    pub fn of_this_machine() -> Result<Self> {
        Ok(Self(Tokens::of_this_machine(Self::SCOPE, crate::stores::client_id())?))
    }

    /// Tokens from elsewhere, which must be of this [scope](Self::SCOPE).
    #[must_use]
    pub const fn of(tokens: Tokens) -> Self {
        Self(tokens)
    }
}

#[async_trait]
impl Identity for CacheIdentity {
    async fn sign_in(&self) -> std::result::Result<SignIn, String> {
        let token = self.0.token().await.map_err(|error| error.message().to_owned())?;
        Ok(SignIn {
            user: token.object_id().map(str::to_owned),
            token: token.secret().to_owned(),
            expires: token.expires(),
        })
    }

    fn expires(&self) -> Option<SystemTime> {
        self.0.expires()
    }
}
