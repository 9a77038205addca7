//! The directory in which the workers of one VM share what the metadata service answers, because all processes
//! of a VM together may send five requests a second: the answers to polls in [`SharedPolls`], and the instance
//! document here.

mod ask_lock;
mod polls;
mod trials;
mod written;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reprieve_core::Error;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use self::ask_lock::AskLock;
pub(crate) use self::polls::{Look, News, Note, PollResult, SharedPolls};
use super::compute::Compute;

/// How often a process looks for the answer of the one that asks, and for the end of that.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After this time without a return, work with the files hangs, as their disk does.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(1);

/// The directory, for the answers of one service. Only this user may use it. Its parent must exist.
#[derive(Debug)]
pub(super) struct SharedDirectory {
    path: PathBuf,
    /// The service's address as a part of a file's name.
    service: String,
    /// Held while a thread works with the files of the instance document.
    instance: Arc<Mutex<()>>,
}

impl SharedDirectory {
    pub(super) fn new(path: &Path, service: &str) -> Self {
        let service = service.trim_start_matches("http://").trim_end_matches('/');
        let service = service.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self { path: path.to_owned(), service, instance: Arc::default() }
    }

    fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    /// A file about `subject`.
    fn file(&self, subject: &str, what: &str) -> PathBuf {
        self.path.join(format!("{subject}-{}.{what}", self.service))
    }

    /// Works with the files of the instance document on a thread of its own, because a disk may hang. Returns `None`
    /// if it does.
    async fn off_thread<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let (directory, turn) = (Arc::clone(self), Arc::clone(&self.instance));
        let done = async move {
            let turn = turn.lock_owned().await;
            let work = move || {
                let _turn = turn;
                work(&directory)
            };
            spawn_blocking(work).await.ok()
        };
        timeout(HANGS_AFTER, done).await.ok().flatten()
    }

    /// Keeps the instance document for the other workers of this VM. On a failure they ask themselves.
    pub(super) async fn keep_instance(self: &Arc<Self>, body: Vec<u8>) {
        self.off_thread(move |directory| directory.write_instance(&body)).await;
    }

    fn write_instance(&self, body: &[u8]) {
        let Some(boot) = boot() else { return };
        let temporary = self.file("instance", &format!("new-{}", std::process::id()));
        let written = self.create().and_then(|()| {
            fs::write(&temporary, [boot.as_bytes(), b"\n", body].concat())?;
            fs::rename(&temporary, self.file("instance", "json"))
        });
        if let Err(error) = written {
            debug!(%error, "failed to keep this VM's name for the other workers");
        }
    }

    /// Returns the instance document that a worker has kept since this machine started; by `ask` if there is
    /// none, and no other worker asks, which is waited for half of `within`: it may be stopped.
    pub(super) async fn instance(
        self: &Arc<Self>,
        within: Duration,
        ask: impl Future<Output = Result<Compute, Error>>,
    ) -> Result<Compute, Error> {
        let began = Instant::now();
        loop {
            match self.off_thread(Self::instance_or_lock).await {
                Some(Ok(compute)) => return Ok(*compute),
                Some(Err(Ok(None))) if began.elapsed() < within / 2 => sleep(LOOK_EVERY).await,
                // Without a directory, or if it hangs, each worker asks for itself.
                _held => return ask.await,
            }
        }
    }

    /// Returns what is kept, or else the lock of the worker that asks, if no other one holds it.
    fn instance_or_lock(&self) -> Result<Box<Compute>, io::Result<Option<AskLock>>> {
        if let Some(compute) = self.kept_instance().and_then(|body| Compute::read(&body).ok()) {
            return Ok(Box::new(compute));
        }
        Err(self.create().and_then(|()| AskLock::try_take(0, self.file("instance", "lock"))))
    }

    /// The instance document that a worker has kept since this machine started; later it may be another
    /// VM's, made of this one's disk.
    fn kept_instance(&self) -> Option<Vec<u8>> {
        let text = fs::read(self.file("instance", "json")).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        (text[..end] == *boot()?.as_bytes()).then(|| text[end + 1..].to_vec())
    }
}

/// The id of this machine's present boot; `None` where the system has none.
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
