//! The keeper: a maintenance thread that runs four times a second, at negligible cost.
//!
//! It releases the messages of dead processes, removes the files that they left, and refuses
//! operations that wait too long.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use reprieve_core::clock::unix_millis;

use crate::failure::{Failure, Outcome};
use crate::files;
use crate::session;
use crate::store::Shared;
use crate::writer::Tx;

/// The interval of the rounds. A dead worker's messages are released within this time and one
/// commit.
const EVERY: Duration = Duration::from_millis(250);

/// How long the fence of a write is kept: longer than any superseded owner survives.
const FENCE_KEPT_MS: i64 = 30 * 86_400_000;

/// How long a report without a session is kept when its worker never returns.
const REPORT_KEPT_MS: i64 = 86_400_000;

/// Runs the thread until it is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    _stop: Sender<()>,
}

impl Keeper {
    /// Starts the thread. With `of_worker` it also cleans up after dead workers; only worker
    /// processes do.
    pub(crate) fn start(shared: Arc<Shared>, of_worker: bool) -> Outcome<Self> {
        let (stop, stopped) = channel();
        let keep = move || {
            let mut round = Round { shared, failing: false };
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                round.shared.writer.refuse_overdue(&round.shared.files.write_lock());
                if of_worker {
                    round.look_after_the_dead();
                }
            }
        };
        std::thread::Builder::new()
            .name("reprieve-keeper".to_owned())
            .spawn(keep)
            .map_err(|error| Failure::io(&error, Path::new("a thread")))?;
        Ok(Self { _stop: stop })
    }
}

struct Round {
    shared: Arc<Shared>,
    failing: bool,
}

impl Round {
    fn look_after_the_dead(&mut self) {
        let done = session::end_the_dead(&self.shared).and_then(|_given_back| {
            let due = self.shared.sweep_due.swap(false, Ordering::Relaxed);
            let swept = if due { sweep(&self.shared) } else { Ok(()) };
            swept.inspect_err(|_| self.shared.sweep_due.store(true, Ordering::Relaxed))
        });
        // At four rounds a second, only the first failure is logged.
        if let (Err(failure), false) = (&done, self.failing) {
            tracing::warn!(error = %failure.clone().during("look after dead workers"), "will go on trying");
        }
        self.failing = done.is_err();
    }
}

/// Removes files that no row refers to and whose process is dead.
fn sweep(shared: &Shared) -> Outcome<()> {
    // The order matters. The session of a listed file began before the listing. If that session is
    // alive, the sessions read next contain it. If it has died, the rows read last contain all that
    // it committed.
    let (temporary, payloads) = (shared.files.temporary(), shared.files.payloads());
    let (temporary_names, payload_names) = (names_in(&temporary)?, names_in(&payloads)?);
    let alive = shared.reader.rows("SELECT token FROM session", [], |row| row.get::<_, String>(0))?;
    let alive: HashSet<String> = alive.into_iter().collect();
    let orphaned = |name: &String| name.split_once('-').is_none_or(|(token, _)| !alive.contains(token));
    for name in temporary_names.into_iter().filter(orphaned) {
        files::remove_if_there(&temporary.join(name));
    }
    for name in payload_names.into_iter().filter(orphaned) {
        let used = shared.reader.row("SELECT 1 FROM payload WHERE file = ?1", [&name], |_| Ok(()))?;
        if used.is_none() {
            files::remove_if_there(&payloads.join(name));
        }
    }
    forget(shared)
}

/// Removes expired rows, and session files without a row.
fn forget(shared: &Shared) -> Outcome<()> {
    let sessions = shared.files.sessions();
    let apply = move |tx: &Tx<'_>| {
        tx.execute("DELETE FROM fence WHERE at < ?1", [tx.now - FENCE_KEPT_MS])?;
        // Reports contain the wall clock's time, not the store's.
        tx.execute("DELETE FROM report WHERE at < ?1", [unix_millis() - REPORT_KEPT_MS])?;
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
