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
use std::time::Duration;

use reprieve_core::Error;
use tokio::time::{Instant, sleep};
use tracing::debug;

use self::ask_lock::AskLock;
pub(crate) use self::polls::{News, SharedPolls};
use super::compute::Compute;

/// How often a process looks for the answer of the one that asks, and for the end of that.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The directory, for the answers of one service. Only this user may use it. Its parent must exist.
#[derive(Debug)]
pub(super) struct SharedDirectory {
    path: PathBuf,
    /// The service's address as a part of a file's name.
    service: String,
}

impl SharedDirectory {
    pub(super) fn new(path: &Path, service: &str) -> Self {
        let service = service.trim_start_matches("http://").trim_end_matches('/');
        let service = service.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self { path: path.to_owned(), service }
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

    /// Keeps the instance document for the other workers of this VM. On a failure they ask themselves.
    pub(super) fn keep_instance(&self, body: &[u8]) {
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
        &self,
        within: Duration,
        ask: impl Future<Output = Result<Compute, Error>>,
    ) -> Result<Compute, Error> {
        let began = Instant::now();
        loop {
            if let Some(compute) = self.kept_instance().and_then(|body| Compute::read(&body).ok()) {
                return Ok(compute);
            }
            let lock = self.create().and_then(|()| AskLock::try_take(0, self.file("instance", "lock")));
            match lock {
                Ok(None) if began.elapsed() < within / 2 => sleep(LOOK_EVERY).await,
                // Without a directory each worker asks for itself.
                _held => return ask.await,
            }
        }
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
