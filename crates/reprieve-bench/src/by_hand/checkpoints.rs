//! Saves or loads one checkpoint through the store's port in a process that does nothing else, to
//! measure the port's memory.

use anyhow::{Context, Result, ensure};
use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::ports::Store;
use reprieve_core::record::INLINE_BYTES_MAX;
use reprieve_core::{JobId, QueueName};

use super::say;
use crate::sections::checkpoint::{name, write};

/// The job that owns the checkpoint.
const JOB: &str = "by-hand";

/// The checkpoint to save or load.
#[derive(Debug, clap::Args)]
pub(super) struct Checkpoint {
    /// The store's address
    #[arg(long, env = "REPRIEVE_STORE", hide_env_values = true)]
    store: String,

    /// The queue's name
    #[arg(long)]
    queue: String,

    /// The container's name
    #[arg(long)]
    container: String,

    /// The checkpoint's length in bytes
    #[arg(long)]
    bytes: usize,
}

impl Checkpoint {
    /// Saves the checkpoint, prints a line, and waits to be killed, so that its memory can be
    /// measured.
    pub(super) async fn save(&self) -> Result<()> {
        let store = self.open().await?;
        store.records.put(&JobId::parse(JOB)?, None, write(0, vec![b'x'; self.bytes])).await?;
        stay().await
    }

    /// Loads the checkpoint, prints a line, and waits to be killed.
    pub(super) async fn load(&self) -> Result<()> {
        let store = self.open().await?;
        let job = JobId::parse(JOB)?;
        let stored = store.records.load(&job).await?.context("there is no record")?;
        // Held until the process ends: its memory is measured.
        let state = if self.bytes <= INLINE_BYTES_MAX {
            stored.bytes.into()
        } else {
            store.records.payload(&job, &name(0)).await?.context("there is no payload")?
        };
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
