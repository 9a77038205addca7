//! The life of a message from its sending to its end. Each step is a few lookups by primary key in
//! one transaction.

use std::fmt::Write as _;
use std::time::Duration;

use reprieve_core::MessageId;
use reprieve_core::ports::{Delivery, NewMessage, Receipt, Release};

use crate::damaged::Data;
use crate::failure::{Failure, Fault};
use crate::writer::Tx;

/// The most messages that one receive puts back in line, so that no other operation of its
/// transaction waits long.
const DUE_MAX: usize = 1_000;

/// A parsed receipt: the primary key of the message's row, and the row's revision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    queue: i64,
    invisible: bool,
    visible_at: i64,
    id: i64,
    rev: i64,
}

impl Key {
    pub(super) fn read(queue: i64, receipt: &Receipt) -> Self {
        let mut numbers = receipt.as_str().split('.').map(|number| number.parse::<i64>().ok());
        let mut number = || numbers.next().flatten();
        let (id, visible_at, rev) = match (number(), number(), number()) {
            (Some(id), Some(visible_at), Some(rev)) => (id, visible_at, rev),
            // A receipt of another store matches nothing here: 0 is no message's id.
            _ => (0, 0, 0),
        };
        // A leased message is invisible.
        Self { queue, invisible: true, visible_at, id, rev }
    }

    fn receipt(self) -> Receipt {
        // An id, a time of 13 digits and a small number.
        let mut text = String::with_capacity(32);
        // A String takes all that is written.
        let _written = write!(text, "{}.{}.{}", self.id, self.visible_at, self.rev);
        Receipt::new(text)
    }

    /// Applies `change` to the receipt's row; returns false if there is no such row.
    ///
    /// A receipt is valid until another receive, also after the lease's end. By then the message
    /// may be back in line, so its row is also looked for at its place there.
    fn change(self, tx: &Tx<'_>, change: impl Fn(Self) -> rusqlite::Result<usize>) -> Result<(), Fault> {
        if change(self)? == 1 {
            return Ok(());
        }
        let Some(visible_at) = place_in_line(tx, self.id)? else { return Err(Failure::lease_lost().into()) };
        match change(Self { invisible: false, visible_at, ..self })? {
            1 => Ok(()),
            _ => Err(Failure::lease_lost().into()),
        }
    }
}

/// Returns when the message first became receivable, which is its place in line.
fn place_in_line(tx: &Tx<'_>, id: i64) -> rusqlite::Result<Option<i64>> {
    tx.row("SELECT queued_at FROM body WHERE id = ?1", [id], |row| row.get(0))
}

pub(super) fn send(tx: &Tx<'_>, queue: i64, messages: &[NewMessage]) -> Result<Vec<MessageId>, Fault> {
    let mut ids = Vec::with_capacity(messages.len());
    for message in messages {
        let visible_at = tx.now.saturating_add(millis(message.delay));
        let id = tx.insert(
            "INSERT INTO body(queued_at, sent_at, data) VALUES(?1, ?2, ?3)",
            (visible_at, tx.now, &message.body),
        )?;
        tx.execute(
            "INSERT INTO msg(queue, invisible, visible_at, id) VALUES(?1, ?2, ?3, ?4)",
            (queue, visible_at > tx.now, visible_at, id),
        )?;
        ids.push(message_id(id));
    }
    // Also for delayed messages: waiting workers then learn when they become due.
    tx.ring();
    Ok(ids)
}

/// Receives messages. Also returns when the next one becomes visible, if there were fewer than
/// `max`.
pub(super) fn receive(
    tx: &Tx<'_>,
    queue: i64,
    holder: i64,
    max: usize,
    lease: Duration,
) -> Result<(Vec<Delivery>, Option<i64>), Fault> {
    put_due_in_line(tx, queue)?;
    // Select first, then update by key: an UPDATE with a sub-select is five times slower.
    let found = tx.rows(
        "SELECT m.visible_at, m.id, m.rev, m.dequeues, b.data, b.sent_at FROM msg m CROSS JOIN body b ON b.id = m.id
         WHERE m.queue = ?1 AND m.invisible = 0 ORDER BY m.visible_at, m.id LIMIT ?2",
        [queue, i64::try_from(max).unwrap_or(i64::MAX)],
        |row| {
            let key =
                Key { queue, invisible: false, visible_at: row.get(0)?, id: row.get(1)?, rev: row.get(2)? };
            Ok((key, row.get::<_, i64>(3)?, row.get::<_, Data>(4)?.0, row.get(5)?))
        },
    )?;
    let leased_until = tx.now.saturating_add(millis(lease));
    tx.execute_each(
        "UPDATE msg SET invisible = 1, visible_at = ?4, rev = rev + 1, dequeues = dequeues + 1, holder = ?5
         WHERE queue = ?1 AND invisible = 0 AND visible_at = ?2 AND id = ?3",
        found.iter().map(|(key, ..)| [queue, key.visible_at, key.id, leased_until, holder]),
    )?;
    let mut deliveries = Vec::with_capacity(found.len());
    for (key, dequeues, body, sent_at) in found {
        let leased = Key { invisible: true, visible_at: leased_until, rev: key.rev + 1, ..key };
        deliveries.push(Delivery {
            id: message_id(leased.id),
            dequeue_count: u32::try_from(dequeues + 1).unwrap_or(u32::MAX),
            body,
            receipt: leased.receipt(),
            inserted_unix_ms: Some(sent_at),
            expires_unix_ms: None,
            unreadable: None,
        });
    }
    let next_due = if deliveries.len() < max {
        const NEXT: &str = "SELECT min(visible_at) FROM msg WHERE queue = ?1 AND invisible = 1";
        tx.row(NEXT, [queue], |row| row.get::<_, Option<i64>>(0))?
    } else {
        None
    };
    Ok((deliveries, next_due.flatten()))
}

