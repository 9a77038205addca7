//! The parts of a store that its operations and its maintenance share.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use reprieve_core::{QueueName, WorkerId};

use crate::clock::StoreClock;
use crate::failure::Outcome;
use crate::files::Files;
use crate::reader::Reader;
use crate::session::Session;
use crate::writer::{Tx, Writer};

/// The shared state of the ports and the maintenance thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    pub(crate) clock: Arc<StoreClock>,
    /// Whether files of dead processes may exist: at the start, and after each death.
    pub(crate) sweep_due: AtomicBool,
    /// The sessions with unreadable files: each is logged once.
    pub(crate) unreadable: Mutex<HashSet<i64>>,
    pub(crate) owner: Option<WorkerId>,
    pub(crate) session: Mutex<Option<Arc<Session>>>,
}

impl Shared {
    /// This process's session, which begins at its first use. A process that only reads therefore
    /// leaves no trace, and can read even when the disk is full. Blocks.
    pub(crate) fn session(&self) -> Outcome<Arc<Session>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        let begun = Arc::new(Session::begin(&self.writer, &self.files, self.owner.as_ref())?);
        *session = Some(Arc::clone(&begun));
        Ok(begun)
    }

    pub(crate) fn own_session(&self) -> Option<i64> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|session| session.id())
    }

    /// Returns the row of the queue called `name`, and inserts it if it is missing. Blocks.
    pub(crate) fn queue_row(&self, name: &QueueName) -> Outcome<i64> {
        const FIND: &str = "SELECT id FROM queue WHERE name = ?1";
        if let Some(id) = self.reader.row(FIND, [name.as_str()], |row| row.get(0))? {
            return Ok(id);
        }
        let name = name.as_str().to_owned();
        let apply = move |tx: &Tx<'_>| match tx.row(FIND, [&name], |row| row.get(0))? {
            Some(id) => Ok(id),
            None => Ok(tx.insert("INSERT INTO queue(name) VALUES(?1)", [&name])?),
        };
        self.writer.call_blocking(apply, Ok)
    }
}
