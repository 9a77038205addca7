//! The demo's store: an embedded store in its directory, or its own queue and container on the
//! storage emulator. Never a real account.

use std::fmt;
use std::time::Duration;

use reprieve::ports::Store;
use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options as AzureOptions};
use reprieve_local::{LocalStore, Options, QueueName};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::directory::{DemoDirectory, STORE_FILE};

/// The variable with the emulator's connection string; also gives the workers their store.
const VARIABLE: &str = "REPRIEVE_STORE";

/// The timeout of a connection to the emulator, which is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout of deleting the queue and the container.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker's drain and lease on the emulator. A Storage queue never learns that a process died, so
/// what a killed one held waits for the end of its lease: it is as short as outlasts such a drain,
/// in the whole seconds that the service counts in. A drain takes milliseconds, so a short budget
/// is enough.
const BUDGET: Duration = Duration::from_secs(4);
const LEASE: Duration = Duration::from_secs(6);
const _: () = assert!(2 * LEASE.as_millis() >= 3 * BUDGET.as_millis(), "a lease outlasts a drain");

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Sqlite,
    Azurite,
}

/// The store of one demo.
#[derive(Debug, Clone)]
pub(crate) enum DemoStore {
    /// In the demo's directory, and the next demo's to remove.
    Embedded,
    Emulator(Box<Emulator>),
}

/// A queue and a container on the emulator, both of one name that no other demo has.
#[derive(Clone)]
pub(crate) struct Emulator {
    address: Address,
    /// The address as text, with its key.
    text: String,
    name: String,
    options: AzureOptions,
}

impl StoreKind {
    /// Reads `--store`. The text is not repeated: it may be a secret, given in the wrong place.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            "azurite" => Ok(Self::Azurite),
            _ => Err(refused(
                "--store is sqlite or azurite: a demo never runs on a real account; a connection string in REPRIEVE_STORE \
                 gives the emulator's address",
            )),
        }
    }

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Azurite => "azurite",
        }
    }

    /// The lease that a killed worker's jobs wait for; `None` where the store detects that a worker
    /// died.
    pub(crate) const fn lease_to_wait_for(self) -> Option<Duration> {
        match self {
            Self::Sqlite => None,
            Self::Azurite => Some(LEASE),
        }
    }
}

impl DemoStore {
    /// Finds where the store will be. Nothing is made.
    ///
    /// # Errors
    /// `Invalid` when the emulator is not on this machine, or nothing listens there.
    pub(crate) async fn find(kind: StoreKind) -> Result<Self> {
        match kind {
            StoreKind::Sqlite => Ok(Self::Embedded),
            StoreKind::Azurite => {
                let given = std::env::var_os(VARIABLE).unwrap_or_default();
                let emulator = Emulator::at(&given.to_string_lossy())?;
                emulator.answers().await?;
                Ok(Self::Emulator(Box::new(emulator)))
            }
        }
    }

    pub(crate) const fn kind(&self) -> StoreKind {
        match self {
            Self::Embedded => StoreKind::Sqlite,
            Self::Emulator(_) => StoreKind::Azurite,
        }
    }

    /// Makes the store.
    ///
    /// It is opened directly, because the caller's other settings do not apply.
    pub(crate) async fn open(&self, directory: &DemoDirectory) -> Result<Store> {
        match self {
            Self::Embedded => {
                let options = Options::new(QueueName::parse("default")?);
                Ok(LocalStore::open(&directory.store(), options).await?.store())
            }
            Self::Emulator(emulator) => {
                Ok(AzureStore::open(&emulator.address, emulator.options.clone()).await?.store())
            }
        }
    }

    /// Configures a worker in the demo's directory to use this store. The address is in the
    /// environment, because it may be a secret and everybody on this machine can read a command
    /// line.
    pub(crate) fn configure(&self, worker: &mut Command) {
        match self {
            Self::Embedded => drop(worker.env(VARIABLE, format!("sqlite:{STORE_FILE}"))),
            Self::Emulator(emulator) => {
                worker.env(VARIABLE, &emulator.text);
                worker.args(["--queue", &emulator.name, "--container", &emulator.name]);
                worker.args(["--budget", &seconds(BUDGET), "--lease", &seconds(LEASE)]);
            }
        }
    }

    /// A line about the store to print first, if any.
    pub(crate) fn remark(&self) -> Option<String> {
        let Self::Emulator(emulator) = self else { return None };
        let Emulator { address, name, .. } = emulator.as_ref();
        Some(format!("store {address}, queue and container {name}, which are deleted at the end"))
    }

