//! One checkpoint saved or loaded through our store's port, with nothing else in the process: what the port needs memory for.

use anyhow::{Context, Result, ensure};
use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::ports::Store;
use reprieve_core::{JobId, QueueName};

use super::say;
use crate::sections::checkpoint::{name, write};

/// Its job.
const JOB: &str = "by-hand";

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
        store.records.put(&JobId::parse(JOB)?, None, write(0, vec![b'x'; self.bytes])).await?;
        stay().await
    }

    /// The same for a load.
    pub(super) async fn load(&self) -> Result<()> {
        let store = self.open().await?;
        let job = JobId::parse(JOB)?;
        store.records.load(&job).await?.context("there is no record")?;
        let state = store.records.payload(&job, &name(0)).await?.context("there is no payload")?;
        ensure!(state.len() == self.bytes, "it has {} bytes", state.len());
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
