//! The upper bound: the same rows, written by the same statements at the same durability, and
//! nothing else.
//!
//! One thread in one process, with all bodies prepared beforehand. Its transactions are as large as
//! the worker's largest: 1,000 messages per send, as in `LocalStore`, and 256 leases or
//! completions, the store writer's limit. The worker itself stays far below that, since it holds at
//! most its concurrency and one batch. So no worker can reach this bound.

use std::time::Duration;

use anyhow::Result;
use reprieve_core::JobId;
use reprieve_core::clock::unix_millis;
use reprieve_core::envelope::{Data, Envelope};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::time::Instant;

use crate::noop::{Figures, noops};
use crate::place::{Durability, Place};
use crate::process::own_usage;

/// The tables are the store's own, so that the bound follows changes to them.
const SCHEMA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../reprieve-local/src/schema.sql"));

/// The statements of `reprieve-local`'s `messages/lease.rs`.
const SEND_BODY: &str = "INSERT INTO body(queued_at, sent_at, data) VALUES(?1, ?2, ?3)";
const SEND: &str = "INSERT INTO msg(queue, invisible, visible_at, id) VALUES(?1, ?2, ?3, ?4)";
const FIND: &str = "SELECT m.visible_at, m.id, m.rev, b.data FROM msg m CROSS JOIN body b ON b.id = m.id
    WHERE m.queue = ?1 AND m.invisible = 0 ORDER BY m.visible_at, m.id LIMIT ?2";
const LEASE: &str =
    "UPDATE msg SET invisible = 1, visible_at = ?4, rev = rev + 1, dequeues = dequeues + 1, holder = ?5
    WHERE queue = ?1 AND invisible = 0 AND visible_at = ?2 AND id = ?3";
const COMPLETE: &str = "DELETE FROM msg
    WHERE queue = ?1 AND invisible = ?2 AND visible_at = ?3 AND id = ?4 AND rev = ?5";
const COMPLETE_BODY: &str = "DELETE FROM body WHERE id = ?1";

const SENT_TOGETHER: usize = 1_000;
const DONE_TOGETHER: i64 = 256;
const LEASE_MS: i64 = 60_000;
const QUEUE: i64 = 1;
const HOLDER: i64 = 1;

/// Enqueues and drains.
pub(crate) fn run(place: &Place, jobs: usize) -> Result<Figures> {
    let bodies = bodies(jobs)?;
    let mut conn = open(place, "batch.db")?;
    let began = Instant::now();
    for chunk in bodies.chunks(SENT_TOGETHER) {
        send(&mut conn, chunk)?;
    }
    let enqueue_batch_seconds = Some(began.elapsed().as_secs_f64());
    drop(conn);

    let mut conn = open(place, "raw.db")?;
    let began = Instant::now();
    for body in &bodies {
        send(&mut conn, std::slice::from_ref(body))?;
    }
    let enqueue_seconds = began.elapsed().as_secs_f64();

    let (began, before) = (Instant::now(), own_usage()?);
    let mut completed = 0;
    loop {
        let leased = lease(&mut conn)?;
        if leased.is_empty() {
            break;
        }
        completed += complete(&mut conn, &leased)?;
    }
    let drain_seconds = began.elapsed().as_secs_f64();
    Ok(Figures {
        enqueue_seconds,
        enqueue_batch_seconds,
        drain_seconds,
        cpu_seconds: Some(own_usage()?.cpu_seconds - before.cpu_seconds),
        completed,
        ..Figures::default()
    })
}

/// Returns messages as the producer writes them.
fn bodies(jobs: usize) -> Result<Vec<Vec<u8>>> {
    let jobs = noops(jobs)?.into_iter();
    Ok(jobs.map(|job| Envelope::new(JobId::unique(), &job.kind, Data::Inline(job.args)).to_body()).collect())
}

fn open(place: &Place, name: &str) -> Result<Connection> {
    let conn = Connection::open(place.path(name))?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    conn.execute_batch(SCHEMA)?;
    conn.execute_batch(match place.durability() {
        Durability::PowerLoss => "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;",
        Durability::Process => "PRAGMA synchronous = NORMAL;",
    })?;
    conn.execute_batch(
        "PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;",
    )?;
    conn.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
    Ok(conn)
}

fn begin(conn: &mut Connection) -> Result<Transaction<'_>> {
    Ok(conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

fn send(conn: &mut Connection, bodies: &[Vec<u8>]) -> Result<()> {
    let tx = begin(conn)?;
    let now = unix_millis();
    for body in bodies {
        let id = tx.prepare_cached(SEND_BODY)?.insert((now, now, body))?;
        tx.prepare_cached(SEND)?.execute((QUEUE, false, now, id))?;
    }
    Ok(tx.commit()?)
}

/// Returns the keys of the leased messages. It reads the bodies, as a worker must.
fn lease(conn: &mut Connection) -> Result<Vec<[i64; 3]>> {
    let tx = begin(conn)?;
    let now = unix_millis();
    let until = now + LEASE_MS;
    let found = tx
        .prepare_cached(FIND)?
        .query_map([QUEUE, DONE_TOGETHER], |row| {
            let _body: Vec<u8> = row.get(3)?;
            Ok([row.get(0)?, row.get(1)?, row.get(2)?])
        })?
        .collect::<rusqlite::Result<Vec<[i64; 3]>>>()?;
    let mut leased = Vec::with_capacity(found.len());
    for [visible_at, id, rev] in found {
        tx.prepare_cached(LEASE)?.execute([QUEUE, visible_at, id, until, HOLDER])?;
        leased.push([until, id, rev + 1]);
    }
    tx.commit()?;
    Ok(leased)
}

/// Returns the number of completed messages.
fn complete(conn: &mut Connection, leased: &[[i64; 3]]) -> Result<usize> {
    let tx = begin(conn)?;
    let mut completed = 0;
    for [visible_at, id, rev] in leased {
        completed += tx.prepare_cached(COMPLETE)?.execute((QUEUE, true, *visible_at, *id, *rev))?;
        tx.prepare_cached(COMPLETE_BODY)?.execute([id])?;
    }
    tx.commit()?;
    Ok(completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when the store's tables no longer fit these statements.
    #[test]
    fn the_ceiling_does_every_job_once() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path(), Durability::Process).unwrap();
        let figures = run(&place, 600).unwrap();
        assert_eq!(figures.completed, 600);
        assert!(figures.drain_seconds > 0.0 && figures.enqueue_batch_seconds.is_some());
    }

    /// Every statement must be one of the store's own, else the bound means nothing.
    #[test]
    fn the_statements_are_those_of_the_store() {
        let source =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../reprieve-local/src/messages/lease.rs"));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let source = words(source);
        for statement in [SEND_BODY, SEND, LEASE, COMPLETE, COMPLETE_BODY] {
            assert!(source.contains(&words(statement)), "{statement}");
        }
        let of_the_store = words(FIND).replace("m.rev, b.data", "m.rev, m.dequeues, b.data, b.sent_at");
        assert!(source.contains(&of_the_store), "{of_the_store}");
    }
}
