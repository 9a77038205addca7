//! The receipts of the messages that this worker holds, in a file of `--state-dir`: when the worker's
//! process dies and its VM lives on, the next worker on the VM releases the messages at once instead of
//! when their leases end.
//!
//! The file is locked for as long as its process lives, so the lock proves the death. A receipt is
//! written when a message is received and when its lease is renewed, and stays when the message is
//! settled, because the receipt of a settled message releases nothing. The files are used on threads of
//! their own, because a disk that hangs must not stop the worker.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use reprieve_core::ports::{
    DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release, Store,
};
use reprieve_core::{Error, ErrorKind, MessageId, Result, WorkerId};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

const OPEN: &str = "open --state-dir";

/// A longer file is none of a worker's: this is one of 16,384 messages.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The end of the name of a file with receipts, and of one that is not locked yet.
const FILE: &str = ".receipts";
const NEW_FILE: &str = ".new";

/// The length of a line, with its end. A receipt is an id, a token, and the names of a queue and a blob;
/// a longer one is not written.
const LINE: usize = 512;

/// How many messages of dead workers are released concurrently in one part of the queue.
const RELEASES_AT_ONCE: usize = 16;

/// How long the worker's start waits for the releases. They go on beside the work.
const START_WAITS: Duration = Duration::from_secs(2);

/// The longest time for one release.
const RELEASE_WITHIN: Duration = Duration::from_secs(10);

/// The pause before a part of the queue that failed is called again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// After this time in one write, the disk hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The file of another store's dead worker is removed after this time: no lease is longer.
const FOREIGN_KEPT: Duration = Duration::from_hours(7 * 24);

/// Creates the directory if it does not exist. Only this user may read it.
pub(crate) fn create_directory(directory: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(directory) {
        Err(error) if !is_full(&error) => {
            let message =
                format!("{} can't be created: {error}; choose another directory", directory.display());
            Err(Error::new(ErrorKind::Invalid, OPEN, message).with_source(error))
        }
        // Without the directory, its users do without it and log that.
        _ => {
            if let Some(why) = open_to_others(directory) {
                tracing::warn!(
                    directory = %directory.display(),
                    "--state-dir {why}, who could delete messages and announce or hide evictions; use a directory of \
                     this user with mode 0700"
                );
            }
            Ok(())
        }
    }
}

/// Why others than this user may write to the directory; `None` if they may not.
#[cfg(target_os = "linux")]
fn open_to_others(directory: &Path) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(directory).ok()?;
    let user = fs::metadata("/proc/self").ok()?.uid();
    match found.mode() & 0o022 {
        // Root could do that anyway.
        _ if found.uid() != user && found.uid() != 0 => Some("belongs to another user"),
        0 => None,
        _ => Some("may be written to by other users"),
    }
}

/// Why others than this user may write to the directory: not known here.
#[cfg(not(target_os = "linux"))]
fn open_to_others(_: &Path) -> Option<&'static str> {
    None
}

/// Whether the error is a full disk's. That passes without another setting, and a worker can do its work
/// meanwhile; any other error means that the directory is the wrong one.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the store and its copy for drains with queues that keep their receipts in `directory`. `boot`
/// is the machine's present boot, and `place` names the store and its queues.
pub(crate) fn kept(
    directory: &Path,
    worker: &WorkerId,
    boot: &str,
    place: &str,
    [store, drain]: [Store; 2],
) -> Result<[Store; 2]> {
    let header = Header { boot: boot.to_owned(), place: place.to_owned() };
    let (path, file) = match create(directory, worker, &header) {
        Ok((path, file)) => (path, Some(file)),
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, directory = %directory.display(), "failed to create the file of receipts in --state-dir; if this worker is killed, its messages wait for the ends of their leases");
            (PathBuf::new(), None)
        }
        Err(error) => {
            let message = format!(
                "{} can't be used: {error}; choose a directory that the worker may write",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Invalid, OPEN, message).with_source(error));
        }
    };
    let ledger = Arc::new(Ledger::new(directory, path, header, file));
    Ok([store, drain].map(|store| {
        let (inner, ledger) = (Arc::clone(&store.queue), Arc::clone(&ledger));
        let queue = Kept { inner, ledger, released: Arc::default() };
        Store { queue: Arc::new(queue), ..store }
    }))
}

