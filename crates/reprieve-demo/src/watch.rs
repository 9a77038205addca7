//! Watches the workers, by what they write: the journal of their steps, and their logs.

use std::path::PathBuf;

use reprieve::{Error, ErrorKind, Result};

use crate::board::{Board, News};
use crate::follow::Followed;
use crate::journal::Entry;
use crate::log::{Logged, Said};
use crate::place::{self, Place};

/// Everything that was written so far.
#[derive(Debug)]
pub(crate) struct Watch {
    logs: PathBuf,
    journal: Followed,
    /// The log of each VM, also of those that are gone.
    by_vm: Vec<(String, Followed)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) logged: Vec<Logged>,
}

impl Watch {
    /// Of the workers in `place`.
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            logs: place.logs(),
            journal: Followed::new(place.journal()),
            by_vm: Vec::new(),
            entries: Vec::new(),
            logged: Vec::new(),
        }
    }

    /// Watches `vm`, too.
    pub(crate) fn add(&mut self, vm: &str) {
        self.by_vm.push((vm.to_owned(), Followed::new(place::log(&self.logs, vm))));
    }

    /// Enters what is new into `board`, and returns what is news to people. The logs come first: what a VM gave back it
    /// gave back before another took it.
    pub(crate) fn look(&mut self, board: &mut Board) -> Result<Vec<News>> {
        let mut news = Vec::new();
        for (vm, log) in &mut self.by_vm {
            for line in log.read().map_err(failed)? {
                let Some(logged) = Logged::read(vm, &line) else { continue };
                news.extend(board.logged(&logged));
                self.logged.push(logged);
            }
        }
        for line in self.journal.read().map_err(failed)? {
            let Some(entry) = Entry::read(&line) else {
                let message = format!("{line:?} in the journal is no entry");
                return Err(Error::new(ErrorKind::Corrupt, "watch the workers", message));
            };
            news.extend(board.entered(&entry));
            self.entries.push(entry);
        }
        Ok(news)
    }

    /// Whether `vm` has given everything back at a notice.
    pub(crate) fn has_drained(&self, vm: &str) -> bool {
        self.logged.iter().any(|logged| logged.vm == vm && matches!(logged.what, Said::Drained(_)))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "watch the workers", error.to_string()).with_source(error)
}
