//! Learns how often machines lose work, from which the interval of checkpoints follows.
//!
//! One worker counts the ledger for all: a blob in the store has the count, each worker reads it when it starts and
//! about once an hour, and whoever finds it an hour old counts anew. So a worker costs a read an hour, and a fleet a
//! read of its ledger and its roster an hour, however many workers it has. Nothing waits for it; without an answer
//! the intervals stay as they are. A worker whose interval is set reads nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::shared::Shared;
use crate::chance;
use crate::checkpoint::CheckpointEvery;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::BlobName;
use crate::ledger::{Count, Ledger};
use crate::names::LOST_WORK;
use crate::retry::bounded;

/// How often a worker reads the count, give or take a tenth. The first time after the start is after a random part of
/// it, so that a fleet that starts together finds the count of the first of them.
const LOOK_EVERY: Duration = Duration::from_hours(1);

/// The age from which a count is made anew.
const COUNT_EVERY: Duration = Duration::from_hours(1);

/// The longest time for a read or write of the count, and for counting.
const TRY: Duration = Duration::from_secs(10);
const COUNT_TRY: Duration = Duration::from_mins(5);

/// How old reports in the roster may be that tell until when machines were seen. Rosters keep a report for a day.
const REPORTS_MAX_AGE: Duration = Duration::from_hours(24);

const COUNT: &str = "count the losses of work";

/// Learns how often machines lose work, until the worker ends.
pub(super) async fn learn(shared: Arc<Shared>) {
    if shared.settings.checkpoint_every != CheckpointEvery::Auto {
        return;
    }
    let mut failed = false;
    let known = kept(&shared).await;
    note(&shared, known.map(Option::unwrap_or_default), &mut failed);
    sleep(LOOK_EVERY.mul_f64(chance::fraction())).await;
    loop {
        note(&shared, look(&shared).await, &mut failed);
        sleep(LOOK_EVERY.mul_f64(0.9 + chance::fraction() / 5.0)).await;
    }
}

/// Notes what a look brought; logs a failure once until it has passed.
fn note(shared: &Shared, looked: Result<Count>, failed: &mut bool) {
    match looked {
        Ok(count) => {
            shared.losses.set(count.losses(unix_millis()));
            *failed = false;
        }
        Err(error) => {
            if !*failed {
                tracing::warn!(
                    %error,
                    "failed to learn how often machines lose work; the intervals of checkpoints stay as they are"
                );
            }
            *failed = true;
        }
    }
}

/// Returns the count in the store, or makes a new one if that is due.
async fn look(shared: &Shared) -> Result<Count> {
    let kept = kept(shared).await?;
    let now = unix_millis();
    let every = i64::try_from(COUNT_EVERY.as_millis()).unwrap_or(i64::MAX);
    // One from the future is of a clock that is wrong.
    let is_fresh = |count: &Count| now.abs_diff(count.at_unix_ms) < every.unsigned_abs();
    match kept {
        Some(count) if is_fresh(&count) => Ok(count),
        _ => {
            let count = bounded(COUNT, COUNT_TRY, count(shared)).await?;
            if let Err(error) = keep(shared, &count).await {
                tracing::debug!(%error, "failed to keep the count of lost work; another worker counts again");
            }
            Ok(count)
        }
    }
}

async fn count(shared: &Shared) -> Result<Count> {
    let roster = &shared.store.roster;
    let mut reports = roster.reports(REPORTS_MAX_AGE).await?;
    reports.extend(roster.departed(REPORTS_MAX_AGE).await?);
    Ledger::new(Arc::clone(&shared.store.records)).count_losses(&reports).await
}

/// Reads the count in the store; `None` without one that can be read.
async fn kept(shared: &Shared) -> Result<Option<Count>> {
    let name = BlobName::parse(LOST_WORK)?;
    let json = bounded(COUNT, TRY, shared.store.blobs.get(&name)).await?;
    Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
}

async fn keep(shared: &Shared, count: &Count) -> Result<()> {
    let json = serde_json::to_vec(count)
        .map_err(|error| Error::new(ErrorKind::Internal, COUNT, error.to_string()).with_source(error))?;
    let name = BlobName::parse(LOST_WORK)?;
    bounded(COUNT, TRY, shared.store.blobs.put(&name, json, None)).await
}
