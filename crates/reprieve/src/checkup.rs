//! The resources that a worker with given arguments would use, for the `reprieve` command's checks.

use std::sync::Arc;

use reprieve_azure::scheduled_events::Client as Metadata;
use reprieve_azure::storage::ContainerName;
use reprieve_core::dependency::Dependency;
use reprieve_core::worker::Settings;
use reprieve_core::{QueueName, Result};

use crate::settings::{Origin, WorkerArgs, WorkerSettings};
use crate::stores::StoreSettings;
pub use crate::stores::{Address as StoreAddress, Loss};

/// Everything that a worker would use, read in the same way. Reading it opens nothing and sends no
/// request.
#[derive(Debug)]
pub struct Checkup {
    /// Every setting, and where it came from.
    pub origins: Vec<Setting>,
    /// The store with jobs and their progress.
    pub store: StoreAddress,
    /// The queues that are used as one.
    pub queues: Vec<QueueName>,
    /// The container, for a store in Azure.
    pub container: ContainerName,
    /// The metadata service; `None` when it is off.
    pub metadata: Option<Metadata>,
    /// Whether the metadata service's address was given.
    pub metadata_given: bool,
    /// This VM's name, if it was given.
    pub vm_name: Option<String>,
    /// What jobs depend on besides the store, by the names in `reprieve.toml`.
    pub dependencies: Vec<(String, Arc<dyn Dependency>)>,
    /// The memory that one job of a kind takes, by the kinds' names in `reprieve.toml`.
    pub memory: Vec<(String, u64)>,
    /// The lease, the budget and the other settings of the worker itself.
    pub worker: Settings,
}

/// A setting, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The setting's name: the long flag without its hyphens.
    pub name: &'static str,
    /// The value as it was given, without secrets; empty when there is none.
    pub value: String,
    /// The flag, variable or file; `None` for a default.
    pub from: Option<String>,
}

impl Checkup {
    /// Reads the arguments, the environment and `reprieve.toml`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) lists everything that is wrong with them.
    pub fn read(args: &WorkerArgs) -> Result<Self> {
        let (settings, origins) = WorkerSettings::read_with_origins(args)?;
        let WorkerSettings { store, metadata, vm_name, worker, dependencies, kinds, .. } = settings;
        let StoreSettings { address, queues, container } = store;
        let metadata_given =
            origins.iter().any(|origin| origin.key == "metadata-url" && origin.place.is_some());
        let shown = address.to_string();
        let setting = |Origin { key, given, place }: Origin| {
            // A store's address as it was given may contain a secret.
            let value = if key == "store" { shown.clone() } else { given.text };
            Setting { name: key, value, from: place }
        };
        Ok(Self {
            origins: origins.into_iter().map(setting).collect(),
            store: address,
            queues: queues.names,
            container,
            metadata,
            metadata_given,
            vm_name,
            dependencies: dependencies.into_parts(),
            memory: kinds.memory(),
            worker,
        })
    }

    /// Returns a sentence for each amount of memory that is more than this machine has, or the cgroup that this process
    /// is in.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn too_much_memory(&self) -> Vec<String> {
        let kinds = self.memory.iter().map(|(kind, bytes)| (kind.as_str(), *bytes));
        let pools = crate::readings::memory_pools();
        reprieve_core::pressure::too_much_memory(&pools, self.worker.memory_reserve, kinds)
    }

    /// Returns nothing: how much memory there is, is read on Linux only.
    #[cfg(not(target_os = "linux"))]
    #[must_use]
    pub fn too_much_memory(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Own {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    #[test]
    fn settings_have_their_origins_and_no_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("own.toml");
        let store =
            "AccountName=thumbs;AccountKey=aHVudGVyMg==;BlobEndpoint=https://a;QueueEndpoint=https://b";
        std::fs::write(&file, format!("store = \"{store}\"\nlease = \"2m\"\n")).unwrap();
        let file = file.display().to_string();
        let own = Own::parse_from(["own", "--config", &file, "--queue", "photos"]);
        let checkup = Checkup::read(&own.worker).unwrap();
        let find = |name| checkup.origins.iter().find(|setting| setting.name == name).unwrap();
        let shown = |name| (find(name).value.as_str(), find(name).from.clone());
        assert_eq!(shown("store"), ("azure:thumbs", Some(format!("store in {file}"))));
        assert_eq!(shown("lease"), ("2m", Some(format!("lease in {file}"))));
        assert_eq!(shown("queue"), ("photos", Some("--queue".to_owned())));
        assert_eq!(shown("container"), ("reprieve", None));
        assert_eq!(checkup.origins.len(), crate::settings::keys().count());
        assert!(!format!("{checkup:?}").contains("aHVudGVyMg"));
    }
}