/// Creates this worker's file, under another name, which nobody looks at before it is locked.
fn create(directory: &Path, worker: &WorkerId, header: &Header) -> io::Result<(PathBuf, File)> {
    let path = directory.join(format!("{worker}{FILE}"));
    let new = directory.join(format!("{worker}{NEW_FILE}"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    let begun = file.try_lock().map_err(io::Error::from);
    let begun = begun.and_then(|()| file.write_all(&line(&header.text())));
    if let Err(error) = begun.and_then(|()| fs::rename(&new, &path)) {
        // The first error is the one to report.
        let _left = fs::remove_file(&new);
        return Err(error);
    }
    Ok((path, file))
}

/// The first line of a file.
#[derive(Debug)]
struct Header {
    boot: String,
    place: String,
}

/// This worker's file.
struct Ledger {
    directory: PathBuf,
    /// Empty when there is no file.
    path: PathBuf,
    header: Header,
    lines: Mutex<Lines>,
    /// Locked by the thread that writes.
    file: Mutex<LinesFile>,
}

/// The receipts that are held, each with the number of its line.
struct Lines {
    held: HashMap<String, u64>,
    /// The lines that are to be written.
    due: BTreeMap<u64, Vec<u8>>,
    /// Since when a thread writes one; `None` if there is no such thread.
    writing: Option<Instant>,
    /// That takes too long, and that was logged.
    hangs: bool,
    free: Vec<u64>,
    count: u64,
}

struct LinesFile {
    /// `None` when the disk was full at the start.
    file: Option<File>,
    /// A write failed, and that was logged.
    failed: bool,
}

impl Header {
    /// The text of its line.
    fn text(&self) -> String {
        format!("{}\t{}", self.boot, self.place)
    }

    /// Whether the line is this header's. A long one is cut.
    fn is(&self, text: &str) -> bool {
        line(&self.text()).trim_ascii_end() == text.as_bytes()
    }
}

impl Ledger {
    fn new(directory: &Path, path: PathBuf, header: Header, file: Option<File>) -> Self {
        let (held, due, free) = (HashMap::new(), BTreeMap::new(), Vec::new());
        Self {
            directory: directory.to_owned(),
            path,
            header,
            lines: Mutex::new(Lines { held, due, writing: None, hangs: false, free, count: 1 }),
            file: Mutex::new(LinesFile { file, failed: false }),
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a thread write the lines that are due, unless one is at it.
    fn write(self: &Arc<Self>) {
        let mut lines = self.lines();
        match lines.writing {
            None => {
                lines.writing = Some(Instant::now());
                let ledger = Arc::clone(self);
                drop(spawn_blocking(move || ledger.write_due()));
            }
            Some(since) if since.elapsed() >= HANGS_AFTER && !lines.hangs => {
                lines.hangs = true;
                tracing::warn!(
                    directory = %self.directory.display(),
                    "the disk of --state-dir does not answer; if this worker is killed, its messages wait for the ends of their leases"
                );
            }
            Some(_) => {}
        }
    }

    /// Writes the last receipt of each line.
    fn write_due(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((at, line)) = self.next_due() {
            file.write(at, &line);
        }
    }

    /// The next line to write; the thread ends when there is none.
    fn next_due(&self) -> Option<(u64, Vec<u8>)> {
        let mut lines = self.lines();
        let due = lines.due.pop_first();
        (lines.writing, lines.hangs) = (due.is_some().then(Instant::now), false);
        due
    }

    /// The files of other workers, alive or dead.
    fn others(&self) -> io::Result<Vec<PathBuf>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let path = entry.path();
            // Opening or reading anything else, such as a pipe, may block the worker.
            let is_file =
                entry.file_type()?.is_file() && path.to_str().is_some_and(|path| path.ends_with(FILE));
            if is_file && path != self.path {
                others.push(path);
            }
        }
        Ok(others)
    }

    /// The receipts of a dead worker; `None` if the worker lives, or if its receipts are of no use
    /// here.
    fn of_the_dead(&self, path: &Path) -> io::Result<Option<(DeadWorker, Vec<Receipt>)>> {
        let mut file = File::options().read(true).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it was not written by a worker; remove it",
            ));
        }
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split('\n').map(|line| line.trim_end_matches(' '));
        let header = lines.next().unwrap_or_default();
        let boot = header.split_once('\t').map(|(boot, _)| boot);
        let age = metadata.modified()?.elapsed().unwrap_or_default();
        if boot != Some(self.header.boot.as_str()) {
            // The machine has rebooted since, or the disk was another's: the leases are another
            // matter.
            fs::remove_file(path)?;
            return Ok(None);
        }
        if !self.header.is(header) {
            if age > FOREIGN_KEPT {
                fs::remove_file(path)?;
            }
            return Ok(None);
        }
        let receipts = lines.filter(|line| !line.is_empty()).map(|line| Receipt::new(unescaped(line)));
        let receipts: Vec<_> = receipts.collect();
        let left = AtomicUsize::new(receipts.len());
        Ok(Some((DeadWorker { path: path.to_owned(), left, _lock: file }, receipts)))
    }

    /// The receipts of all dead workers, by the part of the queue that they belong to.
    fn of_all_the_dead(&self, queue: &dyn Queue) -> BTreeMap<usize, Vec<Left>> {
        let mut parts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let others = self.others().unwrap_or_else(|error| {
            unreadable(&error, &self.directory);
            Vec::new()
        });
        for path in others {
            match self.of_the_dead(&path) {
                Ok(None) => {}
                // Another worker has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable(&error, &path),
                Ok(Some((worker, receipts))) if receipts.is_empty() => worker.remove(),
                Ok(Some((worker, receipts))) => {
                    let worker = Arc::new(worker);
                    for receipt in receipts {
                        let left = Left { worker: Arc::clone(&worker), receipt };
                        parts.entry(queue.part(&left.receipt)).or_default().push(left);
                    }
                }
            }
        }
        parts
    }
}

