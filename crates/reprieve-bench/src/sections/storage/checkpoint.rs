//! Saving and loading checkpoints on storage through the port, by size, with data that changes each
//! time.

use anyhow::Result;

use crate::measure::Kind;
use crate::sections::{Bench, checkpoint, say};
use crate::site;
use crate::tenancy::Tenancy;

const SECTION: &str = "storage checkpoint";
const ROUNDS: usize = 3;

/// The sizes, and the number of saves and loads of each per round.
pub(super) const SIZES: [(&str, usize, usize); 3] =
    [("4 KiB", 4 << 10, 50), ("1 MiB", 1 << 20, 10), ("100 MiB", 100 << 20, 1)];

pub(super) async fn run(bench: &mut Bench, azurite: Option<site::Kind>) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        for kind in azurite.into_iter().chain([site::Kind::DOUBLE]) {
            say(&format!("{SECTION}, round {}: on {}", round + 1, kind.name()));
            let site = kind.start(&bench.work).await?;
            let tenancy = Tenancy::new(&site, &bench.work).await?;
            for (name, bytes, times) in SIZES {
                let records = &*tenancy.store().records;
                let (save, load) = checkpoint::measure(bench, records, bytes, bench.amount(times, 1)).await?;
                let measure =
                    |what: &str| Kind::lower(SECTION, format!("{what} {name}, {}", kind.name()), "ms");
                bench.add(measure("save"), save);
                bench.add(measure("load"), load);
            }
        }
    }
    Ok(())
}
