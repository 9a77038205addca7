//! The cost of Reprieve on a storage account, compared with a hand-written loop, bare HTTP and
//! Celery: throughput, transactions, and the time that notices and checkpoints take. It runs on
//! Azurite, and on a storage double where Azurite itself would dominate the figures.

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
    // The long trials need little of the machine, so they run beside the others.
    let (work, quick) = (bench.work.clone(), bench.quick);
    let (asked, ()) = tokio::join!(patience::ask(&work, quick), rest(bench, azurite));
    patience::note(bench, asked);
    Ok(())
}

/// Runs the parts in sequence. A failed part is reported, and the others still run.
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
