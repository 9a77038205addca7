//! One watcher's part in the polls that the watchers of a VM share: whether it polls, and what it has read.
//!
//! One of them polls, in all api-versions, and writes what it gets; the others read that. The one that polls
//! holds a lock, which ends with its process: another one takes over within [`LOOK_EVERY`](super::LOOK_EVERY).
//! While it lives, it shows a sign of that; when there has been none for [`SILENT_AFTER`], such as while it is
//! stopped, one other process polls as well, by a second lock, until it sees a sign of the first again. One that
//! gets no answers leaves its lock to one that does: see [`Trials`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::SharedDirectory;
use super::ask_lock::AskLock;
use super::trials::Trials;
use super::written::Written;
use crate::scheduled_events::client::{Answered, FailureKind};
use crate::scheduled_events::document::ApiVersion;

/// How often the process that polls shows that it is not stopped.
const SHOW_EVERY: Duration = Duration::from_millis(400);

/// After this time without a sign of one that polls, another process polls too.
const SILENT_AFTER: Duration = Duration::from_millis(1_200);

/// The number of processes that may poll at once, each while those before it show nothing.
const RANKS: u8 = 4;

/// How much later each further process polls, because the one before may be about to.
const RANK_LATER: Duration = Duration::from_millis(300);

/// After this time without a sign of those that poll, a process polls by itself.
const ALONE_AFTER: Duration = Duration::from_secs(4);

/// The oldest answer that a process takes although it was written before its first look.
const LATE_MAX: Duration = Duration::from_millis(1_500);

/// A process that has not looked for so long does not know how long the others, or the service, have been silent.
const LOOKS_WITHIN: Duration = Duration::from_millis(1_500);

/// An answer that was not renewed for so long is removed: the version is not polled any more.
const OUTDATED_AFTER: Duration = Duration::from_secs(10);

/// The largest file that is read: the largest answers in all versions.
const BYTES_MAX: u64 = 16 << 20;

/// For how long a process that failed to write, or alone got no answer, leaves the polls to the others.
const UNABLE_FOR: Duration = Duration::from_secs(10);

/// How often it is logged that the polls can't be shared.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The polls that the watchers of a VM share.
#[derive(Debug)]
pub(crate) struct SharedPolls {
    directory: Arc<SharedDirectory>,
    /// The first part of the files' names. Watchers that are pinned to a version share with their like.
    subject: String,
    /// When this process began.
    began: Instant,
    /// Held while this process polls for the others, and since when.
    lock: Option<(AskLock, Instant)>,
    /// When this process last showed that it polls.
    shown: Option<Instant>,
    /// Held while this process has just claimed the polls: it ends with the process, and the claim with it.
    claim: Option<AskLock>,
    /// When this process failed to write, or left the polls to one that gets answers.
    failed_at: Option<Instant>,
    trials: Trials,
    /// When this process last looked.
    looked: Instant,
    /// The last sign of the process of each rank.
    signs: [Sign; RANKS as usize],
    /// The last answer and the last failure in each version, and the time of the request. A failure that follows
    /// an answer within a look must not hide it.
    last: BTreeMap<(ApiVersion, bool), Last>,
    /// Answers of others that were found while this process wrote its own.
    unread: Vec<News>,
    /// When it was last logged that the polls can't be shared.
    logged: Option<Instant>,
}

/// What a process knows that did not look since.
#[derive(Debug)]
pub(crate) enum Note {
    /// An answer was heard that would list an eviction, whoever polled.
    Heard(Instant),
    /// Another answer of the service was heard: a 429, or one in a version that lists no evictions.
    HeardOtherwise(Instant),
    /// This process's poll has ended.
    Polled(PollResult),
}

/// The result of a poll of this process.
#[derive(Debug)]
pub(crate) struct PollResult {
    version: ApiVersion,
    sent: Instant,
    written: Written,
}

impl PollResult {
    pub(crate) fn of(version: ApiVersion, sent: Instant, answered: &Answered) -> Self {
        Self { version, sent, written: Written::of(version, answered, sent.elapsed()) }
    }
}