    /// Deletes what is not in the demo's directory. Returns a line for people when that fails.
    pub(crate) async fn clear(&self) -> Option<String> {
        let Self::Emulator(emulator) = self else { return None };
        let Emulator { address, name, options, .. } = emulator.as_ref();
        let why = match timeout(CLEAR_TIMEOUT, AzureStore::destroy(address, options)).await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error.message().to_owned(),
            Err(_) => format!("it took over {CLEAR_TIMEOUT:?}"),
        };
        Some(format!(
            "failed to delete the queues {name} and {name}-poison and the container {name} on {address}: {why}; delete \
             them yourself"
        ))
    }
}

impl Emulator {
    /// The one that `given`, the variable's text, means: by a connection string, or else on the
    /// usual ports.
    fn at(given: &str) -> Result<Self> {
        // --store wins over a variable that is about another kind of store.
        let text = if given.is_empty() || given.starts_with("sqlite:") { "azurite" } else { given };
        let address = Address::parse(text)
            .map_err(|error| refused(format!("{VARIABLE} is not an emulator: {}", error.message())))?;
        if address.on_this_machine().is_none() {
            return Err(refused(format!(
                "{VARIABLE} is {address}, but a demo never runs on a real account, only on an emulator at a loopback \
                 address; unset {VARIABLE} to use the one on the usual ports"
            )));
        }
        // Short, for readers; few demos share a machine.
        let name = format!("demo-{:08x}", rand::random::<u32>());
        let options =
            AzureOptions::new(vec![QueueName::parse(&name)?]).container(ContainerName::parse(&name)?);
        Ok(Self { address, text: text.to_owned(), name, options })
    }

    /// Fails at once when nothing listens; the store itself would retry.
    async fn answers(&self) -> Result<()> {
        for directory in self.address.on_this_machine().into_iter().flatten() {
            let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(&directory)).await;
            if !matches!(connected, Ok(Ok(_))) {
                return Err(refused(format!(
                    "nothing listens at {directory}; start Azurite with `cargo xtask azurite` in Reprieve's repository, or \
                     with `npx azurite@3.37.0 --skipApiVersionCheck`"
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator")
            .field("address", &self.address)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs())
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "prepare the demo", message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOM: &str = "AccountName=devstoreaccount1;AccountKey=aHVudGVyMg==;\
                          BlobEndpoint=http://127.0.0.1:1/devstoreaccount1;\
                          QueueEndpoint=http://localhost:2/devstoreaccount1";

    #[test]
    fn the_emulators_address_is_from_the_connection_string_or_the_default_ports() {
        for (given, places) in [
            ("", ["127.0.0.1:10000", "127.0.0.1:10001"]),
            ("azurite", ["127.0.0.1:10000", "127.0.0.1:10001"]),
            ("UseDevelopmentStorage=true", ["127.0.0.1:10000", "127.0.0.1:10001"]),
            ("sqlite:mine.db", ["127.0.0.1:10000", "127.0.0.1:10001"]),
            (CUSTOM, ["127.0.0.1:1", "localhost:2"]),
        ] {
            let emulator = Emulator::at(given).unwrap();
            assert_eq!(emulator.address.on_this_machine().unwrap(), places, "{given}");
        }
    }

    #[test]
    fn a_real_account_and_what_is_none_are_refused_without_repeating_a_secret() {
        let tunnel = CUSTOM.replace("localhost", "example.org");
        for (given, expected) in [
            ("azure:production", "azure:production, but a demo never runs on a real account"),
            (
                "azure:production?sv=1&sig=hunter2",
                "azure:production, but a demo never runs on a real account",
            ),
            ("AccountName=production;AccountKey=aHVudGVyMg==", "a demo never runs on a real account"),
            (&tunnel, "a demo never runs on a real account"),
            ("AccountKey=aHVudGVyMg==", "is not an emulator"),
            ("nonsense", "is not an emulator"),
        ] {
            let error = Emulator::at(given).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{given}");
            let shown = error.to_string();
            assert!(shown.contains(expected) && !shown.contains('\n'), "{given}: {shown}");
            assert!(!shown.contains("hunter2") && !shown.contains("aHVud"), "{shown}");
        }
        let shown = StoreKind::parse("AccountKey=aHVudGVyMg==").unwrap_err().to_string();
        assert!(shown.contains("never runs on a real account") && !shown.contains("aHVud"), "{shown}");
    }

    #[test]
    fn two_demos_do_not_share_a_name_and_a_key_does_not_show() {
        let (one, other) = (Emulator::at(CUSTOM).unwrap(), Emulator::at(CUSTOM).unwrap());
        assert_ne!(one.name, other.name);
        let home = DemoStore::Emulator(Box::new(one));
        let mut worker = Command::new("worker");
        home.configure(&mut worker);
        let flags: Vec<_> = worker.as_std().get_args().map(|flag| flag.to_string_lossy()).collect();
        let shown = format!("{home:?} {flags:?} {}", home.remark().unwrap());
        assert!(!shown.contains("aHVud"), "{shown}");
        assert!(flags.contains(&"--queue".into()) && !flags.contains(&"--store".into()), "{flags:?}");
    }
}
