//! The answers that the workers of one VM share, because all processes of a VM together may send five
//! requests a second: for each api-version one of them asks the metadata service, and the others read the
//! answer that it wrote into a common directory.
//!
//! The one that asks holds a lock, which ends with its process: another one takes over within
//! [`LOOK_EVERY`]. When it lives and writes nothing, such as while it is frozen, the others ask by
//! themselves after [`NEWS_WITHIN`].

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::failure::{Failure, FailureKind};
use super::http::Body;

/// How often a process looks for the answer of the one that asks, and for the end of that.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After this time without asking in a version, a process leaves that to the others.
const LEADS_FOR: Duration = Duration::from_secs(3);

/// How long a process waits for an answer of the one that asks, which polls every second.
const NEWS_WITHIN: Duration = Duration::from_millis(1_500);

const OPERATION: &str = "read the scheduled events";

/// The answers in a directory.
#[derive(Debug)]
pub(super) struct SharedAnswers {
    directory: PathBuf,
    /// The service's address as a part of a file's name.
    service: String,
    by_version: Mutex<HashMap<&'static str, Channel>>,
}

/// The answers in one api-version.
#[derive(Debug, Default)]
struct Channel {
    /// Held by the process that asks.
    lock: Option<File>,
    /// When this process last asked.
    asked: Option<Instant>,
    /// When the request of the last answer that was written was sent. Requests overlap.
    written: Option<Instant>,
    /// The directory can't be used, which was logged.
    is_broken: bool,
}

/// The result of a look.
enum Look {
    /// This process is the one that asks.
    Ask,
    /// A new answer of the one that asks.
    News(Written),
    /// There is none yet.
    Wait,
}

/// An answer as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Unique.
    id: u64,
    took_ms: u64,
    ahead_ms: Option<i64>,
    /// The status of a refusal; `None` for a success.
    refused: Option<u16>,
    is_temporary: bool,
    /// The document, or the reason of a refusal.
    text: String,
}

/// An answer, and the time of its request.
pub(super) type Answered = Result<(Body, Instant), Failure>;

impl SharedAnswers {
    pub(super) fn new(directory: &Path, service: &str) -> Self {
        let service = service.trim_start_matches("http://").trim_end_matches('/');
        let service = service.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self { directory: directory.to_owned(), service, by_version: Mutex::default() }
    }

    /// Returns the next answer in this version: by `ask` if this process is the one that asks, or if
    /// that one writes none.
    pub(super) async fn answer(
        &self,
        version: &'static str,
        ask: impl Future<Output = Answered>,
    ) -> Answered {
        let (began, mut seen) = (Instant::now(), None);
        loop {
            match self.look(version, &mut seen) {
                Look::Ask => {
                    let sent = Instant::now();
                    let answered = ask.await;
                    self.write(version, sent, &answered);
                    return answered;
                }
                Look::News(written) => return written.read(),
                Look::Wait if began.elapsed() < NEWS_WITHIN => sleep(LOOK_EVERY).await,
                Look::Wait => return ask.await,
            }
        }
    }

    /// `seen` is the id of the answer that was there at the first look, which may be old; 0 for none.
    fn look(&self, version: &'static str, seen: &mut Option<u64>) -> Look {
        let mut all = self.lock();
        let now = Instant::now();
        for channel in all.values_mut() {
            if channel.asked.is_some_and(|asked| now - asked > LEADS_FOR) {
                (channel.lock, channel.asked) = (None, None);
            }
        }
        let channel = all.entry(version).or_default();
        if channel.lock.is_some() || channel.is_broken {
            channel.asked = Some(now);
            return Look::Ask;
        }
        match self.try_look(version, channel, seen) {
            Ok(look) => look,
            Err(error) => {
                channel.is_broken = true;
                let directory = self.directory.display();
                warn!(%error, %directory, "failed to share the answers of the metadata service; this worker asks by itself");
                Look::Ask
            }
        }
    }

