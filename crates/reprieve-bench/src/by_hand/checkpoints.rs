//! One checkpoint saved or loaded through our store's port, with nothing else in the process: what the port needs memory for.

use anyhow::{Context, Result, ensure};
use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::QueueName;
use reprieve_core::ports::Store;

use super::say;

/// Its key.
const KEY: &str = "by-hand/0";

/// Which checkpoint.
#[derive(Debug, clap::Args)]
pub(super) struct Checkpoint {
    /// The store's address
    #[arg(long, env = "REPRIEVE_STORE", hide_env_values = true)]
    store: String,

    /// Its queue
    #[arg(long)]
    queue: String,

    /// Its container
    #[arg(long)]
    container: String,

    /// How long it is
    #[arg(long)]
    bytes: usize,
}

impl Checkpoint {
    /// Saves it, says so, and stays until it is killed, so that it can be looked at.
    pub(super) async fn save(&self) -> Result<()> {
        let store = self.open().await?;
        store.checkpoints.save(KEY, None, vec![b'x'; self.bytes]).await?;
        stay().await
    }

    /// The same for a load.
    pub(super) async fn load(&self) -> Result<()> {
        let store = self.open().await?;
        let stored = store.checkpoints.load(KEY).await?.context("there is no checkpoint")?;
        ensure!(stored.bytes.len() == self.bytes, "it has {} bytes", stored.bytes.len());
        stay().await
    }

    async fn open(&self) -> Result<Store> {
        let options = Options::new(vec![QueueName::parse(&self.queue)?])
            .container(ContainerName::parse(&self.container)?);
        Ok(AzureStore::open(&Address::parse(&self.store)?, options).await?.store())
    }
}

async fn stay() -> Result<()> {
    say("done");
    std::future::pending().await
}
