//! Selects a store by its address, and opens it.

mod azure;
#[cfg(feature = "redis")]
pub(crate) use azure::client_id;
pub(crate) mod receipts;
mod sqlite;

use std::fmt;

use reprieve_azure::scheduled_events::Compute;
use reprieve_azure::storage::{Address as AzureAddress, ContainerName};
use reprieve_core::ports::Store;
use reprieve_core::{Error, ErrorKind, Result, WorkerId};
use reprieve_local::{Address as LocalAddress, Durability};
use tokio::runtime::Handle;

use crate::queues::Queues;

/// The address of a store.
#[derive(Debug)]
pub enum Address {
    /// An embedded store.
    Local(LocalAddress),
    /// A storage account, or its emulator.
    Azure(Box<AzureAddress>),
}

/// The effect of an eviction on a store on the evicted VM's own disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The VM is deleted, and the store with its disk: queue, checkpoints and results.
    Deleted,
    /// The VM is stopped with its disk, and its jobs wait until somebody starts it again.
    Stopped,
}

impl Loss {
    /// The way to lose nothing.
    pub const CURE: &'static str =
        "use a store that other VMs reach: --store azure:ACCOUNT, with a storage account";
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => {
                "the store is on this Spot VM's disk, and an eviction deletes it: queue, checkpoints and results"
            }
            Self::Stopped => {
                "the store is on this Spot VM's disk: after an eviction its jobs wait until somebody starts the VM"
            }
        })
    }
}

/// The settings that select a store and its queues.
#[derive(Debug)]
pub(crate) struct StoreSettings {
    pub(crate) address: Address,
    pub(crate) queues: Queues,
    pub(crate) container: ContainerName,
}

/// What a store is opened for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A worker: creates what is missing. When this worker's process dies, a store that can detect it
    /// releases the worker's messages. With a runtime for connections, if there is one.
    Working(WorkerId, Option<Handle>),
    /// A program that enqueues jobs: creates what is missing, and needs no more rights than that.
    Enqueueing,
    /// A program that inspects an existing store.
    Reading,
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// The same store with a drain's time limits.
    pub(crate) drain: Store,
}

impl Address {
    /// Parses an address. `public` means that everyone on this machine can read the text.
    ///
    /// # Errors
    /// A sentence that says what to write instead. It repeats no more of the address than its
    /// scheme: the rest may be a secret.
    pub(crate) fn parse(text: &str, public: bool) -> Result<Self, String> {
        let text = unquoted(text);
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        match scheme {
            _ if azure::is_secret(text) && public => Err(
                "a connection string or SAS given as a flag is visible to everyone on this machine; put it into \
                 REPRIEVE_STORE or reprieve.toml"
                    .to_owned(),
            ),
            _ if azure::is_secret(text) || azure::is_connection_string(text) => {
                azure::parse(text).map(Self::Azure)
            }
            Some("sqlite") => {
                LocalAddress::parse(text).map(Self::Local).map_err(|error| error.message().to_owned())
            }
            Some("azure") => azure::parse(text).map(Self::Azure),
            _ if text == "azurite" => azure::parse(text).map(Self::Azure),
            Some(scheme) if is_name(scheme) => {
                Err(format!("there is no store {scheme}:…; use sqlite:PATH or azure:ACCOUNT"))
            }
            _ => {
                Err("it must be sqlite:PATH, such as sqlite:reprieve.db, or azure:ACCOUNT, or azurite"
                    .to_owned())
            }
        }
    }

    /// The effect of an eviction of this VM on the store; `None` for a VM that is not evicted, and for a
    /// store elsewhere.
    #[must_use]
    pub fn loss_at_eviction(&self, vm: &Compute) -> Option<Loss> {
        let is_here = match self {
            Self::Local(_) => true,
            Self::Azure(address) => address.on_this_machine().is_some(),
        };
        // `Spot`, or a newer kind of it.
        // Before Spot it was called low priority, and the service still has that value.
        let is_spot = |priority: &String| {
            let priority = priority.to_ascii_lowercase();
            priority.starts_with("spot") || priority == "low"
        };
        let is_spot = vm.priority.as_ref().is_some_and(is_spot);
        let stops =
            vm.eviction_policy.as_ref().is_some_and(|policy| policy.eq_ignore_ascii_case("deallocate"));
        (is_here && is_spot).then_some(if stops { Loss::Stopped } else { Loss::Deleted })
    }
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

/// Removes one pair of quotes: a unit's `EnvironmentFile` or a container's `--env-file` may keep them.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let within = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).map_or(text, str::trim)
}

