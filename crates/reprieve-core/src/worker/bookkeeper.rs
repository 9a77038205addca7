//! Writes the worker's entries of the ledger in the background: that its machine booted, the deliveries that failed,
//! and the deaths of other workers that it finds. A drain's own entry is the [`reporter`](super::reporter)'s.
//!
//! Nothing waits for it. What can't be written while the store is away is tried again until the worker ends; then it
//! is logged, counted and lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::books::{Describing, Note, Notes, TRY};
use super::deaths::{Inquest, Suspicion, silence, unsure_for};
use super::reporter::Monitor;
use super::shared::Shared;
use crate::clock::unix_millis;
use crate::error::{Error, Result};
use crate::ids::WorkerId;
use crate::ledger::{Boot, Entry, Ledger, Machine, NamedEntry};
use crate::process::in_process;
use crate::record::Vanished;
use crate::retry::unanswered;

/// The longest time for a look at the roster after a death.
const LOOK: Duration = Duration::from_secs(30);

/// How many entries are written at a time, so that they leave the store to the jobs.
const AT_ONCE: usize = 16;

/// After how long entries that could not be written are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// How many of them are kept: far more than there are of one worker in an outage, in which no delivery fails.
const UNWRITTEN_MAX: usize = 256;

/// How many deaths may wait for a look. Any job of a worker that died leads to it again.
const DEATHS_MAX: usize = 4_096;

/// How many of them one look takes, one request each.
const LOOKED_AT_MAX: usize = 256;

/// After how long a look takes those for which the one before had no room.
const NEXT_LOOK: Duration = Duration::from_secs(2);

/// How many looks a death is given that fail though the store answers. Those in an outage do not count.
const LOOKS_MAX: u32 = 5;

/// The shortest time until a look that can't tell yet is taken again.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);

/// How often it is written that the machine lives: often enough to know of a machine that vanishes without a trace, once
/// its last report has gone, to an hour for how long it was seen.
const RENEW_EVERY: Duration = Duration::from_hours(1);

/// The first such time after the start. Each next one is as long after as the worker has run, so that of a short life
/// half is known at least.
const RENEW_FIRST: Duration = Duration::from_mins(1);

/// Writes the entries.
pub(super) struct Bookkeeper {
    shared: Arc<Shared>,
    ledger: Ledger,
    /// The worker's queue, as its reports name it.
    queue: String,
    notes: Notes,
    /// Until it is known what the machine is.
    describing: Option<Describing>,
    monitor: Monitor,
    renewal: Renewal,
    work: JoinSet<Done>,
    /// Entries that could not be written, and when they are tried again.
    unwritten: VecDeque<NamedEntry>,
    again_at: Instant,
    /// The workers of which a delivery vanished; `None` for those that no record names.
    suspects: BTreeMap<Option<WorkerId>, Suspicion>,
}

/// When it is to be written next that the machine lives.
struct Renewal {
    at: Instant,
    every: Duration,
    /// When the worker started.
    since_unix_ms: i64,
    /// When it last went back to work after a drain. Written each time, for the case that a write failed.
    worked_on_unix_ms: Option<i64>,
}

/// What has come of the work in the background.
#[derive(Debug)]
enum Done {
    /// An entry was written, or never can be.
    Written,
    /// The store did not take an entry.
    Unwritten(NamedEntry),
    /// Those of whom it is not known yet whether they have died.
    Looked(Vec<(Option<WorkerId>, Suspicion)>),
}

