//! Signs in with a token of an identity in place of a key.

use std::fmt;
use std::time::SystemTime;

use async_trait::async_trait;

/// Gives the user and the token with which connections sign in. The facade has one for Microsoft Entra ID,
/// `CacheIdentity`.
///
/// A connection is made anew when there is a newer token: its own ends soon then, and with it the connection. A
/// subscription could not sign in again, because Redis lets it send nothing else.
/// <https://learn.microsoft.com/azure/redis/entra-for-authentication>
#[async_trait]
pub trait Identity: fmt::Debug + Send + Sync + 'static {
    /// Returns the present token: at once while there is a valid one.
    ///
    /// # Errors
    /// Why there is none, without a secret.
    async fn sign_in(&self) -> Result<SignIn, String>;

    /// The end of the present token; `None` without a valid one.
    fn expires(&self) -> Option<SystemTime>;
}

/// The user and the password of a connection, for some time.
#[derive(Clone)]
pub struct SignIn {
    /// The user, unless the cache's URL has one.
    pub user: Option<String>,
    /// The password.
    pub token: String,
    /// When the token ends.
    pub expires: SystemTime,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").field("user", &self.user).finish_non_exhaustive()
    }
}
