//! One operation: its part in the transaction, its action after the commit, and its caller's reply
//! channel.

use std::cell::Cell;

use rusqlite::{Connection, OptionalExtension, Params, Row};
use tokio::sync::oneshot;

use crate::failure::{Failure, Fault, Outcome};

/// An operation's view of the transaction that it runs in.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    /// The transaction's time.
    pub(crate) now: i64,
    pub(super) rings: &'a Cell<bool>,
}

impl Tx<'_> {
    pub(crate) fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }

    /// Executes a statement once for each of the parameters.
    pub(crate) fn execute_each<P: Params>(
        &self,
        sql: &'static str,
        each: impl IntoIterator<Item = P>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.conn.prepare_cached(sql)?;
        each.into_iter().try_for_each(|params| statement.execute(params).map(|_| ()))
    }

    /// Inserts a row and returns its id.
    pub(crate) fn insert(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<i64> {
        self.conn.prepare_cached(sql)?.insert(params)
    }

    /// Returns the first row, if there is one.
    pub(crate) fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.conn.prepare_cached(sql)?.query_row(params, read).optional()
    }

    /// Returns all rows.
    pub(crate) fn rows<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.conn.prepare_cached(sql)?.query_map(params, read)?.collect()
    }

    /// Marks that this transaction makes a message receivable: waiting workers are woken after the
    /// commit.
    pub(crate) fn ring(&self) {
        self.rings.set(true);
    }
}

/// An operation of any type.
pub(super) trait Work: Send {
    fn is_abandoned(&self) -> bool;
    fn bytes(&self) -> usize;
    fn apply(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()>;
    fn publish(&mut self);
    fn answer(self: Box<Self>);
    fn fail(self: Box<Self>, failure: Failure);
}

pub(super) struct Operation<T, U, A, P> {
    pub(super) bytes: usize,
    pub(super) apply: A,
    pub(super) publish: Option<P>,
    pub(super) applied: Option<Outcome<T>>,
    pub(super) answer: Option<Outcome<U>>,
    /// `None` for an operation without a caller that waits.
    pub(super) reply: Option<oneshot::Sender<Outcome<U>>>,
}

impl<T, U, A, P> Operation<T, U, A, P> {
    fn reply(self, answer: Outcome<U>) {
        match (self.reply, answer) {
            // The caller may be gone; what was applied stays applied.
            (Some(reply), answer) => drop(reply.send(answer)),
            (None, Ok(_)) => {}
            (None, Err(failure)) => {
                tracing::warn!(error = %failure.during("tidy up the store"), "tidying up failed; the store continues");
            }
        }
    }
}

impl<T, U, A, P> Work for Operation<T, U, A, P>
where
    T: Send,
    U: Send,
    A: FnMut(&Tx<'_>) -> Result<T, Fault> + Send,
    P: FnOnce(T) -> Outcome<U> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        self.applied = Some(match (self.apply)(tx) {
            Ok(applied) => Ok(applied),
            Err(Fault::Refused(failure)) => Err(failure),
            Err(Fault::Broken(error)) => return Err(error),
        });
        Ok(())
    }

    fn publish(&mut self) {
        if let (Some(applied), Some(publish)) = (self.applied.take(), self.publish.take()) {
            self.answer = Some(applied.and_then(publish));
        }
    }

    fn answer(mut self: Box<Self>) {
        if let Some(answer) = self.answer.take() {
            self.reply(answer);
        }
    }

    fn fail(self: Box<Self>, failure: Failure) {
        self.reply(Err(failure));
    }
}