impl Drop for Ledger {
    /// Removes the file when nothing is held. Else the next worker releases what is.
    fn drop(&mut self) {
        let lines = self.lines();
        let may_remove = lines.held.is_empty() && lines.writing.is_none();
        drop(lines);
        if may_remove {
            // It is found and removed by the next worker otherwise.
            let _left = fs::remove_file(&self.path);
        }
    }
}

impl Lines {
    /// Notes the receipt for a free line.
    fn add(&mut self, receipt: &Receipt) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.write(at, receipt);
    }

    /// Notes a new receipt for the line of the old one.
    fn replace(&mut self, old: &Receipt, new: &Receipt) {
        match self.held.remove(old.as_str()) {
            Some(at) => self.write(at, new),
            None => self.add(new),
        }
    }

    /// Frees the line of a receipt, without writing.
    fn free(&mut self, receipt: &Receipt) {
        self.free.extend(self.held.remove(receipt.as_str()));
    }

    fn write(&mut self, at: u64, receipt: &Receipt) {
        let text = escaped(receipt.as_str());
        if text.len() < LINE {
            self.due.insert(at, line(&text));
        }
        self.held.insert(receipt.as_str().to_owned(), at);
    }
}

impl LinesFile {
    fn write(&mut self, at: u64, line: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let written = file.seek(SeekFrom::Start(at * LINE as u64)).and_then(|_| file.write_all(line));
        if let Err(error) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::warn!(%error, "failed to write a receipt into --state-dir; if this worker is killed, its messages wait for the ends of their leases");
        }
    }
}

/// The text in one line, which is one write.
fn line(text: &str) -> Vec<u8> {
    let mut line = text.as_bytes().to_vec();
    line.truncate(LINE - 1);
    line.resize(LINE - 1, b' ');
    line.push(b'\n');
    line
}