    fn try_look(&self, version: &str, channel: &mut Channel, seen: &mut Option<u64>) -> io::Result<Look> {
        let lock = options().write(true).create(true).truncate(false).open(self.path(version, "lock"))?;
        match lock.try_lock() {
            Ok(()) => {
                debug!(version, "this worker asks the metadata service for all workers of this VM");
                (channel.lock, channel.asked) = (Some(lock), Some(Instant::now()));
                return Ok(Look::Ask);
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let text = match fs::read(self.path(version, "json")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // Another version of Reprieve may have written something else.
        let written = serde_json::from_slice::<Written>(&text).ok();
        let id = written.as_ref().map_or(0, |written| written.id);
        let is_news = seen.replace(id).is_some_and(|seen| seen != id);
        Ok(written.filter(|_| is_news).map_or(Look::Wait, Look::News))
    }

    /// Writes an answer unless that to a later request was written. No answer at all is not written: the
    /// others find out by themselves.
    fn write(&self, version: &'static str, sent: Instant, answered: &Answered) {
        let Some(written) = Written::of(answered, sent.elapsed()) else { return };
        let mut all = self.lock();
        let channel = all.entry(version).or_default();
        if channel.is_broken || channel.written.is_some_and(|newest| newest > sent) {
            return;
        }
        channel.written = Some(sent);
        let temporary = self.path(version, "new");
        let text = serde_json::to_vec(&written).unwrap_or_default();
        let stored = fs::write(&temporary, text);
        if let Err(error) = stored.and_then(|()| fs::rename(&temporary, self.path(version, "json"))) {
            debug!(%error, "failed to write an answer of the metadata service for the other workers");
        }
    }

    fn path(&self, version: &str, what: &str) -> PathBuf {
        self.directory.join(format!("events-{}-{version}.{what}", self.service))
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Channel>> {
        self.by_version.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only this user may read and write what is created.
fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

impl Written {
    fn of(answered: &Answered, took: Duration) -> Option<Self> {
        let (id, took_ms) = (rand::random(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        Some(match answered {
            Ok((body, _)) => Self {
                id,
                took_ms,
                ahead_ms: body.ahead.and_then(|ahead| i64::try_from(ahead.as_millis()).ok()),
                refused: None,
                is_temporary: false,
                text: String::from_utf8_lossy(&body.bytes).into_owned(),
            },
            Err(Failure { status, error, .. }) => Self {
                id,
                took_ms,
                ahead_ms: None,
                refused: Some((*status)?),
                is_temporary: error.is_temporary(),
                text: error.message().to_owned(),
            },
        })
    }

    fn read(self) -> Answered {
        if let Some(status) = self.refused {
            let kind = if self.is_temporary { ErrorKind::Unavailable } else { ErrorKind::Invalid };
            return Err(Failure {
                kind: FailureKind::of_status(status),
                status: Some(status),
                error: Error::new(kind, OPERATION, self.text),
            });
        }
        let now = Instant::now();
        let sent = now.checked_sub(Duration::from_millis(self.took_ms)).unwrap_or(now);
        Ok((
            Body { bytes: self.text.into_bytes(), ahead: self.ahead_ms.map(SignedDuration::from_millis) },
            sent,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body { bytes: text.as_bytes().to_vec(), ahead: Some(SignedDuration::from_millis(1_500)) }
    }

    /// Asks, and returns `answer`.
    async fn asked(of: &SharedAnswers, answer: &str) -> String {
        let asked = of.answer("1", async { Ok((body(answer), Instant::now())) }).await;
        String::from_utf8(asked.expect("an answer").0.bytes).expect("text")
    }

    #[tokio::test]
    async fn one_process_asks_and_the_others_read_its_answers_until_it_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        let (first, second) = (open(), open());
        assert_eq!(asked(&first, "a").await, "a");
        let reading = asked(&second, "never asked");
        let writing = async {
            sleep(LOOK_EVERY * 2).await;
            asked(&first, "b").await
        };
        assert_eq!(tokio::join!(reading, writing), ("b".to_owned(), "b".to_owned()));
        drop(first);
        assert_eq!(asked(&second, "taken over").await, "taken over");
    }

    #[tokio::test]
    async fn a_refusal_is_shared_as_it_was_and_the_lack_of_an_answer_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        let (first, second) = (open(), open());
        assert_eq!(asked(&first, "a").await, "a");
        let mut seen = None;
        assert!(matches!(second.look("1", &mut seen), Look::Wait));
        let refused = |status| Failure {
            kind: FailureKind::of_status(429),
            status,
            error: Error::new(ErrorKind::Unavailable, OPERATION, "too many requests"),
        };
        first.write("1", Instant::now(), &Err(refused(Some(429))));
        let Look::News(written) = second.look("1", &mut seen) else { panic!("no news") };
        let failure = written.read().expect_err("a refusal");
        assert_eq!((failure.kind, failure.status), (FailureKind::Throttled, Some(429)));
        assert!(failure.passes() && failure.error.to_string().contains("too many requests"));
        first.write("1", Instant::now(), &Err(refused(None)));
        assert!(matches!(second.look("1", &mut seen), Look::Wait));
    }

    #[tokio::test]
    async fn a_process_asks_by_itself_when_the_one_that_should_is_frozen() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        let (frozen, other) = (open(), open());
        assert_eq!(asked(&frozen, "a").await, "a");
        let began = Instant::now();
        assert_eq!(asked(&other, "by itself").await, "by itself");
        assert!(began.elapsed() >= NEWS_WITHIN);
    }

    #[tokio::test]
    async fn what_was_written_before_a_poll_is_no_answer_to_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        let (first, second) = (open(), open());
        for answer in ["a", "b"] {
            assert_eq!(asked(&first, answer).await, answer);
            assert_eq!(asked(&second, "by itself").await, "by itself");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_a_process_only_tried_is_left_to_the_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        let (first, second) = (open(), open());
        assert_eq!(asked(&first, "a").await, "a");
        sleep(LEADS_FOR + LOOK_EVERY).await;
        assert!(matches!(first.look("2", &mut None), Look::Ask), "its other version");
        assert!(matches!(second.look("1", &mut None), Look::Ask));
    }

    #[tokio::test]
    async fn a_directory_that_can_not_be_used_is_no_hindrance() {
        let shared = SharedAnswers::new(Path::new("/nonexistent/reprieve"), "");
        assert_eq!(asked(&shared, "a").await, "a");
    }

    #[test]
    fn a_late_answer_does_not_replace_a_newer_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let shared = SharedAnswers::new(directory.path(), "http://127.0.0.1/");
        assert!(matches!(shared.look("1", &mut None), Look::Ask));
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        shared.write("1", late, &Ok((body("late"), late)));
        shared.write("1", early, &Ok((body("early"), early)));
        let text = fs::read_to_string(shared.path("1", "json")).expect("a file");
        assert!(text.contains("late"), "{text}");
    }
}