/// Gives the messages with a delay or a lease that has ended their place in line. They have waited
/// since they first became receivable, and not since their delay or lease ended: behind a long line
/// a retry that is due would come hours late.
fn put_due_in_line(tx: &Tx<'_>, queue: i64) -> Result<(), Fault> {
    let due = tx.rows(
        "SELECT m.visible_at, m.id, b.queued_at FROM msg m CROSS JOIN body b ON b.id = m.id
         WHERE m.queue = ?1 AND m.invisible = 1 AND m.visible_at <= ?2 ORDER BY m.visible_at, m.id LIMIT ?3",
        [queue, tx.now, i64::try_from(DUE_MAX).unwrap_or(i64::MAX)],
        |row| Ok([row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?]),
    )?;
    // The revision stays: the receipt of a lease that has ended is valid until another receive.
    tx.execute_each(
        "UPDATE msg SET invisible = 0, visible_at = ?4
         WHERE queue = ?1 AND invisible = 1 AND visible_at = ?2 AND id = ?3",
        due.into_iter().map(|[visible_at, id, queued_at]| [queue, visible_at, id, queued_at]),
    )?;
    Ok(())
}

pub(super) fn renew(tx: &Tx<'_>, key: Key, lease: Duration) -> Result<Receipt, Fault> {
    let leased_until = tx.now.saturating_add(millis(lease));
    key.change(tx, |Key { queue, invisible, visible_at, id, rev }| {
        tx.execute(
            "UPDATE msg SET invisible = 1, visible_at = ?6, rev = rev + 1
             WHERE queue = ?1 AND invisible = ?2 AND visible_at = ?3 AND id = ?4 AND rev = ?5",
            (queue, invisible, visible_at, id, rev, leased_until),
        )
    })?;
    Ok(Key { visible_at: leased_until, rev: key.rev + 1, ..key }.receipt())
}

pub(super) fn complete(tx: &Tx<'_>, key: Key) -> Result<(), Fault> {
    key.change(tx, |Key { queue, invisible, visible_at, id, rev }| {
        tx.execute(
            "DELETE FROM msg WHERE queue = ?1 AND invisible = ?2 AND visible_at = ?3 AND id = ?4 AND rev = ?5",
            (queue, invisible, visible_at, id, rev),
        )
    })?;
    tx.execute("DELETE FROM body WHERE id = ?1", [key.id])?;
    Ok(())
}

/// Releases a message. Unless it goes `to_back`, it keeps its place in line, at once or when the delay ends,
/// so that interrupted work continues before new work begins.
pub(super) fn release(tx: &Tx<'_>, key: Key, release: &Release) -> Result<(), Fault> {
    let Release { body, delay, to_back } = release;
    let due = tx.now.saturating_add(millis(*delay));
    let (again_invisible, visible_again) = match millis(*delay) {
        0 if !to_back => (false, place_in_line(tx, key.id)?.unwrap_or(tx.now)),
        delay => (delay > 0, due),
    };
    key.change(tx, |Key { queue, invisible, visible_at, id, rev }| {
        tx.execute(
            "UPDATE msg SET invisible = ?6, visible_at = ?7, rev = rev + 1, holder = NULL
             WHERE queue = ?1 AND invisible = ?2 AND visible_at = ?3 AND id = ?4 AND rev = ?5",
            (queue, invisible, visible_at, id, rev, again_invisible, visible_again),
        )
    })?;
    if let Some(body) = body {
        tx.execute("UPDATE body SET data = ?2 WHERE id = ?1", (key.id, body))?;
    }
    if *to_back {
        tx.execute("UPDATE body SET queued_at = ?2 WHERE id = ?1", [key.id, due])?;
    }
    tx.ring();
    Ok(())
}

/// Moves the message to the poison queue, as a new message that was sent now.
pub(super) fn dead_letter(
    tx: &Tx<'_>,
    key: Key,
    poison: i64,
    body: &[u8],
    reason: &str,
) -> Result<(), Fault> {
    // The dequeue count restarts: deliveries from the poison queue are counted separately.
    key.change(tx, |Key { queue, invisible, visible_at, id, rev }| {
        tx.execute(
            "UPDATE msg SET queue = ?6, invisible = 0, visible_at = ?7, rev = rev + 1, dequeues = 0, holder = NULL
             WHERE queue = ?1 AND invisible = ?2 AND visible_at = ?3 AND id = ?4 AND rev = ?5",
            (queue, invisible, visible_at, id, rev, poison, tx.now),
        )
    })?;
    tx.execute(
        "UPDATE body SET reason = ?2, queued_at = ?3, sent_at = ?3, data = ?4 WHERE id = ?1",
        (key.id, reason, tx.now, body),
    )?;
    tx.ring();
    Ok(())
}

/// Whole milliseconds, rounded up: a lease must not end early.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
}

pub(super) fn message_id(id: i64) -> MessageId {
    MessageId::new(id.to_string())
}