/// A receipt may have several lines; none has a tab.
fn escaped(receipt: &str) -> String {
    receipt.replace('\n', "\t")
}

fn unescaped(line: &str) -> String {
    line.replace('\t', "\n")
}

/// A queue whose receipts are kept.
struct Kept {
    inner: Arc<dyn Queue>,
    ledger: Arc<Ledger>,
    /// Messages were released beside the work: an idle worker need not wait for its next look.
    released: Arc<Notify>,
}

impl Kept {
    /// Frees the receipt's line unless the message may still be held under it.
    fn settled(&self, receipt: &Receipt, settled: Result<()>) -> Result<()> {
        if !matches!(&settled, Err(error) if error.kind() != ErrorKind::LeaseLost) {
            self.ledger.lines().free(receipt);
        }
        settled
    }

    /// Releases what dead workers held, and returns how many messages that were within [`START_WAITS`].
    /// A part of the store that does not answer must not keep the worker from the others.
    async fn release_of_the_dead(&self) -> u64 {
        let (ledger, queue) = (Arc::clone(&self.ledger), Arc::clone(&self.inner));
        let reading = spawn_blocking(move || ledger.of_all_the_dead(&*queue));
        let Ok(Ok(parts)) = timeout(START_WAITS, reading).await else {
            tracing::warn!(
                directory = %self.ledger.directory.display(),
                "the disk of --state-dir does not answer; the messages of dead workers wait for the ends of their leases"
            );
            return 0;
        };
        if parts.is_empty() {
            return 0;
        }
        let (queue, released) = (Arc::clone(&self.inner), Arc::new(AtomicU64::new(0)));
        let (count, news) = (Arc::clone(&released), Arc::clone(&self.released));
        let under_way = tokio::spawn(async move {
            let began = Instant::now();
            join_all(parts.into_values().map(|left| release_part(&*queue, left, &count, &news))).await;
            if began.elapsed() >= START_WAITS {
                tracing::info!(
                    released = count.load(Relaxed),
                    "released the messages of dead workers at last"
                );
            }
        });
        if timeout(START_WAITS, under_way).await.is_err() {
            tracing::warn!(
                "the store has not yet released all messages of dead workers; the worker starts, and tries again meanwhile"
            );
        }
        released.load(Relaxed)
    }
}

/// A dead worker's file. Its lock keeps other workers away.
#[derive(Debug)]
struct DeadWorker {
    path: PathBuf,
    /// How many of its receipts the store has not answered for.
    left: AtomicUsize,
    _lock: File,
}

/// A dead worker's receipt that the store has not answered for.
#[derive(Debug)]
struct Left {
    worker: Arc<DeadWorker>,
    receipt: Receipt,
}

impl DeadWorker {
    /// The store has answered for one receipt. The last one removes the file.
    async fn answered(self: Arc<Self>) {
        if self.left.fetch_sub(1, Relaxed) == 1
            && let Err(error) = spawn_blocking(move || self.remove()).await
        {
            tracing::error!(%error, "failed to remove a dead worker's receipts");
        }
    }

    fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            unreadable(&error, &self.path);
        }
    }
}

