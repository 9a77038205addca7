//! The SDK's clients of one account, over one transport, with the SDK's own retries off.

use std::fmt;
use std::sync::Arc;

use azure_core::http::{ClientOptions, RetryOptions, Transport, UserAgentOptions};
use azure_storage_blob::{BlobContainerClient, BlobContainerClientOptions};
use azure_storage_queue::{QueueClient, QueueClientOptions};
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Url;
use tokio::runtime::Handle;

use super::failure::{Target, failure};
use super::transport::{Client, Pass, USER_AGENT};
use crate::identity::{Chain, FreshToken, STORAGE};
use crate::storage::account::{Address, SharedKey, SignIn};

/// A signed-in account. Cheap to clone; clones share their connections and their token.
#[derive(Clone)]
pub(crate) struct Access {
    address: Address,
    client: Arc<Client>,
    transport: Transport,
}

impl Access {
    /// Prepares the clients. Sends no request.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a token that would be sent unencrypted, or for invalid
    /// certificates.
    pub(crate) fn open(address: &Address) -> Result<Self> {
        Self::open_on(address, None)
    }

    /// Prepares the clients like [`open`](Self::open). The runtime `io` sends their requests.
    pub(crate) fn open_on(address: &Address, io: Option<Handle>) -> Result<Self> {
        Self::with_pass(address, pass(address)?, io)
    }

    pub(crate) fn with_pass(address: &Address, pass: Pass, io: Option<Handle>) -> Result<Self> {
        let client = Arc::new(Client::new(address, pass, io)?);
        Ok(Self { address: address.clone(), transport: Transport::new(client.clone()), client })
    }

    /// A client of the queue with this name, which need not exist.
    pub(crate) fn queue(&self, name: &str) -> Result<QueueClient> {
        let options = QueueClientOptions { client_options: self.options(), ..QueueClientOptions::default() };
        let url = under(&self.address.queues, name);
        QueueClient::new(url, None, Some(options))
            .map_err(|error| failure("use a queue", Target::Queue(name), error))
    }

    /// The queue's messages: the parent of their URLs.
    pub(crate) fn messages(&self, queue: &str) -> Url {
        under(&under(&self.address.queues, queue), "messages")
    }

    /// The client that sends the SDK's requests.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// A client of the container with this name, which need not exist.
    pub(crate) fn container(&self, name: &str) -> Result<BlobContainerClient> {
        let options = BlobContainerClientOptions {
            client_options: self.options(),
            ..BlobContainerClientOptions::default()
        };
        let url = under(&self.address.blobs, name);
        BlobContainerClient::new(url, None, Some(options))
            .map_err(|error| failure("use a container", Target::Container(name), error))
    }

    /// Waits until requests can be signed: not at all with a key or a SAS; with an identity, until
    /// its first token arrives. From then on a task of the calling runtime refreshes the token
    /// before it expires. So call it on a runtime that jobs can't block.
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) when there is no identity, and
    /// [`Unavailable`](ErrorKind::Unavailable) when the identity gave no token in time.
    pub(crate) async fn ready(&self) -> Result<()> {
        let Pass::Token(token) = self.client.pass() else { return Ok(()) };
        token.header().await.map(drop).map_err(|error| failure("sign in to Azure", Target::Account, error))
    }

    /// The credentials of requests.
    pub(crate) fn pass(&self) -> &Pass {
        self.client.pass()
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            transport: Some(self.transport.clone()),
            retry: RetryOptions::none(),
            user_agent: UserAgentOptions { application_id: Some(USER_AGENT.to_owned()) },
            ..ClientOptions::default()
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("address", &self.address).finish_non_exhaustive()
    }
}

fn pass(address: &Address) -> Result<Pass> {
    let encrypted = address.blobs.scheme() == "https" && address.queues.scheme() == "https";
    let token = |chain| {
        if encrypted {
            return Ok(Pass::Token(FreshToken::new(chain)));
        }
        let message =
            "its endpoints are http://, over which a token could be read: use https:// endpoints, or a key";
        Err(Error::new(ErrorKind::Invalid, "use the storage account", message))
    };
    match &address.sign_in {
        SignIn::Key(key) => Ok(Pass::Key(SharedKey::new(&address.account, key.clone()))),
        SignIn::Sas(sas) => Ok(Pass::Sas(sas.clone())),
        SignIn::Identity { client_id } => {
            token(Chain::of_this_machine(STORAGE, client_id.clone(), address.cloud())?)
        }
        SignIn::Own(credential) => token(Chain::of(STORAGE, credential.clone())),
    }
}

fn under(endpoint: &Url, name: &str) -> Url {
    let mut url = endpoint.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(name);
    }
    url
}

#[cfg(test)]
mod tests;
