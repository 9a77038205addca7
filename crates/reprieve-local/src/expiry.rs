//! Removes expired rows, a few at a time: all processes wait for a transaction.

use std::time::Duration;

use reprieve_core::clock::unix_millis;
use rusqlite::Row;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use crate::failure::{Failure, Outcome};
use crate::shared::Shared;
use crate::writer::Tx;

/// How long a fence is kept that no blob's row has any more: longer than any superseded owner
/// survives.
const FENCE_KEPT_MS: i64 = 86_400_000;

/// How long a report without a session is kept when its worker never returns.
const REPORT_KEPT_MS: i64 = 86_400_000;

/// How many rows one step looks at, and may remove: about a millisecond of work.
const BITE: u16 = 250;

/// The pause between two steps, in which other processes write. A shorter one would fill the log
/// with changed pages, and the commit that writes those back would take long.
pub(crate) const BETWEEN_BITES: Duration = Duration::from_millis(100);

/// The time from the end of a pass to the beginning of the next.
const EVERY: Duration = Duration::from_hours(1);

/// The passes over the rows that can expire. The maintenance thread makes one step per round.
pub(crate) struct Expiry {
    due: Instant,
    pass: Option<Pass>,
    /// The transaction of the last step. The thread does not wait for it, because it must refuse
    /// the operations that wait too long.
    removal: Option<Receiver<Outcome<()>>>,
}

/// The place of a pass.
enum Pass {
    Reports,
    /// The fences after this key.
    Fences(Key),
}

/// A primary key of the table `fence`: the blob's name and the job.
type Key = (String, String);

impl Expiry {
    pub(crate) fn new() -> Self {
        Self { due: Instant::now(), pass: None, removal: None }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a pass when one is due, or makes the next step of the one that is under way. A step
    /// that fails ends the pass.
    pub(crate) fn round(&mut self, shared: &Shared) -> Outcome<()> {
        let pass = self.pass.take();
        if let Some(removal) = &mut self.removal {
            let removed = match removal.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.pass = pass;
                    return Ok(());
                }
                Err(TryRecvError::Closed) => Err(Failure::stopped()),
                Ok(removed) => removed,
            };
            self.removal = None;
            removed?;
        }
        let pass = match pass {
            Some(pass) => pass,
            None if Instant::now() < self.due => return Ok(()),
            None => Pass::Reports,
        };
        self.due = Instant::now() + EVERY;
        self.pass = match pass {
            Pass::Reports => Some(self.remove_reports(shared)?),
            Pass::Fences(after) => self.remove_fences(shared, &after)?.map(Pass::Fences),
        };
        Ok(())
    }

    fn remove_reports(&mut self, shared: &Shared) -> Outcome<Pass> {
        const FIND: &str = "SELECT worker FROM report WHERE abs(at) < ?1 LIMIT ?2";
        const REMOVE: &str = "DELETE FROM report WHERE worker = ?1 AND abs(at) < ?2";
        // Reports contain the wall clock's time, not the store's.
        let before = unix_millis() - REPORT_KEPT_MS;
        let expired: Vec<String> = shared.reader.rows(FIND, [before, BITE.into()], |row| row.get(0))?;
        let next =
            if expired.len() < usize::from(BITE) { Pass::Fences(Key::default()) } else { Pass::Reports };
        self.remove(shared, expired, move |tx, worker| tx.execute(REMOVE, (worker, before)));
        Ok(next)
    }

    /// Makes a step through the fences in the order of their key; returns where the next one
    /// begins. Neighbours share pages, so a step changes few of them. In the order of time it would
    /// change a page per row where names are random, and renewals would wait for 60 ms.
    fn remove_fences(&mut self, shared: &Shared, after: &Key) -> Outcome<Option<Key>> {
        const NEXT: &str =
            "SELECT name, job, at FROM fence WHERE (name, job) > (?1, ?2) ORDER BY name, job LIMIT ?3";
        const REMOVE: &str = "DELETE FROM fence WHERE name = ?1 AND job = ?2 AND at < ?3";
        let before = shared.clock.now() - FENCE_KEPT_MS;
        let fence = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?), row.get(2)?));
        let fences: Vec<(Key, i64)> = shared.reader.rows(NEXT, (&after.0, &after.1, BITE), fence)?;
        let next = fences.last().filter(|_| fences.len() == usize::from(BITE)).map(|(key, _)| key.clone());
        let expired = fences.into_iter().filter(|(_, at)| *at < before).map(|(key, _)| key).collect();
        self.remove(shared, expired, move |tx, (name, job)| tx.execute(REMOVE, (name, job, before)));
        Ok(next)
    }

    /// Begins the transaction that removes the rows with these keys.
    fn remove<K: Send + 'static>(
        &mut self,
        shared: &Shared,
        keys: Vec<K>,
        remove: impl Fn(&Tx<'_>, &K) -> rusqlite::Result<usize> + Send + 'static,
    ) {
        if keys.is_empty() {
            return;
        }
        let apply = move |tx: &Tx<'_>| {
            for key in &keys {
                remove(tx, key)?;
            }
            Ok(())
        };
        self.removal = Some(shared.writer.submit(0, apply, Ok));
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::QueueName;

    use super::*;
    use crate::store::{LocalStore, Options};

    const ADD: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO fence(name, job, fence, at) SELECT 'out/' || (i % 40), 'job-' || i, 1, ?2 FROM n";

    #[tokio::test]
    async fn each_step_removes_few_rows_and_a_pass_all_that_have_expired() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new(QueueName::parse("jobs").unwrap());
        let store = LocalStore::open(&directory.path().join("a.db"), options).await.unwrap();
        let shared = store.shared();
        let conn = rusqlite::Connection::open(shared.files.database()).unwrap();
        let now = shared.clock.now();
        conn.execute(ADD, (2_000, now - FENCE_KEPT_MS - 1)).unwrap();
        conn.execute("UPDATE fence SET at = ?1 WHERE name IN ('out/0', 'out/17')", [now]).unwrap();
        let count = || conn.query_row("SELECT count(*) FROM fence", [], |row| row.get::<_, i64>(0)).unwrap();

        let (mut expiry, mut before, mut steps) = (Expiry::new(), count(), 0);
        loop {
            expiry.round(&shared).unwrap();
            // Until the step's transaction has ended, so that the rows are those of one step.
            while expiry.removal.as_ref().is_some_and(Receiver::is_empty) {
                tokio::task::yield_now().await;
            }
            let left = count();
            assert!(before - left <= i64::from(BITE), "{before} became {left}");
            steps += u32::from(left < before);
            before = left;
            if expiry.pass.is_none() && expiry.removal.is_none() {
                break;
            }
        }
        assert_eq!((count(), steps), (100, 8), "only what has not expired is left");
        expiry.round(&shared).unwrap();
        assert!(!expiry.is_under_way(), "the next pass is not due");
    }
}
