//! Opens the database: inspects the file, refuses another program's, creates what is missing.

use std::time::Duration;

use reprieve_core::ErrorKind;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::address::Durability;
use crate::failure::{Failure, Outcome};
use crate::files::Files;
use crate::gate::Gate;

const SCHEMA: &str = include_str!("schema.sql");

/// "RPRV": distinguishes our files from other programs' (`PRAGMA application_id`).
const APPLICATION_ID: i32 = 0x5250_5256;

/// The format of the file (`PRAGMA user_version`). Raised when an older program would misread the
/// newer file.
const FORMAT: i32 = 3;

/// Older versions can corrupt a file when several connections write and checkpoint, which happens
/// here: <https://sqlite.org/wal.html#the_wal_reset_bug>.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How long to wait for another program's transaction. Our own processes never meet inside SQLite:
/// the gate separates them.
const BUSY: Duration = Duration::from_secs(5);

/// How long to wait for the gate when the file has to be created.
const TURN: Duration = Duration::from_secs(10);

/// Connects to the file. Creates an empty one if there is none, and refuses one that is not ours.
pub(crate) fn connect(files: &Files) -> Outcome<Connection> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(Failure::new(
            ErrorKind::Internal,
            format!("SQLite {} can damage shared files; build with 3.51.3 or newer", rusqlite::version()),
        ));
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = |error| Failure::sql(&error, files.database());
    let conn = Connection::open_with_flags(files.database(), flags).map_err(sql)?;
    conn.busy_timeout(BUSY).map_err(sql)?;
    inspect(&conn, files)?;
    Ok(conn)
}

/// The names of the queues in the file; `None` when the file is not a store yet.
pub(crate) fn queues(conn: &Connection, files: &Files) -> Outcome<Option<Vec<String>>> {
    if inspect(conn, files)? == Found::Nothing {
        return Ok(None);
    }
    let names = || {
        let mut names = conn.prepare("SELECT name FROM queue ORDER BY name")?;
        names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()
    };
    names().map(Some).map_err(|error| Failure::sql(&error, files.database()))
}

/// Sets the connection up for writing, and turns an empty file into a store.
pub(crate) fn open_writer(
    mut conn: Connection,
    files: &Files,
    durability: Durability,
    gate: &mut Gate,
) -> Outcome<Connection> {
    let sql = |error| Failure::sql(&error, files.database());
    if inspect(&conn, files)? != Found::Ready {
        let Some(_held) = gate.enter_within(TURN)? else {
            return Err(Failure::new(
                ErrorKind::Unavailable,
                format!(
                    "another process is creating {} and does not finish; check whether it is stopped",
                    files.database().display()
                ),
            ));
        };
        prepare(&mut conn, files)?;
    }
    tune(&conn, durability).map_err(sql)?;
    conn.execute_batch(PROBE).map_err(sql)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(files: &Files) -> Outcome<Connection> {
    let open = || {
        // Not read-only for SQLite: the first connection after a crash has to recover the
        // write-ahead log.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(files.database(), flags)?;
        conn.busy_timeout(BUSY)?;
        conn.execute_batch(
            "PRAGMA query_only = ON; PRAGMA cache_size = -8192; PRAGMA cell_size_check = ON;",
        )?;
        Ok(conn)
    };
    open().map_err(|error| Failure::sql(&error, files.database()))
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A store without a write-ahead log, which another program switched off.
    WithoutLog,
    Ready,
}

/// Inspects the file without changing it: one that is not ours must stay as it is.
fn inspect(conn: &Connection, files: &Files) -> Outcome<Found> {
    let look = || {
        // One transaction: between two, another process might create the store.
        let snapshot = conn.unchecked_transaction()?;
        let number = |sql: &str| snapshot.query_row(sql, [], |row| row.get::<_, i32>(0));
        // The first read takes the snapshot, to which the pragmas then refer.
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        let (application, format) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
        let journal: String = snapshot.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        Ok((application, format, tables, journal))
    };
    let (application, format, tables, journal) =
        look().map_err(|error| Failure::sql(&error, files.database()))?;
    let file = files.database().display();
    match (application, format, tables) {
        (0, 0, 0) => Ok(Found::Nothing),
        (APPLICATION_ID, FORMAT, _) if journal == "wal" => Ok(Found::Ready),
        (APPLICATION_ID, FORMAT, _) => Ok(Found::WithoutLog),
        (APPLICATION_ID, newer, _) if newer > FORMAT => Err(Failure::new(
            ErrorKind::Incompatible,
            format!(
                "{file} was written by a newer version (it has format {newer}, and this program supports {FORMAT}); \
                 update this program (the file is unchanged)"
            ),
        )),
        (APPLICATION_ID, older @ 1.., _) => Err(Failure::new(
            ErrorKind::Incompatible,
            format!(
                "{file} was written by an older version (it has format {older}, and this program supports only \
                 {FORMAT}); finish its jobs with that version, or give another path (the file is unchanged)"
            ),
        )),
        (APPLICATION_ID, other, _) => Err(Failure::new(
            ErrorKind::Corrupt,
            format!("{file} has format {other}, which does not exist; restore the file from a backup"),
        )),
        _ => Err(Failure::new(
            ErrorKind::Invalid,
            format!("{file} is another program's SQLite file; give another path (the file is unchanged)"),
        )),
    }
}

/// Switches to the write-ahead log and creates the tables. Only under the gate: the switch fails
/// with "database is locked" when two processes attempt it at once.
fn prepare(conn: &mut Connection, files: &Files) -> Outcome<()> {
    let sql = |error| Failure::sql(&error, files.database());
    // Another process may have done it in the meantime.
    let found = inspect(conn, files)?;
    if found == Found::Ready {
        return Ok(());
    }
    let journal: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(sql)?;
    if journal != "wal" {
        return Err(Failure::new(
            ErrorKind::Invalid,
            format!(
                "{} is on a file system that processes can't share memory on; use a local disk",
                files.database().display()
            ),
        ));
    }
    if found == Found::Nothing { create(conn).map_err(sql) } else { Ok(()) }
}

fn create(conn: &mut Connection) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", FORMAT)?;
    tx.commit()
}

fn tune(conn: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let synchronous = match durability {
        // fullfsync: on macOS a plain fsync does not reach the disk.
        Durability::PowerLoss => "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;",
        Durability::Process => "PRAGMA synchronous = NORMAL;",
    };
    conn.execute_batch(synchronous)?;
    conn.execute_batch(
        "PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;",
    )?;
    // The log grows during long reads; afterwards it shrinks back to this size.
    conn.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
    // Keeps plans independent of bound values. Otherwise SQLite prepares a statement again whenever
    // the value of a LIMIT changes, which is at nearly every receive.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Reads from every table, which detects a damaged schema or a truncated file without reading all
/// of it.
const PROBE: &str = "
    SELECT id FROM queue LIMIT 1; SELECT id, holder FROM msg LIMIT 1; SELECT data FROM body LIMIT 1;
    SELECT data FROM record LIMIT 1; SELECT data FROM payload LIMIT 1; SELECT bytes FROM blob LIMIT 1;
    SELECT fence FROM fence LIMIT 1; SELECT token FROM session LIMIT 1; SELECT json FROM report LIMIT 1;";
