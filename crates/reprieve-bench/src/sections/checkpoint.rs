//! Saving and loading checkpoints through the store's port, by size, with data that changes each time.

use anyhow::{Context, Result, ensure};
use rand::RngCore;
use reprieve_core::ports::{CheckpointStore, Version};
use tokio::time::Instant;

use super::{Bench, say};
use crate::measure::{Kind, median};
use crate::place::{Durability, Place};

const SECTION: &str = "checkpoint";
const ROUNDS: usize = 5;

/// Sizes, and how often each is saved and loaded in a round.
const SIZES: [(&str, usize, usize); 5] = [
    ("1 KiB", 1 << 10, 200),
    ("64 KiB", 64 << 10, 100),
    ("256 KiB", 256 << 10, 50),
    ("1 MiB", 1 << 20, 20),
    ("16 MiB", 16 << 20, 5),
];

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("checkpoint, round {}", round + 1));
        for durability in Durability::ALL {
            let place = Place::new(&bench.work, durability)?;
            let local = place.open().await?;
            for (name, bytes, times) in SIZES {
                let checkpoints = local.store().checkpoints;
                let (save, load) = measure(bench, &*checkpoints, bytes, bench.amount(times, 2)).await?;
                let kind = |what: &str| {
                    Kind::lower(SECTION, format!("{what} {name}, {}", durability.as_str()), "ms")
                };
                bench.add(kind("save"), save);
                bench.add(kind("load"), load);
            }
        }
    }
    Ok(())
}

/// The medians of saves and loads, in milliseconds.
pub(super) async fn measure(
    bench: &mut Bench,
    checkpoints: &dyn CheckpointStore,
    bytes: usize,
    times: usize,
) -> Result<(f64, f64)> {
    let key = format!("bench-{bytes}/a");
    let (mut saves, mut loads) = (Vec::new(), Vec::new());
    let mut last: Option<Version> = None;
    // The first one makes room, which the others find made.
    for time in 0..=times {
        let mut data = vec![0; bytes];
        bench.random.fill_bytes(&mut data);
        let bytes = data.clone();
        let began = Instant::now();
        let version = checkpoints.save(&key, last.as_ref(), bytes).await?;
        let save = began.elapsed();
        let began = Instant::now();
        let loaded = checkpoints.load(&key).await?.context("a checkpoint that was saved is not there")?;
        let load = began.elapsed();
        ensure!(loaded.bytes == data, "a checkpoint was not loaded as it was saved");
        last = Some(version);
        if time > 0 {
            saves.push(save.as_secs_f64() * 1e3);
            loads.push(load.as_secs_f64() * 1e3);
        }
    }
    Ok((median(&saves), median(&loads)))
}
