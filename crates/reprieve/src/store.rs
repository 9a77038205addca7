//! Which store an address means, and opening it.

use reprieve_core::ports::Store;
use reprieve_core::{Error, ErrorKind, Result, WorkerId};
use reprieve_local::{LocalStore, Options};

use crate::given::{By, Given};
use crate::settings::{StoreSettings, message};

/// A store that this version can open.
#[derive(Debug)]
pub(crate) enum Address {
    /// An embedded store.
    Local(reprieve_local::Address),
}

/// Said of every address in Azure.
const NO_AZURE: &str = "Azure storage is not built into this version; use sqlite:PATH, one file shared by the processes of one machine";

impl Address {
    /// Reads an address. No fault repeats more of it than its scheme: the rest may be a secret.
    pub(crate) fn read(given: &Given) -> Result<Self, String> {
        let text = given.text.as_str();
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        if is_secret(text) {
            return Err(match given.by {
                By::Flag => "a connection string or SAS given as a flag is visible to everyone on this machine; put it \
                             into REPRIEVE_STORE or reprieve.toml"
                    .to_owned(),
                By::Env | By::File | By::Default => NO_AZURE.to_owned(),
            });
        }
        match scheme {
            Some("sqlite") => {
                reprieve_local::Address::parse(text).map(Self::Local).map_err(|error| message(&error))
            }
            Some("azure") => Err(NO_AZURE.to_owned()),
            _ if text == "azurite" => Err(NO_AZURE.to_owned()),
            Some(scheme) if is_name(scheme) => Err(format!("there is no store {scheme}:…; use sqlite:PATH")),
            _ => Err("it must begin with sqlite:, such as sqlite:reprieve.db".to_owned()),
        }
    }
}

/// Whether it has the marks of a connection string or of a shared access signature.
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
    /// Opens the store, and makes it where there is none. What `owner` leases is given back when this process dies.
    pub(crate) async fn open(&self, owner: Option<WorkerId>) -> Result<Store> {
        let options = self.options();
        let options = match owner {
            Some(worker) => options.owned_by(worker),
            None => options,
        };
        self.open_with(options).await
    }

    /// Opens a store and a queue that are there already.
    pub(crate) async fn open_existing(&self) -> Result<Store> {
        self.must_exist()?;
        self.open_with(self.options().existing()).await
    }

    fn options(&self) -> Options {
        let Address::Local(address) = &self.address;
        Options::new(self.queue.clone()).durability(address.durability)
    }

    async fn open_with(&self, options: Options) -> Result<Store> {
        let Address::Local(address) = &self.address;
        let opened = LocalStore::open(&address.path, options).await;
        opened.map(|store| store.store()).map_err(|error| match error.kind() {
            // A path that is not there or may not be written is a wrong setting: trying again won't help.
            ErrorKind::NotFound | ErrorKind::Denied => {
                Error::new(ErrorKind::Invalid, "open the store", error.message().to_owned())
                    .with_source(error)
            }
            _ => error,
        })
    }

    /// Fails when there is no store yet.
    fn must_exist(&self) -> Result<()> {
        const OPERATION: &str = "open the store";
        let Address::Local(address) = &self.address;
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
}