/// What a look has found.
#[derive(Debug)]
pub(crate) struct Look {
    /// Whether this process is to poll now.
    pub(crate) polls: bool,
    /// The results of other processes' polls since the last look.
    pub(crate) news: Vec<News>,
    /// The version in which this process is to send a single poll.
    pub(crate) trial: Option<ApiVersion>,
}

/// The result of another process's poll.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) version: ApiVersion,
    /// The time of its request.
    pub(crate) sent: Instant,
    pub(crate) answered: Answered,
}

/// The last result in a version.
#[derive(Debug)]
struct Last {
    written: Written,
    sent: Instant,
    /// When this process got it: an answer may take two minutes.
    at: Instant,
}

/// A sign that a process polls.
#[derive(Debug, Clone, Copy)]
struct Sign {
    id: u64,
    seen: Instant,
}

impl SharedPolls {
    pub(in super::super) fn new(directory: Arc<SharedDirectory>, pinned: Option<ApiVersion>) -> Self {
        let now = Instant::now();
        Self {
            directory,
            subject: pinned.map_or_else(|| "events".to_owned(), |version| format!("events-in-{version}")),
            began: now,
            lock: None,
            shown: None,
            claim: None,
            failed_at: None,
            trials: Trials::new(now),
            looked: now,
            signs: [Sign { id: 0, seen: now }; RANKS as usize],
            last: BTreeMap::new(),
            unread: Vec::new(),
            logged: None,
        }
    }

    /// Shares what is noted, and looks what the others do; `next` is the version to try after those that were
    /// tried. Call it every [`LOOK_EVERY`](super::LOOK_EVERY), also while this process polls: that shows the others
    /// that it lives. It blocks on the files.
    pub(crate) fn work(&mut self, notes: Vec<Note>, next: impl FnOnce(&[ApiVersion]) -> ApiVersion) -> Look {
        for note in notes {
            match note {
                Note::Heard(at) => self.trials.heard(at),
                Note::HeardOtherwise(at) => self.trials.answered_otherwise(at),
                Note::Polled(result) => self.write(result),
            }
        }
        let polls = self.look();
        let news = self.news();
        // What an answer says of the silence is noted before the next look.
        let is_answered = |news: &News| match &news.answered {
            Ok(_) => true,
            Err(failure) => failure.kind == FailureKind::Throttled,
        };
        let may_try = !polls && !news.iter().any(is_answered);
        let trial = if may_try { self.begins_trial(next) } else { None };
        Look { polls, news, trial }
    }

    /// Looks whether this process is to poll now.
    fn look(&mut self) -> bool {
        let looked = self.try_look().or_else(|error| {
            // Somebody cleans up, or the service manager has removed it.
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            self.directory.create()?;
            self.try_look()
        });
        looked.unwrap_or_else(|error| {
            self.can_not_share(&error);
            true
        })
    }

    fn try_look(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        if now - self.looked > LOOKS_WITHIN {
            self.signs.iter_mut().for_each(|sign| sign.seen = now);
            self.trials.heard(now);
        }
        self.looked = now;
        self.lock.take_if(|(lock, _)| !lock.is_in_place());
        self.read_signs(now)?;
        self.failed_at.take_if(|at| now - *at >= UNABLE_FOR);
        let claim = self.read("claim")?.as_deref().map_or(0, id_of_sign);
        if self.trials.on_claim(claim, now) && self.lock.take().is_some() {
            debug!("another worker gets answers from the metadata service, and this one none; it polls now");
            self.failed_at = Some(now);
        }
        self.check_claim(now)?;
        if self.failed_at.is_none() && !self.trials.is_claimed(now) {
            self.take_lock(now)?;
        }
        self.lock.take_if(|(lock, since)| {
            self.signs[..usize::from(lock.rank)].iter().any(|sign| sign.seen > *since)
        });
        if self.lock.is_some() {
            return self.show(now).map(|()| true);
        }
        Ok(match self.failed_at {
            None => self.silence(now) >= ALONE_AFTER,
            // Until it sees another one poll.
            Some(at) => self.silence(now) >= SILENT_AFTER.min(now - at),
        })
    }

