//! Sessions: how the processes of a machine detect that one of them has died.
//!
//! A process that leases messages keeps a file in `sessions/` locked for its whole life, and the
//! kernel releases the lock the moment it dies, from any cause. A frozen process still holds its
//! lock, and keeps its leases until they end.
//!
//! The steps, each of which another process may see at any moment:
//! 1. The process creates the file under a name that is never used again, and locks it.
//! 2. It commits the row of `session`. Only now do others check the file, and they find it locked.
//! 3. The process dies. The process that gets the lock first ends the session in one transaction,
//!    and then removes the file.
//!
//! A row without a file is a dead process's too: after a power loss the row may be all that is
//! left.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_core::WorkerId;
use uuid::Uuid;

use crate::failure::{Failure, Fault, Outcome};
use crate::files::{self, Files};
use crate::store::Shared;
use crate::writer::{Tx, Writer};

/// This process's session.
#[derive(Debug)]
pub(crate) struct Session {
    id: i64,
    token: String,
    file: PathBuf,
    files_made: AtomicU64,
    /// Locked for as long as the session lasts.
    _lock: File,
}

impl Session {
    /// Begins a session. When it ends, the report of `worker` is removed. Blocks.
    pub(crate) fn begin(writer: &Writer, files: &Files, worker: Option<&WorkerId>) -> Outcome<Self> {
        let token = Uuid::now_v7().simple().to_string();
        let file = files.sessions().join(&token);
        let worker = worker.map(|worker| worker.as_str().to_owned());
        let (row, path) = (token.clone(), file.clone());
        let apply = move |tx: &Tx<'_>| {
            let lock = locked(&path).map_err(|error| Failure::io(&error, &path))?;
            let id = tx.insert("INSERT INTO session(token, worker) VALUES(?1, ?2)", (&row, &worker))?;
            Ok((id, lock))
        };
        let begun = writer.call_blocking(apply, Ok);
        let (id, lock) = begun.inspect_err(|_| files::remove_if_there(&file))?;
        Ok(Self { id, token, file, files_made: AtomicU64::new(0), _lock: lock })
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// A file name that is never used again, and that contains the session's token.
    pub(crate) fn new_file_name(&self) -> String {
        format!("{}-{}", self.token, self.files_made.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

fn locked(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.try_lock()?;
    Ok(file)
}

/// Releases the session's messages and removes the session; returns how many messages it held.
/// Their dequeue counts stay as they are. They keep their place in the queue: half-finished work
/// need not wait behind new work.
pub(crate) fn end(tx: &Tx<'_>, id: i64) -> Result<u64, Fault> {
    let worker =
        tx.row("SELECT worker FROM session WHERE id = ?1", [id], |row| row.get::<_, Option<String>>(0))?;
    let given_back = tx.execute(
        "UPDATE msg SET visible_at = min(?2, (SELECT queued_at FROM body WHERE body.id = msg.id)), rev = rev + 1,
           holder = NULL
         WHERE queue IN (SELECT id FROM queue) AND visible_at > ?2 AND holder = ?1",
        [id, tx.now],
    )?;
    tx.execute("DELETE FROM session WHERE id = ?1", [id])?;
    if let Some(worker) = worker.flatten() {
        tx.execute(
            "DELETE FROM report WHERE worker = ?1 AND NOT EXISTS (SELECT 1 FROM session WHERE worker = ?1)",
            [worker],
        )?;
    }
    if given_back > 0 {
        tx.ring();
    }
    Ok(given_back as u64)
}

/// Ends the sessions of dead processes, and returns how many messages they held. Blocks.
pub(crate) fn end_the_dead(shared: &Shared) -> Outcome<u64> {
    let own = shared.own_session();
    let sessions = shared.reader.rows("SELECT id, token, worker FROM session", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
    })?;
    let mut given_back = 0;
    for (id, token, worker) in sessions {
        let file = shared.files.sessions().join(token);
        if own == Some(id) {
            continue;
        }
        // Held until the session has ended, so that only one process ends it.
        let lock = match look(&file) {
            Ok(Life::Over(lock)) => lock,
            Ok(Life::Alive) => continue,
            // A file that can't be read, such as another user's, must not block the cleanup of the
            // others.
            Err(error) => {
                if shared.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
                    tracing::warn!(
                        path = %file.display(), worker = worker.as_deref(), %error,
                        "can't tell whether this process lives; what it holds stays leased until the leases end"
                    );
                }
                continue;
            }
        };
        let messages = shared.writer.call_blocking(move |tx| end(tx, id), Ok)?;
        files::remove_if_there(&file);
        drop(lock);
        if messages > 0 {
            tracing::info!(worker = worker.as_deref(), messages, "gave back what a dead process held");
        } else {
            tracing::debug!(
                worker = worker.as_deref(),
                "ended the session of a dead process, which held nothing"
            );
        }
        shared.sweep_due.store(true, Ordering::Relaxed);
        given_back += messages;
    }
    Ok(given_back)
}

enum Life {
    Alive,
    /// Contains the freed lock, unless the file is gone too.
    Over(Option<File>),
}

fn look(file: &Path) -> io::Result<Life> {
    // Read access is enough for a lock, and another user's file allows no more.
    let lock = match File::open(file) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Life::Over(None)),
        Err(error) => return Err(error),
    };
    match lock.try_lock() {
        Ok(()) => Ok(Life::Over(Some(lock))),
        Err(TryLockError::WouldBlock) => Ok(Life::Alive),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
