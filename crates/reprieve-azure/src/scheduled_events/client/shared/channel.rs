//! One process's part in the answers of one api-version: whether it asks, and what it has read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::ask_lock::AskLock;
use super::written::Written;
use super::{Answered, LEADS_FOR, SILENT_AFTER};

/// The number of processes that may ask at once, each while those before it show nothing.
const RANKS: u32 = 4;

/// How much later each further process asks, because the one before may be about to.
const RANK_LATER: Duration = Duration::from_millis(300);

/// After this time without a sign of those that ask, a process asks by itself.
const ALONE_AFTER: Duration = Duration::from_secs(4);

/// The oldest answer that a poll takes although it was written before the poll.
const LATE_MAX: Duration = Duration::from_millis(1_500);

/// A process that has not looked for so long does not know how long the others have been silent.
const LOOKS_WITHIN: Duration = Duration::from_millis(1_500);

/// For how long a process that failed to write leaves the asking to the others.
const UNABLE_FOR: Duration = Duration::from_secs(10);

/// How often it is logged that the answers can't be shared.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The answers in one api-version.
#[derive(Debug)]
pub(super) struct Channel {
    files: PathBuf,
    /// When this process began.
    began: Instant,
    /// Held while this process asks for the others.
    lock: Option<AskLock>,
    /// When this process last asked.
    asked: Option<Instant>,
    /// When the request of the last answer that this process wrote was sent. Requests overlap.
    written: Option<Instant>,
    /// Until when this process does not ask for the others, because it failed to write.
    unable_until: Option<Instant>,
    /// The id of the last answer that a poll took, and the time of its request.
    taken: (u64, Option<Instant>),
    looked: Instant,
    /// The last answer and the last request that was seen in the directory.
    answer: Sign,
    request: Sign,
    /// When it was last logged that the answers can't be shared.
    logged: Option<Instant>,
}

/// The result of a look.
pub(super) enum Look {
    /// This process is one that asks.
    Ask,
    /// A new answer of another one, and the time of its request.
    News(Written, Instant),
    /// There is none yet.
    Wait,
}

/// A sign that another process asks.
#[derive(Debug, Clone, Copy)]
struct Sign {
    id: u64,
    seen: Instant,
}

impl Sign {
    fn note(&mut self, id: u64, now: Instant) {
        if self.id != id {
            *self = Self { id, seen: now };
        }
    }
}

impl Channel {
    pub(super) fn new(files: PathBuf, began: Instant) -> Self {
        let now = Instant::now();
        let never = Sign { id: 0, seen: now };
        Self {
            files,
            began,
            lock: None,
            asked: None,
            written: None,
            unable_until: None,
            taken: (0, None),
            looked: now,
            answer: never,
            request: never,
            logged: None,
        }
    }

    /// Releases the lock if this process has not asked for some time.
    pub(super) fn leave_if_unused(&mut self) {
        if self.asked.is_some_and(|asked| asked.elapsed() > LEADS_FOR) {
            (self.lock, self.asked) = (None, None);
        }
    }

    /// Looks whether this process is to ask, and for news otherwise.
    pub(super) fn look(&mut self, seen: &mut Option<u64>) -> io::Result<Look> {
        let now = Instant::now();
        if now - self.looked > LOOKS_WITHIN {
            (self.answer.seen, self.request.seen) = (now, now);
        }
        self.looked = now;
        self.lock.take_if(|lock| !lock.is_in_place());
        let is_first = self.lock.as_ref().is_some_and(|lock| lock.rank == 0);
        if is_first || (self.is_able(now) && self.try_take(0)?) {
            return Ok(self.ask(now));
        }
        if let Some(news) = self.news(now, seen)? {
            return Ok(news);
        }
        if self.lock.is_some() || self.becomes_another(now)? {
            return Ok(self.ask(now));
        }
        let is_alone = now - self.answer.seen.max(self.request.seen) >= ALONE_AFTER;
        let can_not_share = !self.is_able(now) && now - self.answer.seen >= SILENT_AFTER;
        Ok(if is_alone || can_not_share { Look::Ask } else { Look::Wait })
    }