    /// Holds the lock of a claim while it counts, and ends that of another process that has died since.
    fn check_claim(&mut self, now: Instant) -> io::Result<()> {
        if !self.trials.has_claimed(now) {
            self.claim = None;
        } else if self.claim.is_none() {
            self.claim = self.try_claim()?;
        }
        if self.trials.is_claimed(now) && self.try_claim()?.is_some() {
            debug!("the worker has ended that claimed the polls of the metadata service");
            self.trials.claimant_died();
        }
        Ok(())
    }

    fn try_claim(&self) -> io::Result<Option<AskLock>> {
        AskLock::try_take(0, self.file("claimed"))
    }

    /// Takes the lock of the process that always polls if it is free, and a further one if those that poll
    /// are silent, or this process has claimed the polls.
    fn take_lock(&mut self, now: Instant) -> io::Result<()> {
        let held = self.lock.as_ref().map(|(lock, _)| lock.rank);
        for rank in 0..held.map_or(RANKS, |held| held.min(1)) {
            let is_due = rank == 0
                || self.trials.has_claimed(now)
                || self.silence(now) >= SILENT_AFTER + RANK_LATER * u32::from(rank - 1);
            if !is_due {
                break;
            }
            if let Some(lock) = AskLock::try_take(rank, self.file(&format!("lock{rank}")))? {
                debug!(
                    subject = self.subject,
                    rank, "this worker polls the metadata service for all workers of this VM"
                );
                (self.lock, self.shown) = (Some((lock, now)), None);
                break;
            }
        }
        Ok(())
    }

    /// Returns the time since the last sign of any process.
    fn silence(&self, now: Instant) -> Duration {
        self.signs.iter().map(|sign| now - sign.seen).min().unwrap_or_default()
    }

    fn read_signs(&mut self, now: Instant) -> io::Result<()> {
        for rank in 0..RANKS {
            let id = self.read(&format!("sign{rank}"))?.as_deref().map_or(0, id_of_sign);
            let sign = &mut self.signs[usize::from(rank)];
            if sign.id != id {
                *sign = Sign { id, seen: now };
            }
        }
        Ok(())
    }

    /// Shows that this process polls.
    fn show(&mut self, now: Instant) -> io::Result<()> {
        let Some((lock, _)) = &self.lock else { return Ok(()) };
        if self.shown.is_some_and(|shown| now - shown < SHOW_EVERY) {
            return Ok(());
        }
        self.shown = Some(now);
        let id = rand::random::<u64>().max(1);
        fs::write(self.file(&format!("sign{}", lock.rank)), id.to_be_bytes())
    }

    /// Returns the results of other processes' polls since the last call.
    fn news(&mut self) -> Vec<News> {
        let mut news = std::mem::take(&mut self.unread);
        news.extend(self.read_news());
        news
    }

    fn read_news(&mut self) -> Vec<News> {
        let text = self.read("json").unwrap_or_else(|error| {
            debug!(%error, "failed to read what the worker got that polls for this VM");
            None
        });
        // Another version of Reprieve may have written something else.
        let all = text.and_then(|text| serde_json::from_slice::<Vec<Written>>(&text).ok());
        let mut news = Vec::new();
        for written in all.unwrap_or_default() {
            let Some(version) = written.version() else { continue };
            let sent = written.sent(self.began);
            let key = (version, written.is_answer());
            let is_news = match self.last.get(&key) {
                // Else its writer was stopped while it waited for this answer.
                Some(last) => last.written.id != written.id && sent >= last.sent,
                None => written.is_younger_than(LATE_MAX),
            };
            if is_news {
                news.push(News { version, sent, answered: written.read() });
                self.last.insert(key, Last { written, sent, at: Instant::now() });
            }
        }
        news.sort_by_key(|news| news.sent);
        news
    }