/// Releases the messages of one part of the queue. A part that does not answer is called again until it
/// does. A release after the end of the lease changes nothing.
async fn release_part(queue: &dyn Queue, mut left: Vec<Left>, released: &AtomicU64, news: &Notify) {
    loop {
        left = release_once(queue, left, released).await;
        news.notify_one();
        if left.is_empty() {
            return;
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Returns the receipts that the store has not answered for. After a failure it calls no further ones.
async fn release_once(queue: &dyn Queue, left: Vec<Left>, released: &AtomicU64) -> Vec<Left> {
    let (now, has_failed) = (Release::default(), AtomicBool::new(false));
    let calls: Vec<_> = left
        .into_iter()
        .map(async |left| {
            if has_failed.load(Relaxed) {
                return Some(left);
            }
            let answer = timeout(RELEASE_WITHIN, queue.release(&left.receipt, &now)).await;
            match answer.unwrap_or_else(|_| Err(unanswered())) {
                Ok(()) => {
                    released.fetch_add(1, Relaxed);
                }
                Err(error) if error.is_temporary() => {
                    if !has_failed.swap(true, Relaxed) {
                        tracing::warn!(%error, "failed to release a dead worker's messages; trying again");
                    }
                    return Some(left);
                }
                // It was settled, or its lease has ended.
                Err(error) => tracing::debug!(%error, "a dead worker's receipt is not valid any more"),
            }
            left.worker.answered().await;
            None
        })
        .collect();
    stream::iter(calls).buffer_unordered(RELEASES_AT_ONCE).filter_map(async |left| left).collect().await
}

fn unreadable(error: &io::Error, path: &Path) {
    tracing::warn!(%error, path = %path.display(), "failed to read a dead worker's receipts; its messages wait for the ends of their leases");
}

fn unanswered() -> Error {
    Error::new(ErrorKind::TimedOut, "release a dead worker's messages", "the store did not answer in time")
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the queue")]
impl Queue for Kept {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.inner.send(messages).await
    }

    fn batch_max(&self) -> usize {
        self.inner.batch_max()
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let received = self.inner.receive(max, lease).await?;
        if !received.is_empty() {
            let mut lines = self.ledger.lines();
            for delivery in &received {
                lines.add(&delivery.receipt);
            }
            drop(lines);
            self.ledger.write();
        }
        Ok(received)
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let renewed = self.inner.renew(receipt, lease).await?;
        self.ledger.lines().replace(receipt, &renewed);
        self.ledger.write();
        Ok(renewed)
    }

    async fn replace(&self, receipt: &Receipt, body: &[u8], lease: Duration) -> Result<Delivery> {
        let replaced = self.inner.replace(receipt, body, lease).await?;
        self.ledger.lines().replace(receipt, &replaced.receipt);
        self.ledger.write();
        Ok(replaced)
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        self.settled(receipt, self.inner.complete(receipt).await)
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        self.settled(receipt, self.inner.release(receipt, release).await)
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.settled(receipt, self.inner.dead_letter(receipt, body, letter).await)
    }

    async fn arrived(&self) {
        tokio::select! {
            biased;
            () = self.released.notified() => {}
            () = self.inner.arrived() => {}
        }
    }

    /// Releases the messages of the dead workers of this machine, too.
    async fn recover(&self) -> Result<u64> {
        Ok(self.inner.recover().await? + self.release_of_the_dead().await)
    }

    async fn depth(&self) -> Result<Depth> {
        self.inner.depth().await
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.inner.dead_letters(max).await
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.inner.receive_letters(max, lease).await
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.inner.remove_letter(receipt).await
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        self.inner.return_letter(receipt).await
    }

    fn part(&self, receipt: &Receipt) -> usize {
        self.inner.part(receipt)
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.inner).finish()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_nobody_and_has_the_last_receipts_when_it_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let header = Header { boot: "boot".to_owned(), place: "place".to_owned() };
        let (path, file) = create(directory.path(), &WorkerId::new("w"), &header).unwrap();
        let ledger = Arc::new(Ledger::new(directory.path(), path.clone(), header, Some(file)));
        let (first, second, other) = (Receipt::new("first"), Receipt::new("second"), Receipt::new("other"));
        let hangs = ledger.file.lock().unwrap();
        ledger.lines().add(&first);
        ledger.write();
        ledger.lines().replace(&first, &second);
        ledger.lines().add(&other);
        ledger.write();
        drop(hangs);
        while ledger.lines().writing.is_some() {
            tokio::task::yield_now().await;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["boot\tplace", "second", "other"]);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, is_open) in [(0o700, false), (0o755, false), (0o770, true), (0o1777, true)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(directory.path()).is_some(), is_open, "{mode:o}");
        }
        assert_eq!(open_to_others(Path::new("/nonexistent")), None);
    }
}
