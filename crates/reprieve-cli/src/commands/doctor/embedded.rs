//! Checks of an embedded store: its file, its disk, its queues and its latency.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve::checkup::Checkup;
use reprieve::ports::{NewMessage, Receipt};
use reprieve::{Error, ErrorKind, Result, WorkerId};
use reprieve_azure::storage::check::Next;
use reprieve_local::{Address, Durability, LocalStore, Options, QueueName};
use tokio::time::{Instant, timeout};

use super::disk::{self, Kind};
use super::finding::{Finding, explained};
use super::queues::Queue;
use super::{pace, queues};
use crate::format::{bytes, duration};

/// The longest that one check takes.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// The most renewals that are measured, and the longest time for them.
const ROUND_TRIPS: usize = 20;
const MEASURE_MAX: Duration = Duration::from_secs(4);

/// Free bytes below which there is a warning, and below which jobs fail to save: a problem.
const FREE_WARNING: u64 = 1 << 30;
const FREE_PROBLEM: u64 = 64 << 20;

/// The cure for a failure that names none.
const LOOK: &str = "check that this user may read and write the file and its directory";

pub(super) async fn examine(checkup: &Checkup, address: &Address) -> Vec<Finding> {
    let mut findings = Vec::new();
    let directory = match directory_of(&address.path) {
        Ok(directory) => directory,
        Err(error) => {
            findings.push(Finding::of("store", &error, "create the directory, or give --store another path"));
            for name in ["file system", "free space", "durability", "queues", "round trip", "lease", "drain"]
            {
                findings.push(Finding::skipped(name, "the file's directory does not exist"));
            }
            return findings;
        }
    };
    let there = address.path.exists();
    findings.push(store(address, there));
    findings.push(file_system(&directory));
    findings.push(free_space(&directory));
    findings.push(durability(address.durability));
    findings.extend(if there {
        looked(checkup, address).await
    } else {
        vec![Finding::skipped("queues", "the store does not exist yet")]
    });
    findings.extend(measured(checkup, address, &directory).await);
    findings
}

/// The directory that holds the file, which must be there.
fn directory_of(path: &Path) -> Result<PathBuf> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if directory.is_dir() {
        return Ok(directory.to_owned());
    }
    let message = format!("there is no directory {} for the file", directory.display());
    Err(Error::new(ErrorKind::NotFound, "look at the store", message))
}

fn store(address: &Address, there: bool) -> Finding {
    let path = address.path.display();
    if !there {
        return Finding::ok(
            "store",
            format!("{path} does not exist yet; the first worker or `reprieve enqueue` creates it"),
        );
    }
    let size = address.path.metadata().map(|found| found.len()).unwrap_or_default();
    Finding::ok("store", format!("{path}, {}", bytes(size))).with("file_bytes", size)
}

fn file_system(directory: &Path) -> Finding {
    const NAME: &str = "file system";
    let Some(name) = disk::file_system(directory) else {
        return Finding::skipped(NAME, "this system does not report it");
    };
    let finding = match Kind::of(&name) {
        Kind::Local => Finding::ok(NAME, name.as_str()),
        Kind::Network => Finding::problem(
            NAME,
            format!("{name}: its locks do not work across machines as the store needs"),
            "put the file on a local disk; to share a store between machines, use Azure",
        ),
        Kind::Memory => Finding::warning(
            NAME,
            format!("{name}: the store is lost when the machine stops"),
            "put the file on a disk, unless the jobs may be lost",
        ),
        Kind::Layer => Finding::warning(
            NAME,
            format!("{name}: the store is lost when the container stops"),
            "put the file on a volume, unless the jobs may be lost",
        ),
    };
    finding.with("kind", name)
}

fn free_space(directory: &Path) -> Finding {
    const NAME: &str = "free space";
    const CURE: &str = "free disk space, or put the file on a larger disk";
    let Some(free) = disk::free(directory) else {
        return Finding::skipped(NAME, "this system does not report it");
    };
    let seen = bytes(free);
    let finding = match free {
        ..FREE_PROBLEM => Finding::problem(NAME, seen, CURE),
        FREE_PROBLEM..FREE_WARNING => Finding::warning(NAME, seen, CURE),
        _ => Finding::ok(NAME, seen),
    };
    finding.with("free_bytes", free)
}

