//! The answers that the workers of one VM share, because all processes of a VM together may send five
//! requests a second: for each api-version one of them asks the metadata service, and the others read the
//! answer, or the failure, that it wrote into a common directory.
//!
//! The one that asks holds a lock, which ends with its process: another one takes over within
//! [`LOOK_EVERY`]. When it lives and shows nothing for [`SILENT_AFTER`], such as while it is stopped,
//! one other process asks as well until it writes again, by a second lock. An answer that it waits for is
//! no reason: two would get none sooner, and use up what the service answers.

mod ask_lock;
mod channel;
mod written;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_core::{Error, ErrorKind};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use self::ask_lock::AskLock;
use self::channel::{Channel, Look};
use super::compute::Compute;
use super::failure::{Failure, FailureKind};
use super::http::Body;

/// How often a process looks for the answer of the one that asks, and for the end of that.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often a process shows that it waits for an answer.
const SHOW_EVERY: Duration = Duration::from_millis(400);

/// After this time without asking in a version, a process leaves that to the others.
const LEADS_FOR: Duration = Duration::from_secs(3);

/// After this time without a sign of one that asks, another process asks too. Those that ask do so each
/// second, or show that they wait.
const SILENT_AFTER: Duration = Duration::from_millis(1_200);

const OPERATION: &str = "read the scheduled events";

/// The answers in a directory.
#[derive(Debug)]
pub(super) struct SharedAnswers {
    directory: PathBuf,
    /// The service's address as a part of a file's name.
    service: String,
    began: Instant,
    by_version: Mutex<HashMap<&'static str, Channel>>,
}

/// An answer, and the time of its request.
pub(super) type Answered = Result<(Body, Instant), Failure>;

impl SharedAnswers {
    pub(super) fn new(directory: &Path, service: &str) -> Self {
        let service = service.trim_start_matches("http://").trim_end_matches('/');
        let service = service.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let directory = directory.to_owned();
        Self { directory, service, began: Instant::now(), by_version: Mutex::default() }
    }

    /// Returns the next answer in this version: by `ask` if this process is one that asks. Otherwise it
    /// waits for another process's answer no longer than `within`.
    pub(super) async fn answer(
        &self,
        version: &'static str,
        within: Duration,
        ask: impl Future<Output = Answered>,
    ) -> Answered {
        let (began, mut seen) = (Instant::now(), None);
        loop {
            match self.look(version, &mut seen) {
                Look::Ask => {
                    let sent = Instant::now();
                    let answered = self.ask(version, ask).await;
                    self.write(version, sent, &answered);
                    return answered;
                }
                Look::News(written, sent) => return written.read(sent),
                Look::Wait if began.elapsed() < within => sleep(LOOK_EVERY).await,
                Look::Wait => {
                    let message = format!("the worker that asks for this VM had no answer within {within:?}");
                    let error = Error::new(ErrorKind::TimedOut, OPERATION, message);
                    return Err(Failure::new(FailureKind::TimedOut, error));
                }
            }
        }
    }

    /// Asks, and shows the others for as long as it takes that this process is not stopped.
    async fn ask(&self, version: &'static str, ask: impl Future<Output = Answered>) -> Answered {
        let mut ask = pin!(ask);
        loop {
            if let Ok(answered) = timeout(SHOW_EVERY, &mut ask).await {
                return answered;
            }
            if let Some(channel) = self.lock().get_mut(version) {
                channel.show();
            }
        }
    }

    /// `seen` is the id of the answer that the caller has seen last, if it has looked before.
    fn look(&self, version: &'static str, seen: &mut Option<u64>) -> Look {
        let mut all = self.lock();
        for channel in all.values_mut() {
            channel.leave_if_unused();
        }
        let channel = all.entry(version).or_insert_with(|| Channel::new(self.files(version), self.began));
        let looked = channel.look(seen).or_else(|error| {
            // Somebody cleans up, or the service manager has removed it.
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            self.create_directory()?;
            channel.look(seen)
        });
        looked.unwrap_or_else(|error| {
            if channel.may_log() {
                let directory = self.directory.display();
                warn!(
                    %error, %directory,
                    "failed to share the answers of the metadata service; this worker asks by itself, and tries again"
                );
            }
            Look::Ask
        })
    }

    /// Keeps the instance document for the other workers of this VM. On a failure they ask themselves.
    pub(super) fn keep_instance(&self, body: &[u8]) {
        let Some(boot) = boot() else { return };
        let temporary = self.instance_file(&format!("new-{}", std::process::id()));
        let written = self.create_directory().and_then(|()| {
            fs::write(&temporary, [boot.as_bytes(), b"\n", body].concat())?;
            fs::rename(&temporary, self.instance_file("json"))
        });
        if let Err(error) = written {
            debug!(%error, "failed to keep this VM's name for the other workers");
        }
    }

    /// Returns the instance document that a worker has kept since this machine started; by `ask` if there is
    /// none, and no other worker asks, which is waited for no longer than `within`.
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
            let lock =
                self.create_directory().and_then(|()| AskLock::try_take(0, self.instance_file("lock")));
            match lock {
                Ok(None) if began.elapsed() < within => sleep(LOOK_EVERY).await,
                // Without a directory each worker asks for itself.
                _held => return ask.await,
            }
        }
    }

    /// The instance document that a worker has kept since this machine started; later it may be another
    /// VM's, made of this one's disk.
    fn kept_instance(&self) -> Option<Vec<u8>> {
        let text = fs::read(self.instance_file("json")).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        (text[..end] == *boot()?.as_bytes()).then(|| text[end + 1..].to_vec())
    }

    fn instance_file(&self, what: &str) -> PathBuf {
        self.directory.join(format!("instance-{}.{what}", self.service))
    }

    /// Only this user may use the directory. Its parent must exist.
    fn create_directory(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    fn write(&self, version: &'static str, sent: Instant, answered: &Answered) {
        if let Some(channel) = self.lock().get_mut(version)
            && let Err(error) = channel.write(sent, answered)
            && channel.may_log()
        {
            let directory = self.directory.display();
            warn!(
                %error, %directory,
                "failed to write an answer of the metadata service for the other workers; one of them asks instead"
            );
        }
    }

    /// The path and the first part of the names of a version's files.
    fn files(&self, version: &str) -> PathBuf {
        self.directory.join(format!("events-{}-{version}", self.service))
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Channel>> {
        self.by_version.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of this machine's present boot; `None` where the system has none.
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
