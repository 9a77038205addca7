//! The application: one queue in one SQLite database, a job that does nothing and a job that takes a while.
//!
//! Settings, each with its reason:
//!
//! - The pragmas are those of `SqliteStorage::setup`: WAL, synchronous=OFF and so on. It sets them on the one connection
//!   of the pool that it is run on; here every connection has them, as otherwise some would sync and be slower.
//! - Every process runs `setup`, as in the documentation. Its `PRAGMA optimize` matters: a worker is more than ten times
//!   slower on a full queue that SQLite has no statistics of. Processes do it one after the other, as migrations don't
//!   lock, and again when the database is locked, as SQLite gives up at once where a read turns into a write.
//! - The busy timeout is 30 s where it is 5 s by default, as several processes write.
//! - `batch_size(50)`, the documentation's example for more throughput: twice that of the default of 10.
//! - Otherwise `Config::default()`: jobs locked while they run, results kept, a heartbeat every 30 s of which two may
//!   be missed.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqliteStorage};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

const BUSY: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(20);

/// The jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Does nothing.
    Noop { payload: String },
    /// Appends a line to the journal at each tick.
    Ticks { count: u64, milliseconds: u64 },
}

/// Opens the database in a directory, and makes it and its tables when it is new.
pub async fn open(dir: &Path) -> anyhow::Result<SqlitePool> {
    let alone = File::create(dir.join("setup.lock"))?;
    alone.lock()?;
    let options = SqliteConnectOptions::new()
        .filename(dir.join("queue.db"))
        .create_if_missing(true)
        .busy_timeout(BUSY)
        .pragma("journal_mode", "WAL")
        .pragma("temp_store", "MEMORY")
        .pragma("synchronous", "OFF")
        .pragma("cache_size", "64000")
        .pragma("journal_size_limit", "67108864");
    let pool = SqlitePool::connect_with(options).await?;
    set_up(&pool).await?;
    drop(alone);
    Ok(pool)
}

async fn set_up(pool: &SqlitePool) -> Result<(), apalis_sqlite::Error> {
    let limit = Instant::now() + BUSY;
    loop {
        match SqliteStorage::setup(pool).await {
            Err(error) if error.to_string().contains("locked") && Instant::now() < limit => {
                sleep(AGAIN).await;
            }
            result => return result,
        }
    }
}

pub fn of(pool: &SqlitePool) -> SqliteStorage<Job> {
    SqliteStorage::new(pool).with_config(Config::default().queue("bench").batch_size(50))
}