fn durability(durability: Durability) -> Finding {
    let (word, seen) = match durability {
        Durability::PowerLoss => ("power-loss", "a commit survives a power loss"),
        Durability::Process => {
            ("process", "a commit survives a process crash; a power loss may undo the last commits")
        }
    };
    Finding::ok("durability", seen).with("durability", word)
}

/// The findings about the queues of an existing store.
async fn looked(checkup: &Checkup, address: &Address) -> Vec<Finding> {
    let mut looks = Vec::new();
    for name in &checkup.queues {
        let depth = bounded("look at the queue", depth(address, name)).await;
        let (messages, poisoned) = match depth {
            Ok((messages, poisoned)) => (Ok(messages), Ok(poisoned)),
            Err(error) => {
                let again = Error::new(error.kind(), error.operation(), error.message());
                (Err(error), Err(again))
            }
        };
        let poison = name.poison().as_str().to_owned();
        let next = Ok(Next::default());
        looks.push(Queue { name: name.as_str().to_owned(), poison, messages, poisoned, next });
    }
    queues::judged(&looks, true)
}

async fn depth(address: &Address, name: &QueueName) -> Result<(u64, u64)> {
    let options = Options::new(name.clone()).durability(address.durability).existing();
    let store = LocalStore::open(&address.path, options).await?.store();
    let depth = store.queue.depth().await?;
    Ok((depth.total, depth.poisoned.unwrap_or_default()))
}

/// Measures renewals in a scratch store beside this one.
async fn measured(checkup: &Checkup, address: &Address, directory: &Path) -> Vec<Finding> {
    let scratch = directory.join(format!(".reprieve-doctor-{}", WorkerId::unique()));
    let made = std::fs::create_dir(&scratch);
    let trips = match made {
        Ok(()) => bounded("measure the store", renewals(&scratch, address.durability)).await,
        Err(error) => {
            let message = format!("{} can't be written: {error}", directory.display());
            Err(Error::new(ErrorKind::Denied, "measure the store", message).with_source(error))
        }
    };
    let mut findings = Vec::new();
    // Only what was made is removed.
    if scratch.is_dir()
        && let Err(error) = std::fs::remove_dir_all(&scratch)
    {
        let seen = format!("{} could not be removed: {error}", scratch.display());
        findings.push(Finding::warning("clearing up", seen, "remove it; it is harmless"));
    }
    match trips {
        Ok(trips) => findings.extend(pace::judged(&checkup.worker, &trips, "nothing was measured")),
        Err(error) => {
            findings.push(Finding::of("writing", &error, LOOK));
            findings.extend(pace::judged(&checkup.worker, &[], &explained(&error).0));
        }
    }
    findings
}

async fn renewals(directory: &Path, durability: Durability) -> Result<Vec<Duration>> {
    const LEASE: Duration = Duration::from_secs(60);
    let options = Options::new(QueueName::parse("reprieve-doctor")?).durability(durability);
    let queue = LocalStore::open(&directory.join("scratch.db"), options).await?.store().queue;
    queue.send(vec![NewMessage { body: b"{}".to_vec(), delay: Duration::ZERO }]).await?;
    let mut received = queue.receive(1, LEASE).await?;
    let lost =
        || Error::new(ErrorKind::Internal, "measure the store", "a message that was sent was not received");
    let mut receipt: Receipt = received.pop().ok_or_else(lost)?.receipt;
    let (began, mut trips) = (Instant::now(), Vec::new());
    while trips.len() < ROUND_TRIPS && began.elapsed() < MEASURE_MAX {
        let asked = Instant::now();
        receipt = queue.renew(&receipt, LEASE).await?;
        trips.push(asked.elapsed());
    }
    queue.complete(&receipt).await?;
    Ok(trips)
}

async fn bounded<T>(operation: &'static str, check: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(CHECK_MAX, check).await.unwrap_or_else(|_| {
        let message = format!("the file system did not answer within {}", duration(CHECK_MAX));
        Err(Error::new(ErrorKind::TimedOut, operation, message))
    })
}
