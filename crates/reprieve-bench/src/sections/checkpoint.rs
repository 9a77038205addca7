//! Saving and loading checkpoints through the store's port, by size, with data that changes each
//! time.

use anyhow::{Context, Result, ensure};
use rand::RngCore;
use reprieve_core::ports::{Payload, RecordStore, RecordWrite, Version};
use reprieve_core::record::INLINE_BYTES_MAX;
use reprieve_core::{Bytes, JobId, MessageId, PayloadName};
use tokio::time::Instant;

use super::{Bench, say};
use crate::measure::{Kind, median};
use crate::place::{Durability, Place};

const SECTION: &str = "checkpoint";
const ROUNDS: usize = 5;

/// The sizes, and the number of saves and loads of each per round.
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
                let records = local.store().records;
                let (save, load) = measure(bench, &*records, bytes, bench.amount(times, 2)).await?;
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

/// Returns the median durations of saves and loads, in milliseconds. Each save writes the record's
/// newest checkpoint: small state inside the record, large state as a payload that replaces the
/// second-newest one.
pub(super) async fn measure(
    bench: &mut Bench,
    records: &dyn RecordStore,
    bytes: usize,
    times: usize,
) -> Result<(f64, f64)> {
    let job = JobId::parse(format!("bench-{bytes}"))?;
    let (mut saves, mut loads) = (Vec::new(), Vec::new());
    let mut last: Option<Version> = None;
    // The first save allocates space that later ones reuse.
    for time in 0..=times {
        let mut data = vec![0; bytes];
        bench.random.fill_bytes(&mut data);
        let write = write(time as u64, data.clone());
        let began = Instant::now();
        let version = records.put(&job, last.as_ref(), write).await?;
        let save = began.elapsed();
        let began = Instant::now();
        let record = records.load(&job).await?.context("a record that was written is not there")?;
        let mut loaded = Bytes::from(record.bytes);
        if bytes > INLINE_BYTES_MAX {
            let payload = records.payload(&job, &name(time as u64)).await?;
            loaded = payload.context("a payload that was written is not there")?;
        }
        let load = began.elapsed();
        ensure!(loaded == data, "a checkpoint was not loaded as it was saved");
        last = Some(version);
        if time > 0 {
            saves.push(save.as_secs_f64() * 1e3);
            loads.push(load.as_secs_f64() * 1e3);
        }
    }
    Ok((median(&saves), median(&loads)))
}

/// Returns the payload's name for this save.
pub(crate) fn name(number: u64) -> PayloadName {
    PayloadName::new(0, &MessageId::new("bench"), 1, number)
}

/// Returns the data of this save.
pub(crate) fn write(number: u64, data: Vec<u8>) -> RecordWrite {
    if data.len() <= INLINE_BYTES_MAX {
        return RecordWrite { record: data, ..RecordWrite::default() };
    }
    RecordWrite {
        record: format!("a record that names payload {number}").into_bytes(),
        payload: Some(Payload { name: name(number), bytes: data.into() }),
        obsolete: number.checked_sub(2).map(name).into_iter().collect(),
        ..RecordWrite::default()
    }
}
