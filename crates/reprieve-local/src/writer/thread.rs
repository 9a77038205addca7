//! The writer's thread: waits for its process's turn, commits the operations that wait by then, and
//! answers them.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};

use super::operation::{Tx, Work};
use super::pending::Pending;
use crate::bell::Bell;
use crate::clock::StoreClock;
use crate::failure::Failure;
use crate::gate::{Gate, Turn};

/// The thread's state.
pub(super) struct Thread {
    pub(super) pending: Arc<Pending>,
    pub(super) conn: Connection,
    pub(super) clock: Arc<StoreClock>,
    pub(super) bell: Bell,
    pub(super) file: PathBuf,
}

impl Thread {
    pub(super) fn run(&mut self, mut gate: Gate) {
        while self.pending.wait() {
            match gate.enter() {
                Ok(turn) => self.turn(turn),
                Err(failure) => self.pending.take().into_iter().for_each(|work| work.fail(failure.clone())),
            }
        }
    }

    /// Operations are taken only now, in this process's turn: until then they can be refused or
    /// dropped.
    fn turn(&mut self, turn: Turn<'_>) {
        let mut group = self.pending.take();
        if group.is_empty() {
            return;
        }
        let now = self.clock.at_least(turn.time_seen()).max(self.clock.now());
        turn.store_time(now);
        let rings = Cell::new(false);
        let failures = self.commit_together_or_alone(&mut group, now, &rings);
        drop(turn);
        if rings.get() {
            self.bell.ring();
        }
        for (work, failure) in group.into_iter().zip(failures) {
            match failure {
                None => work.answer(),
                Some(failure) => work.fail(failure),
            }
        }
    }

    /// Commits the group. If that fails, commits each operation separately, so that one that can't
    /// be applied (too large for the rest of the disk, say) fails no other.
    fn commit_together_or_alone(
        &mut self,
        group: &mut [Box<dyn Work>],
        now: i64,
        rings: &Cell<bool>,
    ) -> Vec<Option<Failure>> {
        let Err(error) = self.commit(group, now, rings) else {
            return group.iter().map(|_| None).collect();
        };
        // Another program's lock was waited for once already: waiting again for each operation
        // would take minutes.
        let mut hopeless = is_locked(&error) || group.len() == 1;
        let mut failure = Failure::sql(&error, &self.file);
        let mut failures = Vec::with_capacity(group.len());
        for work in group {
            if hopeless {
                failures.push(Some(failure.clone()));
                continue;
            }
            failures.push(self.commit(std::slice::from_mut(work), now, rings).err().map(|error| {
                hopeless = is_locked(&error);
                failure = Failure::sql(&error, &self.file);
                failure.clone()
            }));
        }
        failures
    }

    fn commit(&mut self, group: &mut [Box<dyn Work>], now: i64, rings: &Cell<bool>) -> rusqlite::Result<()> {
        let tx = Tx { conn: &self.conn, now, rings };
        tx.execute("BEGIN IMMEDIATE", [])?;
        let applied = group.iter_mut().try_for_each(|work| work.apply(&tx));
        let committed = applied.and_then(|()| tx.execute("COMMIT", []));
        if committed.is_err() && !self.conn.is_autocommit() {
            // SQLite has rolled back by itself after some errors. If it can't here, the next begin fails.
            let _rolled_back = tx.execute("ROLLBACK", []);
        }
        committed?;
        for work in group {
            work.publish();
        }
        Ok(())
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

impl Drop for Thread {
    /// Also runs when the thread panics, so that no caller waits for an answer that never comes.
    fn drop(&mut self) {
        let mut state = self.pending.lock();
        state.closed = true;
        state.waiting.clear();
    }
}
