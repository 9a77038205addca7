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

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_core::WorkerId;
use uuid::Uuid;

use crate::failure::{Failure, Fault, Outcome};
use crate::files::{self, Files};
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
    /// Begins a session. When it ends, the report of `worker` is not shown any more. Blocks.
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

    /// Returns the session's token from a file name made by [`new_file_name`](Self::new_file_name);
    /// `None` for another program's file.
    pub(crate) fn token_of(file_name: &str) -> Option<&str> {
        let (token, number) = file_name.split_once('-')?;
        let ours = Uuid::try_parse(token).is_ok() && number.parse::<u64>().is_ok();
        ours.then_some(token)
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
    let released = tx.execute(
        "UPDATE msg SET invisible = 0, visible_at = (SELECT queued_at FROM body WHERE body.id = msg.id), rev = rev + 1,
           holder = NULL
         WHERE queue IN (SELECT id FROM queue) AND invisible = 1 AND holder = ?1",
        [id],
    )?;
    tx.execute("DELETE FROM session WHERE id = ?1", [id])?;
    if let Some(worker) = worker.flatten() {
        // A worker that stops has withdrawn its report. That of one that died is kept for the ledger, under a time
        // before 1970, so that it is shown no more.
        tx.execute(
            "UPDATE report SET at = -at WHERE worker = ?1 AND at > 0
               AND NOT EXISTS (SELECT 1 FROM session WHERE worker = ?1)",
            [worker],
        )?;
    }
    if released > 0 {
        tx.ring();
    }
    Ok(released as u64)
}
