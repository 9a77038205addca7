//! The store: opening, sharing and closing it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reprieve_core::ports::{Page, Store};
use reprieve_core::{ErrorKind, QueueName, Result, WorkerId};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::address::Durability;
use crate::bell::{Bell, Listener};
use crate::clock::StoreClock;
use crate::failure::{Failure, Outcome};
use crate::files::{self, Files};
use crate::gate::Gate;
use crate::maintenance::Maintenance;
use crate::reader::Reader;
use crate::schema;
use crate::session;
use crate::shared::Shared;
use crate::writer::Writer;

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The queue that [`Queue`](reprieve_core::ports::Queue) reads and writes. A file holds any
    /// number of queues, which share the records, payloads, blobs and roster.
    pub queue: QueueName,
    /// The failures that a commit survives. Processes that share a file should agree.
    pub durability: Durability,
    /// The worker that holds this process's leases. When the process dies, another live worker
    /// releases its messages within a second.
    ///
    /// `None` for a process that is no worker: messages that it leases stay leased until the leases
    /// end.
    pub owner: Option<WorkerId>,
    /// Opens an existing file and queue only, and creates neither.
    pub must_exist: bool,
}

impl Options {
    /// Default options for `queue`: commits survive a power loss, and this process is no worker.
    #[must_use]
    pub fn new(queue: QueueName) -> Self {
        Self { queue, durability: Durability::default(), owner: None, must_exist: false }
    }

    /// Sets the worker that holds this process's leases.
    #[must_use]
    pub fn owned_by(mut self, worker: WorkerId) -> Self {
        self.owner = Some(worker);
        self
    }

    /// Refuses to create the file or the queue. For inspection, where a mistyped name must not look
    /// like an empty queue.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Sets the failures that a commit survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

/// One process's handle of a store: a SQLite file, and the directory `PATH.d` beside it, which
/// belong together.
///
/// The handle and every [`Store`] from it share three mostly idle threads. When the last of them is
/// dropped, messages that are still leased under [`Options::owner`] are released at once. The drop
/// waits for that commit, at most a second.
#[derive(Debug)]
pub struct LocalStore {
    ports: Arc<Ports>,
}

impl LocalStore {
    /// Opens the store at `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// - [`Invalid`](reprieve_core::ErrorKind::Invalid): the path is no ordinary file, or the file
    ///   is another program's. That file stays unchanged.
    /// - [`NotFound`](reprieve_core::ErrorKind::NotFound): the parent directory does not exist; or,
    ///   with [`Options::existing`], the file or the queue does not exist. Nothing is created then.
    /// - [`Incompatible`](reprieve_core::ErrorKind::Incompatible): a newer version wrote the file.
    /// - [`Corrupt`](reprieve_core::ErrorKind::Corrupt): the file is damaged. Opening makes only
    ///   cheap checks.
    /// - [`Denied`](reprieve_core::ErrorKind::Denied), [`Full`](reprieve_core::ErrorKind::Full),
    ///   [`Unavailable`](reprieve_core::ErrorKind::Unavailable): the file is not writable, has no
    ///   space, or another program has kept it locked for seconds.
    /// # Cancel safety
    /// If the future is dropped, the store is closed again as soon as it is open.
    ///
    /// # Panics
    /// Outside a Tokio runtime: opening runs on its blocking threads.
    pub async fn open(path: &Path, options: Options) -> Result<Self> {
        let path = path.to_owned();
        let opened = blocking(move || Ports::open(&path, &options)).await;
        opened
            .map(|ports| Self { ports: Arc::new(ports) })
            .map_err(|failure| failure.during("open the store"))
    }

    /// The store's ports.
    #[must_use]
    pub fn store(&self) -> Store {
        let ports = &self.ports;
        Store {
            queue: Arc::clone(ports) as _,
            records: Arc::clone(ports) as _,
            blobs: Arc::clone(ports) as _,
            roster: Arc::clone(ports) as _,
        }
    }
}

#[cfg(test)]
impl LocalStore {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.ports.shared)
    }
}

/// How many entries a part of a list has. A read of so many rows is short.
pub(crate) const PAGE: u32 = 1_000;

/// The part of a list that has these rows, whose times are of this clock. The next one begins after the last
/// row's name.
pub(crate) fn page_of<T>(clock: &StoreClock, listed: Vec<T>, name: impl Fn(&T) -> String) -> Page<T> {
    Page { now_unix_ms: clock.now(), ..Page::up_to(listed, PAGE as usize, name) }
}

