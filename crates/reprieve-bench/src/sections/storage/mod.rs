//! What Reprieve costs on a storage account: beside a loop by hand, bare HTTP and Celery; in transactions; and in the time
//! that notices and checkpoints take. On Azurite, and on a storage double where Azurite itself would be what is measured.

mod checkpoint;
mod counting;
mod memory;
mod notice;
mod patience;
mod throughput;
mod transactions;

use anyhow::Result;

use super::Bench;
use crate::site::{Kind, azurite_is_there};

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let azurite = match azurite_is_there() {
        Ok(()) => Some(Kind::Azurite),
        Err(error) => {
            bench.missed("storage on Azurite", &error);
            None
        }
    };
    // What takes minutes, and next to nothing of the machine, goes on beside the rest.
    let (work, quick) = (bench.work.clone(), bench.quick);
    let (asked, ()) = tokio::join!(patience::ask(&work, quick), rest(bench, azurite));
    patience::note(bench, asked);
    Ok(())
}

/// One after the other; what fails is told, and the others go on.
async fn rest(bench: &mut Bench, azurite: Option<Kind>) {
    if let Err(error) = throughput::run(bench, azurite).await {
        bench.missed("storage throughput", &error);
    }
    if let Err(error) = transactions::run(bench).await {
        bench.missed("storage transactions", &error);
    }
    if let Err(error) = notice::run(bench, azurite).await {
        bench.missed("storage notice", &error);
    }
    if let Err(error) = checkpoint::run(bench, azurite).await {
        bench.missed("storage checkpoint", &error);
    }
    if let Err(error) = memory::run(bench).await {
        bench.missed("storage memory", &error);
    }
}
