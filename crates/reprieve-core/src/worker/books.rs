//! Where the worker's parts hand in what goes into the ledger. The [`bookkeeper`](super::bookkeeper) writes it.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::unix_millis;
use crate::error;
use crate::healing::HealingAction;
use crate::ids::WorkerId;
use crate::ledger::{self, Boot, Entry, Failure, Ledger, Machine};
use crate::record::Vanished;
use crate::retry::unanswered;
use crate::telemetry::{ByResult, Telemetry};

/// How many entries may wait to be written. A kind of job that always fails makes hundreds within a second.
const WAITING_MAX: usize = 1_024;

/// The longest time for one entry.
pub(super) const TRY: Duration = Duration::from_secs(10);

/// The worker's parts hand in here what is to be written. Never waits.
#[derive(Debug)]
pub(super) struct Books {
    notes: mpsc::Sender<Note>,
    machine: OnceLock<Machine>,
    worker: WorkerId,
    boot: String,
    telemetry: Arc<Telemetry>,
    /// How many entries are neither written nor given up, besides that of the boot and those of deaths.
    open: AtomicU64,
    /// How many were given up: the store refused them, did not take them in time, or too many waited.
    lost: AtomicU64,
    /// Whether the entry of the boot is written: any renewal writes it.
    is_boot_written: AtomicBool,
    /// The workers whose deaths are not written yet.
    deaths: Mutex<BTreeSet<WorkerId>>,
    /// The workers that may have died, at whom nobody could look yet; `None` for those that no record names.
    suspects: Mutex<BTreeSet<Option<WorkerId>>>,
    /// How long the last write took, in milliseconds.
    took_ms: AtomicU64,
}

/// What a part hands in.
#[derive(Debug)]
pub(super) enum Note {
    Entry(Box<Entry>),
    Vanished(Vanished),
    /// The worker has gone back to work after a drain, at this time in milliseconds since the Unix epoch.
    WorkedOn(i64),
    /// Look now which workers have died: this one may be gone before it would.
    Look,
    /// Write all that came before, then answer.
    Flush(oneshot::Sender<()>),
}

/// The description of the worker's machine, as soon as it is known.
pub(super) struct Describing(Pin<Box<dyn Future<Output = Machine> + Send>>);

impl Describing {
    pub(super) fn new(machine: impl Future<Output = Machine> + Send + 'static) -> Self {
        Self(Box::pin(machine))
    }

    /// Waits until it is known. Cancel-safe.
    pub(super) async fn done(&mut self) -> Machine {
        self.0.as_mut().await
    }
}

impl fmt::Debug for Describing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Describing")
    }
}