/// Runs `work`, which waits for the disk, on a blocking thread. It runs to its end even if the
/// caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    // A panic in `work` is a bug of ours; at the runtime's end the caller is dropped as well.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Failure::stopped()))
}

/// The implementation of the ports. Its drop closes the store.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) shared: Arc<Shared>,
    /// Row ids in the table `queue`: the queue, and its poison queue.
    pub(crate) queue: i64,
    pub(crate) poison: i64,
    /// This process's value of `msg.holder`.
    pub(crate) holder: i64,
    /// The number of rings heard, and the number before the last receive.
    pub(crate) rings: watch::Sender<u64>,
    pub(crate) rings_seen: AtomicU64,
    /// When the next invisible message becomes visible, as of the last receive.
    pub(crate) next_due: AtomicI64,
    pub(crate) listener: OnceLock<Option<Listener>>,
    _maintenance: Maintenance,
}

/// The holder of leases without a session; no process can detect that such a holder died.
const UNKNOWN_HOLDER: i64 = 0;

/// How long a drop waits for the last commit: far longer than one takes, and short enough for a
/// process that exits.
const CLOSING: Duration = Duration::from_secs(1);

/// How many queue names an error lists.
const NAMES_SHOWN: usize = 8;

impl Ports {
    fn open(path: &Path, options: &Options) -> Outcome<Self> {
        let files = Files::locate(path)?;
        // Another program's file is recognised and refused before anything is created beside it.
        let found = files.database().exists().then(|| schema::connect(&files)).transpose()?;
        if options.must_exist {
            find_queue(found.as_ref(), &files, &options.queue)?;
        }
        files.make_directories()?;
        let mut gate = Gate::open(&files)?;
        let conn = found.map_or_else(|| schema::connect(&files), Ok)?;
        let conn = schema::open_writer(conn, &files, options.durability, &mut gate)?;
        let (bell, clock) = (Bell::open(&files.bell())?, Arc::new(StoreClock::new()));
        let reader = Reader::open(&files)?;
        let writer = Writer::start(conn, gate, Arc::clone(&clock), bell, files.database().to_owned())?;
        let (owner, session) = (options.owner.clone(), Mutex::new(None));
        let shared = Arc::new(Shared {
            files,
            writer,
            reader,
            clock,
            sweep_due: AtomicBool::new(true),
            unreadable: Mutex::default(),
            owner,
            session,
        });
        let maintenance = Maintenance::start(Arc::clone(&shared), options.owner.is_some());
        // From here on a failure must end the writer's thread, so the ports are built first, and
        // their drop ends it.
        let mut ports = Self {
            queue: 0,
            poison: 0,
            holder: UNKNOWN_HOLDER,
            rings: watch::Sender::new(0),
            rings_seen: AtomicU64::new(0),
            next_due: AtomicI64::new(i64::MAX),
            listener: OnceLock::new(),
            _maintenance: maintenance.inspect_err(|_| shared.writer.close())?,
            shared,
        };
        ports.queue = ports.shared.queue_row(&options.queue)?;
        ports.poison = ports.shared.queue_row(&options.queue.poison())?;
        if options.owner.is_some() {
            ports.holder = ports.shared.session()?.id();
        }
        Ok(ports)
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        let session = self.shared.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = session {
            let id = session.id();
            self.shared.writer.post(
                move |tx| session::end(tx, id),
                move |_released| {
                    files::remove_if_there(session.file());
                    Ok(())
                },
            );
        }
        self.shared.writer.close();
        // The session must have ended before this process does: else the next worker would count
        // this process as dead.
        self.shared.writer.wait_for_end(CLOSING);
    }
}

/// Fails unless the queue exists; the error lists the existing queues.
fn find_queue(found: Option<&Connection>, files: &Files, queue: &QueueName) -> Outcome<()> {
    let file = files.database().display();
    let names = found.map(|conn| schema::queues(conn, files)).transpose()?.flatten();
    let Some(mut names) = names else {
        let message =
            format!("there is no store at {file}; check the path, or create the store by sending a message");
        return Err(Failure::new(ErrorKind::NotFound, message));
    };
    if names.iter().any(|name| name == queue.as_str()) {
        return Ok(());
    }
    names.retain(|name| !QueueName::is_poison(name));
    let others = match names.len() {
        0 => "the store has no queues yet".to_owned(),
        1 => format!("there is {}", names[0]),
        2..=NAMES_SHOWN => format!("there are {}", names.join(", ")),
        count => format!("there are {count}, such as {}", names[..NAMES_SHOWN].join(", ")),
    };
    Err(Failure::new(ErrorKind::NotFound, format!("there is no queue \"{queue}\" in {file}; {others}")))
}