impl Bookkeeper {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: &str,
        notes: Notes,
        machine: Describing,
        monitor: Monitor,
    ) -> Self {
        let ledger = Ledger::new(Arc::clone(&shared.store.records));
        let renewal = Renewal {
            at: Instant::now() + RENEW_FIRST,
            every: RENEW_FIRST,
            since_unix_ms: unix_millis(),
            worked_on_unix_ms: None,
        };
        Self {
            shared,
            ledger,
            queue: queue.to_owned(),
            notes,
            describing: Some(machine),
            monitor,
            renewal,
            work: JoinSet::new(),
            unwritten: VecDeque::new(),
            again_at: Instant::now(),
            suspects: BTreeMap::new(),
        }
    }

    /// Writes until the worker ends.
    pub(super) async fn run(mut self) {
        loop {
            let look_at = self.suspects.values().map(|suspicion| suspicion.look_at).min();
            let far = Instant::now() + Duration::from_hours(1);
            tokio::select! {
                biased;
                Some(done) = self.work.join_next() => self.note(done.unwrap_or(Done::Written)),
                machine = described(self.describing.as_mut()) => {
                    self.describing = None;
                    self.booted(machine);
                }
                () = sleep_until(self.renewal.at), if self.describing.is_none() => {
                    self.renew();
                    self.renewal.next();
                }
                () = sleep_until(look_at.unwrap_or(far)), if look_at.is_some() => self.look(),
                () = sleep_until(self.again_at), if self.may_try_again() => self.try_again(),
                note = self.notes.next(), if self.work.len() < AT_ONCE => match note {
                    Some(Note::Entry(entry)) => self.write(*entry),
                    Some(Note::Vanished(vanished)) => self.suspect(vanished),
                    Some(Note::WorkedOn(at_unix_ms)) => {
                        self.renewal.worked_on_unix_ms = Some(at_unix_ms);
                        self.renew();
                    }
                    Some(Note::Look) => self.look_early(),
                    Some(Note::Flush(done)) => {
                        self.look_early();
                        self.finish().await;
                        // Whoever asked may have given up.
                        let _sent = done.send(());
                    }
                    None => return,
                },
            }
        }
    }

    fn booted(&mut self, machine: Machine) {
        self.shared.books.describe(machine);
        self.write(Entry::Boot(self.boot()));
    }

    /// This machine's boot, as far as this worker saw it.
    fn boot(&self) -> Boot {
        Boot {
            boot: self.shared.life().to_owned(),
            worker: self.shared.worker.clone(),
            at_unix_ms: self.renewal.since_unix_ms,
            machine: self.shared.books.machine(),
            seen_unix_ms: None,
            worked_on_unix_ms: self.renewal.worked_on_unix_ms,
        }
    }

    /// Writes that the machine lives, and when the worker went back to work.
    fn renew(&mut self) {
        let boot = Boot { seen_unix_ms: Some(unix_millis()), ..self.boot() };
        let (shared, ledger, every) = (Arc::clone(&self.shared), self.ledger.clone(), self.renewal.every / 2);
        self.work.spawn(in_process(async move {
            shared.books.renew(&ledger, boot, every, TRY).await;
            Done::Written
        }));
    }

    fn write(&mut self, entry: Entry) {
        let is_boot = matches!(entry, Entry::Boot(_));
        match NamedEntry::new(entry, 0) {
            Ok(entry) => self.try_to_write(entry),
            Err(error) => lose(&self.shared, is_boot, &error),
        }
    }

    fn try_to_write(&mut self, entry: NamedEntry) {
        let (shared, ledger) = (Arc::clone(&self.shared), self.ledger.clone());
        self.work.spawn(in_process(async move {
            let began = Instant::now();
            match timeout(TRY, ledger.put(&entry, None)).await {
                Ok(Ok(_)) => {
                    shared.books.took(began.elapsed());
                    shared.books.count("ok");
                }
                Ok(Err(error)) if !error.is_temporary() => {
                    lose(&shared, entry.is_boot(), &error);
                    return Done::Written;
                }
                Ok(Err(_)) | Err(_) => return Done::Unwritten(entry),
            }
            if entry.is_boot() {
                shared.books.boot_written();
            } else {
                shared.books.ended();
            }
            Done::Written
        }));
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Written => {}
            Done::Unwritten(entry) if self.unwritten.len() >= UNWRITTEN_MAX => {
                give_up(&self.shared, entry.is_boot(), "dropped");
            }
            Done::Unwritten(entry) => {
                if self.unwritten.is_empty() {
                    tracing::info!(again_after = ?AGAIN, "failed to write an entry of the ledger; trying again");
                }
                self.unwritten.push_back(entry);
                self.again_at = Instant::now() + AGAIN;
            }
            Done::Looked(left) => left.into_iter().for_each(|(worker, it)| self.keep(worker, it)),
        }
    }

    fn may_try_again(&self) -> bool {
        !self.unwritten.is_empty() && self.work.len() < AT_ONCE
    }

    /// Tries the oldest of the entries that could not be written.
    fn try_again(&mut self) {
        if let Some(entry) = self.unwritten.pop_front() {
            self.try_to_write(entry);
        }
    }

    /// Waits for the work in the background, and tries once more what could not be written: the worker ends.
    async fn finish(&mut self) {
        let mut last = std::mem::take(&mut self.unwritten);
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Unwritten(entry)) = done {
                last.push_back(entry);
            }
        }
        for entry in last {
            self.try_to_write(entry);
        }
        while let Some(done) = self.work.join_next().await {
            if let Ok(Done::Unwritten(entry)) = done {
                tracing::warn!(
                    "failed to write an entry of the ledger before the worker's end; reports will lack it"
                );
                give_up(&self.shared, entry.is_boot(), "error");
            }
        }
    }

    fn suspect(&mut self, Vanished { worker, wrote_unix_ms }: Vanished) {
        if self.suspects.len() >= DEATHS_MAX && !self.suspects.contains_key(&worker) {
            return self.shared.books.count("dropped");
        }
        let look_at = Instant::now() + silence(&*self.shared.store.roster);
        self.keep(worker, Suspicion { wrote_unix_ms, look_at, looks_left: LOOKS_MAX });
    }

    /// Keeps a suspicion, also where there is a newer one.
    fn keep(&mut self, worker: Option<WorkerId>, suspicion: Suspicion) {
        let wrote_unix_ms = suspicion.wrote_unix_ms;
        let known = self.suspects.entry(worker).or_insert(suspicion);
        known.wrote_unix_ms = known.wrote_unix_ms.max(wrote_unix_ms);
    }

    /// Looks who of the suspects has died, once that can be told.
    fn look(&mut self) {
        let now = Instant::now();
        let is_due = |_: &Option<WorkerId>, suspicion: &mut Suspicion| suspicion.look_at <= now;
        let due: BTreeMap<_, _> = self.suspects.extract_if(.., is_due).take(LOOKED_AT_MAX).collect();
        // The others have a look of their own soon.
        let behind = self.suspects.values_mut().filter(|suspicion| suspicion.look_at <= now);
        behind.for_each(|suspicion| suspicion.look_at = now + NEXT_LOOK);
        let unsure_for = unsure_for(&*self.shared.store.roster, &self.monitor);
        if !unsure_for.is_zero() {
            let look_at = now + unsure_for.max(LOOK_AGAIN_MIN);
            return due.into_iter().for_each(|(worker, it)| self.keep(worker, Suspicion { look_at, ..it }));
        }
        let (look, shared) = (self.hold(due.clone()), Arc::clone(&self.shared));
        self.work.spawn(in_process(async move {
            let Err(error) = look.await else { return Done::Looked(Vec::new()) };
            let again = |(worker, it): (_, Suspicion)| {
                Some((worker, it.again(&error, now + LOOK * 2, &shared.books)?))
            };
            Done::Looked(due.into_iter().filter_map(again).collect())
        }));
    }

    /// Looks at all of them before their time: who is silent by now has died, and of the others this worker may never
    /// know if its own machine goes. Not just after an outage of the store: those that live had no time to report.
    fn look_early(&mut self) {
        self.suspects.keys().for_each(|worker| self.shared.books.to_look_at(worker.as_ref()));
        let is_unsure = !unsure_for(&*self.shared.store.roster, &self.monitor).is_zero();
        if self.suspects.is_empty() || is_unsure {
            return;
        }
        let suspects: BTreeMap<_, _> =
            self.suspects.extract_if(.., |_, _| true).take(LOOKED_AT_MAX).collect();
        let look = self.hold(suspects.clone());
        self.work.spawn(in_process(async move {
            let _looked = look.await;
            // Those that seemed to live are looked at again when that is sure.
            Done::Looked(suspects.into_iter().collect())
        }));
    }

    /// Looks at the roster after these deaths, and enters them.
    fn hold(
        &self,
        suspects: BTreeMap<Option<WorkerId>, Suspicion>,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (shared, ledger, queue) = (Arc::clone(&self.shared), self.ledger.clone(), self.queue.clone());
        let monitor = self.monitor.clone();
        async move {
            let inquest = Inquest { shared: &shared, ledger: &ledger, queue: &queue, monitor: &monitor };
            let held = timeout(LOOK, inquest.hold(&suspects)).await;
            let held = held.unwrap_or_else(|_| Err(unanswered("look which workers died")));
            if let Err(error) = &held {
                tracing::debug!(%error, "failed to look which workers died, or to write it down; trying again");
            }
            held
        }
    }
}

/// Logs and counts an entry that can't be written.
fn lose(shared: &Shared, is_boot: bool, error: &Error) {
    tracing::warn!(%error, "failed to write an entry of the ledger; reports will lack it");
    give_up(shared, is_boot, "error");
}

/// Counts an entry that is given up. That of the boot is not among those that are open: a renewal may write it.
fn give_up(shared: &Shared, is_boot: bool, result: &'static str) {
    if is_boot {
        return shared.books.count(result);
    }
    shared.books.ended();
    if result == "dropped" { shared.books.drop_one() } else { shared.books.give_up(result) }
}

impl Renewal {
    fn next(&mut self) {
        self.at = Instant::now() + self.every;
        self.every = (self.every * 2).min(RENEW_EVERY);
    }
}

async fn described(describing: Option<&mut Describing>) -> Machine {
    match describing {
        Some(describing) => describing.done().await,
        None => std::future::pending().await,
    }
}