    fn is_able(&self, now: Instant) -> bool {
        self.unable_until.is_none_or(|until| now >= until)
    }

    fn try_take(&mut self, rank: u32) -> io::Result<bool> {
        let name = if rank == 0 { "lock".to_owned() } else { format!("lock{rank}") };
        let Some(lock) = AskLock::try_take(rank, self.file(&name))? else { return Ok(false) };
        debug!(files = %self.files.display(), rank, "this worker asks the metadata service for all workers of this VM");
        self.lock = Some(lock);
        Ok(true)
    }

    /// Takes a further lock if those that ask are silent.
    fn becomes_another(&mut self, now: Instant) -> io::Result<bool> {
        self.request.note(self.read("request")?.as_deref().map_or(0, id_of_request), now);
        for rank in 1..RANKS {
            let sign = self.answer.seen.max(self.request.seen);
            if !self.is_able(now) || now - sign < SILENT_AFTER + RANK_LATER * (rank - 1) {
                return Ok(false);
            }
            if self.try_take(rank)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes and shows that this process asks.
    fn ask(&mut self, now: Instant) -> Look {
        self.asked = Some(now);
        self.show();
        Look::Ask
    }

    /// Shows that this process asks, or still waits for an answer.
    pub(super) fn show(&self) {
        let id = rand::random::<u64>().max(1);
        // If this fails, the writing of the answer fails as well.
        if let Err(error) = fs::write(self.file("request"), id.to_le_bytes()) {
            debug!(%error, "failed to show the other workers that this one asks the metadata service");
        }
    }

    /// Reads another process's answer, if there is a new one.
    fn news(&mut self, now: Instant, seen: &mut Option<u64>) -> io::Result<Option<Look>> {
        let text = self.read("json")?;
        // Another version of Reprieve may have written something else.
        let written = text.and_then(|text| serde_json::from_slice::<Written>(&text).ok());
        let id = written.as_ref().map_or(0, |written| written.id);
        let before = seen.replace(id);
        let Some(written) = written else { return Ok(None) };
        let sent = written.sent(self.began);
        let is_late = before.is_none() && written.age() > LATE_MAX;
        // The writer was stopped while it waited for this answer.
        let is_outdated = self.taken.1.max(self.written).is_some_and(|newest| sent < newest);
        if is_late || is_outdated {
            return Ok(None);
        }
        self.answer.note(id, now);
        if self.lock.as_ref().is_some_and(|lock| written.rank >= lock.rank) {
            return Ok(None);
        }
        let is_news = before.map_or(self.taken.0 != id, |before| before != id);
        if !is_news {
            return Ok(None);
        }
        self.lock = None;
        self.taken = (id, Some(sent));
        Ok(Some(Look::News(written, sent)))
    }

    /// Writes an answer for the others, unless that to a later request was written.
    pub(super) fn write(&mut self, sent: Instant, answered: &Answered) -> io::Result<()> {
        let Some(lock) = self.lock.as_ref() else { return Ok(()) };
        if self.written.is_some_and(|newest| newest > sent) {
            return Ok(());
        }
        let written = Written::of(answered, lock.rank, sent.elapsed());
        let temporary = self.file(&format!("new{}", lock.rank));
        let text = serde_json::to_vec(&written).unwrap_or_default();
        let stored = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, self.file("json")));
        match stored {
            Ok(()) => {
                self.written = Some(sent);
                self.answer.note(written.id, Instant::now());
            }
            // When the directory was removed, this process takes a lock in the new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.lock = None,
            Err(error) => {
                (self.lock, self.unable_until) = (None, Some(Instant::now() + UNABLE_FOR));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether a failure is to be logged now.
    pub(super) fn may_log(&mut self) -> bool {
        let is_due = self.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY);
        if is_due {
            self.logged = Some(Instant::now());
        }
        is_due
    }

    fn read(&self, what: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.file(what)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn file(&self, what: &str) -> PathBuf {
        let mut path = self.files.clone().into_os_string();
        path.push(format!(".{what}"));
        path.into()
    }
}

/// Half a request's id reads as another one, which is a sign too.
fn id_of_request(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}
