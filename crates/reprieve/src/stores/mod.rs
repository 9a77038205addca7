//! Parses a store's address and opens the store.

use std::fmt;
use std::sync::Arc;

use futures_util::future::try_join_all;
use reprieve_azure::storage::{Address as AzureAddress, AzureStore, Options as AzureOptions};
use reprieve_core::ports::Store;
use reprieve_core::{Error, ErrorKind, QueueName, Result, Shards, WorkerId};
use reprieve_local::{LocalStore, Options};

use crate::settings::{By, Given, StoreSettings, message};

/// The address of a store.
#[derive(Debug)]
pub(crate) enum Address {
    /// An embedded store.
    Local(reprieve_local::Address),
    /// A storage account, or its emulator.
    Azure(Box<AzureAddress>),
}

impl fmt::Display for Address {
    /// Formats the address for people and logs, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(address) => write!(f, "sqlite:{}", address.path.display()),
            Self::Azure(address) => address.fmt(f),
        }
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// The same store with a drain's time limits.
    pub(crate) drain: Store,
}

impl Address {
    /// Parses an address. An error repeats no more of it than its scheme: the rest may be a secret.
    pub(crate) fn read(given: &Given) -> Result<Self, String> {
        let text = given.text.as_str();
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        if is_secret(text) {
            return match given.by {
                By::Flag => Err(
                    "a connection string or SAS given as a flag is visible to everyone on this machine; put \
                                 it into REPRIEVE_STORE or reprieve.toml"
                        .to_owned(),
                ),
                By::Env | By::File | By::Default => azure(text),
            };
        }
        match scheme {
            Some("sqlite") => {
                reprieve_local::Address::parse(text).map(Self::Local).map_err(|error| message(&error))
            }
            Some("azure") => azure(text),
            _ if text == "azurite" => azure(text),
            Some(scheme) if is_name(scheme) => {
                Err(format!("there is no store {scheme}:…; use sqlite:PATH or azure:ACCOUNT"))
            }
            _ => {
                Err("it must be sqlite:PATH, such as sqlite:reprieve.db, or azure:ACCOUNT, or azurite"
                    .to_owned())
            }
        }
    }
}

fn azure(text: &str) -> Result<Address, String> {
    AzureAddress::parse(text)
        .map(|address| Address::Azure(Box::new(address)))
        .map_err(|error| message(&error))
}

/// Returns whether the text looks like a connection string or a shared access signature.
/// <https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string>
fn is_secret(text: &str) -> bool {
    const MARKS: [&str; 7] = [
        "accountkey=",
        "sharedaccesssignature=",
        "defaultendpointsprotocol=",
        "queueendpoint=",
        "blobendpoint=",
        "usedevelopmentstorage=",
        "sig=",
    ];
    let text = text.to_ascii_lowercase();
    MARKS.iter().any(|mark| text.contains(mark))
}

fn is_name(scheme: &str) -> bool {
    (1..=20).contains(&scheme.len())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

impl StoreSettings {
    /// Opens the store and creates it if it does not exist. When the process of `owner` dies, a
    /// store that can detect this releases its messages.
    pub(crate) async fn open(&self, owner: Option<WorkerId>) -> Result<Opened> {
        self.open_with(owner, false).await
    }

    /// Opens an existing store with existing queues.
    pub(crate) async fn open_existing(&self) -> Result<Opened> {
        self.open_with(None, true).await
    }

    async fn open_with(&self, owner: Option<WorkerId>, existing: bool) -> Result<Opened> {
        match &self.address {
            Address::Local(address) => {
                if existing {
                    must_exist(address)?;
                }
                let opened = self.open_local(address, owner, existing).await;
                // A path that is missing or not writable is a wrong setting: trying again won't
                // help.
                let opened = opened.map_err(|error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::Denied => {
                        Error::new(ErrorKind::Invalid, "open the store", error.message().to_owned())
                            .with_source(error)
                    }
                    _ => error,
                });
                opened.map(|store| Opened { drain: store.clone(), store })
            }
            Address::Azure(address) => {
                let options = AzureOptions::new(self.queues.names.clone()).container(self.container.clone());
                let options = if existing { options.existing() } else { options };
                let opened = AzureStore::open(address, options).await;
                // A role assigned a moment ago may not have taken effect yet, so a refusal is no
                // wrong setting.
                opened.map(|opened| Opened { store: opened.store(), drain: opened.drain_store() })
            }
        }
    }

    /// Opens one handle of the file for each queue; they share everything but the queue.
    async fn open_local(
        &self,
        address: &reprieve_local::Address,
        owner: Option<WorkerId>,
        existing: bool,
    ) -> Result<Store> {
        let open = |queue: &QueueName| {
            let options = Options::new(queue.clone()).durability(address.durability);
            let options = Options { owner: owner.clone(), must_exist: existing, ..options };
            LocalStore::open(&address.path, options)
        };
        let mut stores = try_join_all(self.queues.names.iter().map(open)).await?.into_iter();
        let names = self.queues.names.iter().cloned();
        match (stores.next().map(|first| first.store()), stores.len()) {
            (Some(first), 0) => Ok(first),
            (Some(first), _) => {
                let queues =
                    [Arc::clone(&first.queue)].into_iter().chain(stores.map(|one| one.store().queue));
                let queue = Arc::new(Shards::new(names.zip(queues).collect())?);
                Ok(Store { queue, ..first })
            }
            (None, _) => Err(Error::new(ErrorKind::Invalid, "open the store", "no queue is named")),
        }
    }
}

/// Fails when the store does not exist.
fn must_exist(address: &reprieve_local::Address) -> Result<()> {
    const OPERATION: &str = "open the store";
    let path = address.path.display();
    match address.path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            ErrorKind::Invalid,
            OPERATION,
            format!("there is none at {path}; check --store, or make it by enqueueing a job"),
        )),
        Err(error) => {
            let message = format!("{path} can't be looked at: {error}");
            Err(Error::new(ErrorKind::Invalid, OPERATION, message).with_source(error))
        }
    }
}
