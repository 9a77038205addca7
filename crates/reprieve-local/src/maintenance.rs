//! The maintenance thread that runs four times a second, at negligible cost.
//!
//! It releases the messages of dead processes, removes the files that they left and the rows that
//! have expired, and refuses operations that wait too long.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::damaged::Text;
use crate::expiry::{self, Expiry};
use crate::failure::{Failure, Outcome};
use crate::files;
use crate::session::{self, Session};
use crate::shared::Shared;
use crate::writer::Tx;

/// The interval of the rounds. A dead worker's messages are released within this time and one
/// commit.
const EVERY: Duration = Duration::from_millis(250);

/// Runs the thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Maintenance {
    _stop: Sender<()>,
}

impl Maintenance {
    /// Starts the thread. With `of_worker` it also cleans up after dead workers; only worker
    /// processes do.
    pub(crate) fn start(shared: Arc<Shared>, of_worker: bool) -> Outcome<Self> {
        let (stop, stopped) = channel();
        let keep = move || {
            let mut round = Round { shared, failing: false, expiry: Expiry::new() };
            while stopped.recv_timeout(round.pause()) == Err(RecvTimeoutError::Timeout) {
                round.shared.writer.refuse_overdue(&round.shared.files.write_lock());
                if of_worker {
                    round.clean_up();
                }
            }
        };
        std::thread::Builder::new()
            .name("reprieve-maintenance".to_owned())
            .spawn(keep)
            .map_err(|error| Failure::io(&error, Path::new("a thread")))?;
        Ok(Self { _stop: stop })
    }
}

struct Round {
    shared: Arc<Shared>,
    failing: bool,
    expiry: Expiry,
}

impl Round {
    fn pause(&self) -> Duration {
        if self.expiry.is_under_way() { expiry::BETWEEN_BITES } else { EVERY }
    }

    fn clean_up(&mut self) {
        let done = end_dead_sessions(&self.shared).and_then(|_released| {
            let due = self.shared.sweep_due.swap(false, Ordering::Relaxed);
            let swept = if due { sweep(&self.shared) } else { Ok(()) };
            swept.inspect_err(|_| self.shared.sweep_due.store(true, Ordering::Relaxed))
        });
        let done = done.and_then(|()| self.expiry.round(&self.shared));
        // At four rounds a second, only the first failure is logged.
        if let (Err(failure), false) = (&done, self.failing) {
            let error = failure.clone().during("clean up after dead workers");
            tracing::warn!(%error, "failed to sweep the store; retrying");
        }
        self.failing = done.is_err();
    }
}

/// Ends the sessions of dead processes, and returns how many messages they held. Blocks.
pub(crate) fn end_dead_sessions(shared: &Shared) -> Outcome<u64> {
    let own = shared.own_session();
    let sessions = shared.reader.rows("SELECT id, token, worker FROM session", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
    })?;
    let mut released = 0;
    for (id, token, worker) in sessions {
        let file = shared.files.sessions().join(token);
        if own == Some(id) {
            continue;
        }
        // Held until the session has ended, so that only one process ends it.
        let lock = match check(&file) {
            Ok(Life::Ended(lock)) => lock,
            Ok(Life::Alive) => continue,
            // A file that can't be read, such as another user's, must not block the cleanup of the
            // others.
            Err(error) => {
                if shared.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
                    tracing::warn!(
                        path = %file.display(), worker = worker.as_deref(), %error,
                        "can't tell whether this process is alive; its messages stay leased until their leases end"
                    );
                }
                continue;
            }
        };
        let messages = shared.writer.call_blocking(move |tx| session::end(tx, id), Ok)?;
        files::remove_if_there(&file);
        drop(lock);
        if messages > 0 {
            tracing::info!(worker = worker.as_deref(), messages, "released the messages of a dead process");
        } else {
            tracing::debug!(
                worker = worker.as_deref(),
                "ended the session of a dead process that held no messages"
            );
        }
        shared.sweep_due.store(true, Ordering::Relaxed);
        released += messages;
    }
    Ok(released)
}

enum Life {
    Alive,
    /// Contains the freed lock, unless the file is gone too.
    Ended(Option<File>),
}

fn check(file: &Path) -> io::Result<Life> {
    // Read access is enough for a lock, and another user's file allows no more.
    let lock = match File::open(file) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Life::Ended(None)),
        Err(error) => return Err(error),
    };
    match lock.try_lock() {
        Ok(()) => Ok(Life::Ended(Some(lock))),
        Err(TryLockError::WouldBlock) => Ok(Life::Alive),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the files of dead processes that no row refers to.
fn sweep(shared: &Shared) -> Outcome<()> {
    // The order matters. The session of a listed file began before the listing. If that session is
    // alive, the sessions read next contain it. If it has died, the rows read last contain all that
    // it committed.
    let (payloads, blobs) = (shared.files.payloads(), shared.files.blobs());
    let (payload_names, blob_names) = (names_in(&payloads)?, names_in(&blobs)?);
    let alive = shared.reader.rows("SELECT token FROM session", [], |row| row.get::<_, String>(0))?;
    let alive: HashSet<String> = alive.into_iter().collect();
    let used = |sql| -> Outcome<HashSet<String>> {
        Ok(shared.reader.rows(sql, [], |row| row.get(0).map(|Text(name)| name))?.into_iter().collect())
    };
    let used_payloads = used("SELECT file FROM payload WHERE file IS NOT NULL")?;
    let used_blobs = used("SELECT file FROM blob WHERE file IS NOT NULL")?;
    for (directory, names, used) in
        [(payloads, payload_names, used_payloads), (blobs, blob_names, used_blobs)]
    {
        let is_orphaned = |name: &&String| {
            Session::token_of(name).is_some_and(|token| !alive.contains(token)) && !used.contains(*name)
        };
        for name in names.iter().filter(is_orphaned) {
            files::remove_if_there(&directory.join(name));
        }
    }
    remove_session_files(shared)
}

/// Removes session files without a row.
fn remove_session_files(shared: &Shared) -> Outcome<()> {
    let sessions = shared.files.sessions();
    let apply = move |tx: &Tx<'_>| {
        // Sessions begin in a transaction too, so during this one no file is about to get its row.
        for token in names_in(&sessions)? {
            if tx.row("SELECT 1 FROM session WHERE token = ?1", [&token], |_| Ok(()))?.is_none() {
                files::remove_if_there(&sessions.join(token));
            }
        }
        Ok(())
    };
    shared.writer.call_blocking(apply, Ok)
}

fn names_in(directory: &Path) -> Outcome<Vec<String>> {
    let list = || -> io::Result<Vec<String>> {
        let entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
        // Our names are ASCII; files with other names are not ours and stay.
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    list().map_err(|error| Failure::io(&error, directory))
}