fn is_name(scheme: &str) -> bool {
    (1..=20).contains(&scheme.len())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

impl StoreSettings {
    /// The settings before they are read: no queue of an unnamed file.
    pub(crate) fn unread() -> Self {
        let address = LocalAddress { path: std::path::PathBuf::new(), durability: Durability::default() };
        let queues = Queues { names: Vec::new(), shown: String::new() };
        Self { address: Address::Local(address), queues, container: ContainerName::default() }
    }

    /// Opens the store. What it is opened for decides what is created and checked.
    pub(crate) async fn open(&self, purpose: Purpose) -> Result<Opened> {
        self.open_queues(&self.queues, purpose).await
    }

    /// Opens the store with other queues.
    pub(crate) async fn open_queues(&self, queues: &Queues, purpose: Purpose) -> Result<Opened> {
        match &self.address {
            Address::Local(address) => {
                let store = sqlite::open(address, &queues.names, purpose).await?;
                Ok(Opened { drain: store.clone(), store })
            }
            Address::Azure(address) => {
                let opened = azure::open(address, &queues.names, &self.container, &purpose).await?;
                Ok(Opened { store: opened.store(), drain: opened.drain_store() })
            }
        }
    }

    /// Whether opening it again may succeed after this error. A role that was assigned minutes ago may
    /// not have arrived; a wrong key stays wrong.
    pub(crate) fn may_open_later(&self, error: &Error) -> bool {
        let by_identity = matches!(&self.address, Address::Azure(address) if address.uses_an_identity());
        error.is_temporary() || (by_identity && error.kind() == ErrorKind::Denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str) -> StoreSettings {
        StoreSettings { address: Address::parse(address, false).unwrap(), ..StoreSettings::unread() }
    }

    #[test]
    fn the_start_waits_for_roles_and_outages_and_not_for_wrong_keys() {
        let error = |kind| Error::new(kind, "open", "refused");
        for (address, waits) in [
            ("azure:thumbs", true),
            ("azure:thumbs?client_id=7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11", true),
            ("azure:thumbs?sv=1&sig=a", false),
            ("azurite", false),
            ("sqlite:own.db", false),
        ] {
            let store = settings(address);
            assert_eq!(store.may_open_later(&error(ErrorKind::Denied)), waits, "{address}");
            assert!(store.may_open_later(&error(ErrorKind::Unavailable)), "{address}");
            assert!(!store.may_open_later(&error(ErrorKind::Invalid)), "{address}");
        }
    }

    #[test]
    fn a_connection_string_needs_neither_a_protocol_nor_a_secret_and_quotes_are_removed() {
        let id = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
        for text in [
            format!("AccountName=thumbs;ClientId={id}"),
            format!("clientid={id};accountname=thumbs"),
            format!("\"AccountName=thumbs;ClientId={id}\""),
            " 'azure:thumbs' ".to_owned(),
            "\"HTTPS://thumbs.blob.core.windows.net/?sv=2022-11-02&sp=r&sig=a%2Bb\"".to_owned(),
        ] {
            let address = Address::parse(&text, false).unwrap();
            assert_eq!(address.to_string(), "azure:thumbs", "{text}");
        }
        let local = Address::parse("'sqlite:own.db'", false).unwrap();
        assert_eq!(local.to_string(), "sqlite:own.db");
        for text in ["\"", "''", "\"sqlite:own.db'"] {
            Address::parse(text, false).unwrap_err();
        }
    }

    #[test]
    fn an_eviction_takes_a_store_along_that_is_on_a_spot_vms_disk() {
        let vm = |priority: &str, policy: &str| {
            let compute = serde_json::json!({ "name": "a", "priority": priority, "evictionPolicy": policy });
            Compute::read(compute.to_string().as_bytes()).unwrap()
        };
        for (address, vm, loss) in [
            ("sqlite:own.db", vm("Spot", "Delete"), Some(Loss::Deleted)),
            ("sqlite:own.db", vm("spot", "deallocate"), Some(Loss::Stopped)),
            ("sqlite:own.db", vm("SpotPlus", ""), Some(Loss::Deleted)),
            ("sqlite:own.db", vm("Low", "Delete"), Some(Loss::Deleted)),
            ("azurite", vm("Spot", "Delete"), Some(Loss::Deleted)),
            ("sqlite:own.db", vm("Regular", ""), None),
            ("azure:thumbs", vm("Spot", "Delete"), None),
        ] {
            assert_eq!(settings(address).address.loss_at_eviction(&vm), loss, "{address}");
        }
    }
}