    /// Writes what this process got for the others: all that it gets if it polls for them, and else what would be
    /// the truth for them, too, which is an answer. With that it claims the polls if nobody else hears one.
    fn write(&mut self, result: PollResult) {
        let (sent, is_answer) = (result.sent, result.written.is_answer());
        if self.lock.is_some() {
            match self.store(result) {
                Ok(()) => {}
                // The directory was removed. The next look makes a new one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.lock = None,
                Err(error) => self.can_not_share(&error),
            }
        } else if is_answer {
            let claimed = self.store(result).and_then(|()| self.claim(sent));
            if let Err(error) = claimed {
                debug!(%error, "failed to share an answer with the other workers");
            }
        }
    }

    /// Merges the result into what all have got, unless another process got a later one. Should another one write in
    /// the same moment, a result may be lost; the next one follows in a second.
    fn store(&mut self, result: PollResult) -> io::Result<()> {
        let unread = self.read_news();
        self.unread.extend(unread);
        let PollResult { version, sent, written } = result;
        let key = (version, written.is_answer());
        if self.last.get(&key).is_some_and(|last| last.sent > sent) {
            return Ok(());
        }
        self.last.insert(key, Last { written, sent, at: Instant::now() });
        self.last.retain(|_, last| last.at.elapsed() < OUTDATED_AFTER);
        let all: Vec<_> = self.last.values().map(|last| &last.written).collect();
        let text = serde_json::to_vec(&all).map_err(io::Error::other)?;
        self.replace("json", &text)
    }

    /// Claims the polls if nobody has heard an answer for a while before this poll was sent, and since.
    fn claim(&mut self, sent: Instant) -> io::Result<()> {
        let Some(claim) = self.trials.claims(sent, Instant::now()) else { return Ok(()) };
        debug!("the metadata service answers this worker, and not the one that polls; it claims the polls");
        self.claim = self.try_claim()?;
        fs::write(self.file("claim"), claim.to_be_bytes())?;
        self.failed_at = None;
        Ok(())
    }

    /// Returns the version in which this process, which does not poll, is to send a single poll now, because nobody
    /// has heard an answer for a while: the `next` one after those that were tried, the last one at the end.
    fn begins_trial(&mut self, next: impl FnOnce(&[ApiVersion]) -> ApiVersion) -> Option<ApiVersion> {
        let now = Instant::now();
        if !self.trials.is_silent(now) {
            return None;
        }
        // Two that look in the same moment send one request more.
        let last = self.read("turn").ok().flatten().and_then(|text| serde_json::from_slice(&text).ok());
        let mut turn = self.trials.takes_turn(last, now)?;
        let version = next(&turn.versions());
        turn.begin(version);
        let text = serde_json::to_vec(&turn).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| self.replace("turn", &text)) {
            debug!(%error, "failed to tell the other workers that this one tries the metadata service");
        }
        Some(version)
    }

    fn can_not_share(&mut self, error: &io::Error) {
        let now = Instant::now();
        (self.lock, self.failed_at) = (None, Some(now));
        if self.logged.is_none_or(|logged| now - logged >= LOG_EVERY) {
            self.logged = Some(now);
            let directory = self.directory.path.display();
            warn!(
                %error, %directory,
                "failed to share the answers of the metadata service; another worker polls for this VM, or each one does"
            );
        }
    }

    fn read(&self, what: &str) -> io::Result<Option<Vec<u8>>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut text = Vec::new();
            fs::File::open(self.file(what))?.take(BYTES_MAX).read_to_end(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file at once: a write may wait for the disk when the file is empty already.
    fn replace(&self, what: &str, text: &[u8]) -> io::Result<()> {
        let temporary = self.file(&format!("new-{}", self.trials.id()));
        fs::write(&temporary, text)?;
        fs::rename(&temporary, self.file(what))
    }

    fn file(&self, what: &str) -> PathBuf {
        self.directory.file(&self.subject, what)
    }
}

/// Reads what `to_be_bytes` wrote. Half a sign reads as another one, which is a sign too.
fn id_of_sign(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