impl Books {
    /// Returns the books, and the end from which the bookkeeper takes what is handed in.
    pub(super) fn new(worker: WorkerId, boot: String, telemetry: Arc<Telemetry>) -> (Self, Notes) {
        let (notes, received) = mpsc::channel(WAITING_MAX);
        let [open, lost, took_ms] = std::array::from_fn(|_| AtomicU64::new(0));
        let machine = OnceLock::new();
        let (is_boot_written, deaths, suspects) =
            (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let books = Self {
            notes,
            machine,
            worker,
            boot,
            telemetry,
            open,
            lost,
            is_boot_written,
            deaths,
            suspects,
            took_ms,
        };
        (books, Notes(received))
    }

    /// Takes the description of this machine; the first one stays.
    pub(super) fn describe(&self, machine: Machine) {
        let _set = self.machine.set(machine);
    }

    /// Returns the description of this machine; empty while it is not known.
    pub(super) fn machine(&self) -> Machine {
        self.machine.get().cloned().unwrap_or_default()
    }

    /// Has a failed delivery written down.
    pub(super) fn failed(&self, failure: Failure) {
        self.hand_in(Note::Entry(Box::new(Entry::Failure(failure))));
    }

    /// Logs and counts what is done to heal a fault, and has it written down.
    pub(super) fn healing(&self, action: &HealingAction) {
        action.note(&self.telemetry);
        let HealingAction { layer, action, subject, why, outcome, found_after, took } = action;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.hand_in(Note::Entry(Box::new(Entry::Healing(ledger::HealingAction {
            layer: layer.as_str().to_owned(),
            fault: format!("{subject}: {why}"),
            action: action.as_str().to_owned(),
            outcome: outcome.as_str().to_owned(),
            worker: self.worker.clone(),
            boot: self.boot.clone(),
            vm: self.machine().vm,
            at_unix_ms: unix_millis(),
            found_after_ms: found_after.map(ms),
            took_ms: took.map(ms),
        }))));
    }

    /// Has the death behind a vanished delivery written down, if it is one.
    pub(super) fn vanished(&self, vanished: Vanished) {
        // Also where nobody will look: it is missing then.
        self.to_look_at(vanished.worker.as_ref());
        self.hand_in(Note::Vanished(vanished));
    }

    /// Has deaths looked for at once, because the machine may be gone soon.
    pub(super) fn look(&self) {
        self.hand_in(Note::Look);
    }

    /// Has it written down that the worker goes back to work after a drain.
    pub(super) fn worked_on(&self) {
        self.hand_in(Note::WorkedOn(unix_millis()));
    }

    /// Waits until all that was handed in is written or given up: for at most `within`, and for `idle` while nothing is
    /// written, or half as long again as the last write took.
    pub(super) async fn flush(&self, idle: Duration, within: Duration) {
        let (done, all_done) = oneshot::channel();
        let flushed = async {
            if self.notes.send(Note::Flush(done)).await.is_ok() {
                // Without an answer the bookkeeper is gone, and so is what it had to write.
                let _answered = all_done.await;
            }
        };
        let (mut flushed, until) = (pin!(flushed), Instant::now() + within);
        let idle = idle.max(Duration::from_millis(self.took_ms.load(Relaxed)).mul_f64(1.5));
        loop {
            let before = self.counted("ok");
            let answered = timeout_at(until.min(Instant::now() + idle), &mut flushed).await.is_ok();
            if answered || Instant::now() >= until || self.counted("ok") == before {
                return;
            }
        }
    }

    /// Logs and returns how many entries reports will lack, when the worker ends.
    pub(super) fn missing(&self) -> u64 {
        let deaths = u64::try_from(self.open_deaths()).unwrap_or(u64::MAX);
        let boot = u64::from(!self.is_boot_written.load(Relaxed));
        let missing = [self.open.load(Relaxed), self.lost.load(Relaxed), deaths, boot];
        let missing = missing.into_iter().fold(0_u64, u64::saturating_add);
        if missing > 0 {
            tracing::warn!(
                missing,
                "the store has not confirmed some of this worker's entries of the ledger; reports may lack them"
            );
        }
        missing
    }

    /// Counts an entry that is to be written.
    pub(super) fn begun(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// Counts an entry that is written, or given up.
    pub(super) fn ended(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Notes how long a write took.
    pub(super) fn took(&self, time: Duration) {
        self.took_ms.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn counted(&self, result: &'static str) -> u64 {
        self.telemetry.ledger_entries.get_or_create(&ByResult { result }).get()
    }

    fn hand_in(&self, note: Note) {
        let (is_entry, is_suspicion) = (matches!(note, Note::Entry(_)), matches!(note, Note::Vanished(_)));
        if is_entry {
            self.begun();
        }
        if self.notes.try_send(note).is_ok() {
            return;
        }
        if is_entry {
            self.ended();
            self.drop_one();
        } else if is_suspicion {
            self.count("dropped");
        }
    }

    /// Writes an entry within this time; one of an interruption under this number. Logs and counts a failure.
    pub(super) async fn write(&self, ledger: &Ledger, entry: Entry, number: u64, within: Duration) {
        let wrote = timeout(within, ledger.write_numbered(entry, number)).await;
        if !self.wrote(&wrote, within) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Writes within this time that the machine of this boot is alive, unless another worker did within `every`. The
    /// next renewal makes up for one that fails.
    pub(super) async fn renew(&self, ledger: &Ledger, boot: Boot, every: Duration, within: Duration) {
        if self.wrote(&timeout(within, ledger.renew(boot, every)).await, within) {
            self.boot_written();
        }
    }

    /// Notes that this worker may have died; `None` for those that no record names.
    pub(super) fn to_look_at(&self, worker: Option<&WorkerId>) {
        self.suspects().insert(worker.cloned());
    }

    /// Notes that it is known which of these workers have died by now.
    pub(super) fn looked_at<'a>(&self, workers: impl Iterator<Item = &'a Option<WorkerId>>) {
        let mut suspects = self.suspects();
        workers.for_each(|worker| _ = suspects.remove(worker));
    }

    /// Notes that this worker's death is to be written.
    pub(super) fn death_found(&self, worker: &WorkerId) {
        self.deaths().insert(worker.clone());
    }

    /// Writes within this time that this worker has died.
    pub(super) async fn write_death(
        &self,
        ledger: &Ledger,
        worker: &WorkerId,
        entry: Entry,
        number: u64,
        within: Duration,
    ) -> error::Result<()> {
        let wrote = timeout(within, ledger.write_numbered(entry, number)).await;
        wrote.unwrap_or_else(|_| Err(unanswered("write down a death")))?;
        self.count("ok");
        self.death_written(worker);
        Ok(())
    }

    /// Notes that this worker's death is written, or was none.
    pub(super) fn death_written(&self, worker: &WorkerId) {
        self.deaths().remove(worker);
        self.suspects().remove(&Some(worker.clone()));
    }

    /// How many deaths reports may lack: of workers that were found dead, or could not be looked at.
    fn open_deaths(&self) -> usize {
        let found = self.deaths().iter().cloned().map(Some).collect::<BTreeSet<_>>();
        found.union(&self.suspects()).count()
    }

    fn suspects(&self) -> MutexGuard<'_, BTreeSet<Option<WorkerId>>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deaths(&self) -> MutexGuard<'_, BTreeSet<WorkerId>> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the entry of the boot is written.
    pub(super) fn boot_written(&self) {
        self.is_boot_written.store(true, Relaxed);
    }

    /// Counts a write, and logs a failure. Returns whether it was written.
    fn wrote(&self, wrote: &Result<error::Result<bool>, Elapsed>, within: Duration) -> bool {
        match wrote {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to write an entry of the ledger; reports will lack it");
            }
            Err(_) => {
                tracing::warn!(?within, "timed out writing an entry of the ledger; reports may lack it");
            }
        }
        let is_written = matches!(wrote, Ok(Ok(_)));
        self.count(if is_written { "ok" } else { "error" });
        is_written
    }

    /// Counts an entry for which there is no room, and logs the first.
    pub(super) fn drop_one(&self) {
        if self.counted("dropped") == 0 {
            tracing::warn!("too many entries of the ledger wait to be written; reports will lack some");
        }
        self.give_up("dropped");
    }

    /// Counts an entry that reports will lack.
    pub(super) fn give_up(&self, result: &'static str) {
        self.lost.fetch_add(1, Relaxed);
        self.count(result);
    }

    pub(super) fn count(&self, result: &'static str) {
        self.telemetry.ledger_entries.get_or_create(&ByResult { result }).inc();
    }
}

/// What the worker's parts hand in.
#[derive(Debug)]
pub(super) struct Notes(mpsc::Receiver<Note>);

impl Notes {
    /// Waits for the next. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Note> {
        self.0.recv().await
    }
}
