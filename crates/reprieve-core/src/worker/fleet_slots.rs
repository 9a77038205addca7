//! The slots of one kind of job in the store: as many as jobs of it may run at once in the whole fleet.
//!
//! A slot is a record under a name that no job has. It exists while a worker holds the slot, which rewrites
//! it to renew its lease. Every write expects the version before, so one worker alone holds a slot. A worker
//! counts its lease from before it sent a write; another takes the slot once it has seen the same version for
//! the whole lease and a tenth more. So no clocks are compared, and the lease of a worker that does not
//! renew has ended before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::chance;
use crate::error::{ErrorKind, Result};
use crate::hash::ContentHash;
use crate::ids::{JobId, WorkerId};
use crate::names::SLOT_IDS;
use crate::ports::{RecordStore, RecordWrite, Stored, Version};
use crate::process::in_process;
use crate::record::{Record, open, seal, unique_nonce};
use crate::retry::{Patience, bounded, may_pass, persist};

/// The most slots of a kind.
pub(super) const SLOTS_MAX: u32 = 1_000;

/// How long a worker does not look for a free slot after it found none, or could not look.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The longest wait for one call of the store.
const TRY: Duration = Duration::from_secs(5);

/// How long the end of a worker waits until its slots are released.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The shortest time that a slot seems to be held: some stores know only in which second it was written.
const HELD_MIN: Duration = Duration::from_millis(100);

/// How long before the end of its lease a job must stop, at most.
const MARGIN_MAX: Duration = Duration::from_secs(6);

/// The slots of one kind, as one worker sees them.
#[derive(Debug)]
pub(super) struct FleetSlots {
    ids: Vec<JobId>,
    lease: Duration,
    records: Arc<dyn RecordStore>,
    /// Written into the slots that are held, where others are to know whose they are.
    holder: Option<WorkerId>,
    /// What all nonces of this worker begin with.
    mark: String,
    state: Mutex<State>,
    /// Locked while this worker looks for a free slot.
    looking: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// No slot was free, so that the worker does not look before this time.
    closed_until: Option<Instant>,
    /// The slots of others, as they were first seen since each was written.
    seen: HashMap<u32, Seen>,
    /// How long a slot is held, by the last look that found none free. See [`typically_held`].
    held: Option<Duration>,
    /// The slots that are being released.
    releases: JoinSet<()>,
}

/// A slot that this worker holds. It is renewed until it is dropped, and then released.
#[derive(Debug)]
pub(super) struct FleetSlot {
    slots: Arc<FleetSlots>,
    held: Arc<Mutex<Held>>,
    /// The runtime of the worker's own tasks.
    control: Handle,
    /// Cancelled when the job must stop, because its slot could not be renewed.
    lost: CancellationToken,
    _renewing: AbortOnDropHandle<()>,
}

/// The slot as it was last written.
#[derive(Debug, Clone)]
struct Held {
    id: JobId,
    /// Distinguishes this hold's writes from those of all others.
    nonce: String,
    version: Version,
    ends: Instant,
}

/// When a slot was written, and how long ago that is, by the store's clock.
#[derive(Debug, Clone, Copy)]
struct Written {
    at_unix_ms: i64,
    ago: Duration,
}

/// When a slot was written, since when this worker knows, and how old it was then, by the store's clock.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at_unix_ms: i64,
    since: Instant,
    ago: Duration,
}

/// What the guardian of a job watches of its slot.
#[derive(Debug, Clone)]
pub(super) struct SlotWatch {
    held: Arc<Mutex<Held>>,
    lost: CancellationToken,
}

impl SlotWatch {
    /// Completes when the job is to yield, because its slot could not be renewed.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the job is to yield.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Returns when another worker may have the slot: the job must have stopped before.
    pub(super) fn ends(&self) -> Instant {
        lock(&self.held).ends
    }
}

impl FleetSlot {
    /// Whether no other worker may have it.
    pub(super) fn is_held(&self) -> bool {
        !self.lost.is_cancelled()
    }

    pub(super) fn watch(&self) -> SlotWatch {
        SlotWatch { held: Arc::clone(&self.held), lost: self.lost.clone() }
    }
}

impl FleetSlots {
    pub(super) fn new(kind: &str, count: u32, lease: Duration, records: Arc<dyn RecordStore>) -> Self {
        let hash = ContentHash::of(kind.as_bytes()).to_string();
        let name = format!("{SLOT_IDS}{}", hash.get(..16).unwrap_or(&hash));
        let ids = (0..count).filter_map(|number| JobId::parse(format!("{name}.{number:04}")).ok()).collect();
        let (state, looking) = (Mutex::default(), Arc::default());
        Self { ids, lease, records, holder: None, mark: String::new(), state, looking }
    }

    /// Writes this into the slots that are held, and that they are held by this worker of it.
    pub(super) fn held_by(self, holder: WorkerId, worker: &WorkerId) -> Self {
        Self { holder: Some(holder), mark: format!("{worker} "), ..self }
    }

    /// Whether any slot is held in the name of this one's holder by another worker, and was renewed within its
    /// lease. With `frees_own`, the rest of an own hold is released.
    pub(super) async fn is_held_by_another(&self, frees_own: bool) -> Result<bool> {
        for (id, written) in self.list().await? {
            let number = id.as_str().rsplit_once('.').and_then(|(_, number)| number.parse().ok());
            let Some(number) = number else { continue };
            // The store's clock may jump later: how old it was when this worker saw it first is known.
            let Seen { since, ago, .. } = self.see(number, written);
            let is_old = since.elapsed() + ago > self.lease;
            let Some(stored) = bounded("read a slot", TRY, self.records.load(&id)).await? else { continue };
            let Ok(Record { owner, .. }) = open(&stored.bytes) else { continue };
            if Some(owner.worker) != self.holder {
                continue;
            }
            if !self.mark.is_empty() && owner.nonce.starts_with(&self.mark) {
                if frees_own && let Err(error) = self.records.remove(&id, &stored.version, &[]).await {
                    tracing::debug!(%error, "failed to release the rest of an own hold; it is free when its lease ends");
                }
            } else if !is_old {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no slot was free just now.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns about how long slots are held, also where this worker has held none; `None` if that is not known, or long.
    pub(super) fn typically_held(&self) -> Option<Duration> {
        self.state().held
    }

    /// Takes a slot; `None` if none is free, or if the store does not answer. Must be called where the
    /// worker's own tasks run. Cancel-safe: a slot that is taken for nobody is released.
    pub(super) async fn take(self: &Arc<Self>) -> Option<FleetSlot> {
        // One look at a time: most that wait find then that no slot is free.
        let looks = Arc::clone(&self.looking).lock_owned().await;
        let slots = Arc::clone(self);
        let taking = async move {
            let _looks = looks;
            slots.take_now().await
        };
        // It goes on if the caller is dropped. A panic takes no slot.
        tokio::spawn(in_process(taking)).await.ok().flatten()
    }

    /// Waits for the looks for a free slot that are under way in this worker. Returns whether none was free. Cancel-safe.
    pub(super) async fn found_none(&self) -> bool {
        drop(self.looking.lock().await);
        self.is_closed()
    }

    async fn take_now(self: &Arc<Self>) -> Option<FleetSlot> {
        if self.is_closed() {
            return None;
        }
        match self.look().await {
            Ok(Some(slot)) => return Some(slot),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "failed to take a slot of the fleet; trying again"),
        }
        self.state().closed_until = Some(Instant::now() + LOOK_AGAIN.mul_f64(0.5 + chance::fraction()));
        None
    }

    async fn look(self: &Arc<Self>) -> Result<Option<FleetSlot>> {
        let written = self.list().await?;
        let count = self.ids.len();
        // Workers that look at the same time try different ones.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the min")]
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
        let first = ((chance::fraction() * count as f64) as usize).min(count.saturating_sub(1));
        for number in (first..count).chain(0..first) {
            let (id, number) = (&self.ids[number], u32::try_from(number).unwrap_or(u32::MAX));
            let expected = match written.get(id) {
                None => None,
                Some(written) => match self.abandoned(id, number, *written).await? {
                    Some(version) => Some(version),
                    None => continue,
                },
            };
            let (began, nonce) = (Instant::now(), format!("{}{}", self.mark, unique_nonce()));
            match bounded("take a slot", TRY, self.write(id, &nonce, expected.as_ref())).await {
                Ok(version) => {
                    self.state().seen.remove(&number);
                    let (id, ends) = (id.clone(), began + self.lease);
                    return Ok(Some(self.hold(Held { id, nonce, version, ends })));
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => {
                    // It may have been taken without an answer.
                    let (slots, id, ends) = (Arc::clone(self), id.clone(), began + self.lease);
                    self.in_background(&Handle::current(), async move {
                        slots.release(&id, &nonce, None, ends).await;
                    });
                    return Err(error);
                }
            }
        }
        self.state().held = typically_held(written.values().map(|written| written.ago).collect(), self.lease);
        Ok(None)
    }

    /// Returns when each slot that is held was written.
    async fn list(&self) -> Result<HashMap<JobId, Written>> {
        let Some(first) = self.ids.first() else { return Ok(HashMap::new()) };
        let prefix = first.as_str().rsplit_once('.').map_or("", |(name, _)| name);
        let (mut written, mut at) = (HashMap::new(), None);
        loop {
            let page = bounded("list slots", TRY, self.records.page(prefix, at.as_deref())).await?;
            written.extend(page.entries.into_iter().map(|entry| {
                let at_unix_ms = entry.modified_unix_ms;
                let ago = u64::try_from(page.now_unix_ms.saturating_sub(at_unix_ms)).unwrap_or(0);
                (entry.job, Written { at_unix_ms, ago: Duration::from_millis(ago) })
            }));
            at = page.next;
            if at.is_none() {
                return Ok(written);
            }
        }
    }

    /// Returns the version of a slot that was not written again for as long as the lease of its holder, by
    /// this machine's clock; `None` if it was.
    async fn abandoned(&self, id: &JobId, number: u32, written: Written) -> Result<Option<Version>> {
        let unchanged = self.see(number, written).since.elapsed();
        // All workers have about the same lease: whoever renews in time is not read.
        if unchanged <= self.lease {
            return Ok(None);
        }
        let stored = bounded("read a slot", TRY, self.records.load(id)).await?;
        let same = stored.filter(|stored| stored.modified_unix_ms == written.at_unix_ms);
        Ok(same.filter(|stored| unchanged > outlasts(&stored.bytes)).map(|stored| stored.version))
    }

    /// Returns how this version of a slot was first seen by this worker.
    fn see(&self, number: u32, Written { at_unix_ms, ago }: Written) -> Seen {
        let now = Seen { at_unix_ms, since: Instant::now(), ago };
        let mut state = self.state();
        let seen = state.seen.entry(number).or_insert(now);
        if seen.at_unix_ms != at_unix_ms {
            *seen = now;
        }
        *seen
    }

    async fn write(&self, id: &JobId, nonce: &str, expected: Option<&Version>) -> Result<Version> {
        let mut record = Record::without_delivery(id.clone(), "");
        nonce.clone_into(&mut record.owner.nonce);
        if let Some(holder) = &self.holder {
            record.owner.worker = holder.clone();
        }
        record.abandoned_after_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let write = RecordWrite { record: seal(&record), ..RecordWrite::default() };
        self.records.put(id, expected, write).await
    }

    /// Renews the lease of a slot. A conflict with an own write that got no answer is none.
    async fn write_again(&self, held: &Held) -> Result<Version> {
        match self.write(&held.id, &held.nonce, Some(&held.version)).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                match self.own_version(&held.id, &held.nonce).await? {
                    Some(version) => self.write(&held.id, &held.nonce, Some(&version)).await,
                    None => Err(error),
                }
            }
            written => written,
        }
    }

    /// Returns the version of the slot if its last write is this hold's own.
    async fn own_version(&self, id: &JobId, nonce: &str) -> Result<Option<Version>> {
        let stored = self.records.load(id).await?;
        let is_own = |stored: &Stored| open(&stored.bytes).is_ok_and(|record| record.owner.nonce == nonce);
        Ok(stored.filter(is_own).map(|stored| stored.version))
    }

    /// Releases a slot whose last write was this hold's, perhaps of another version. Tries until its lease has
    /// ended. A write under way may be applied after it; then the slot is free when its lease ends.
    async fn release(&self, id: &JobId, nonce: &str, version: Option<&Version>, ends: Instant) {
        let remove = || async {
            if let Some(version) = version {
                match self.records.remove(id, version, &[]).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    removed => return removed,
                }
            }
            match self.own_version(id, nonce).await? {
                Some(version) => self.records.remove(id, &version, &[]).await,
                // Another worker has it, or the answer to an own removal was lost.
                None => Ok(()),
            }
        };
        let removed = persist("release a slot", Patience::calm(TRY, ends), may_pass, remove).await;
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to release a slot of the fleet; it is free when its lease ends");
        }
    }

    /// Runs what releases a slot; the worker's end waits for it.
    fn in_background(&self, control: &Handle, release: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        while state.releases.try_join_next().is_some() {}
        state.releases.spawn_on(in_process(release), control);
    }

    fn hold(self: &Arc<Self>, held: Held) -> FleetSlot {
        let (lost, held) = (CancellationToken::new(), Arc::new(Mutex::new(held)));
        let renewing = renew(Arc::clone(self), Arc::clone(&held), lost.clone());
        let control = Handle::current();
        let renewing = AbortOnDropHandle::new(control.spawn(in_process(renewing)));
        FleetSlot { slots: Arc::clone(self), held, control, lost, _renewing: renewing }
    }

    /// Waits, for a second at most, until the slots of the jobs that have ended are released.
    pub(super) async fn end(&self) {
        // What is being taken is taken for nobody.
        let _taken = timeout(END_WITHIN, self.looking.lock()).await;
        let mut releases = std::mem::take(&mut self.state().releases);
        let all = async { while releases.join_next().await.is_some() {} };
        if timeout(END_WITHIN, all).await.is_err() {
            tracing::debug!(
                "slots of the fleet were not released in time; they are free when their leases end"
            );
        }
    }
}

/// How long the same version must be seen for its holder to have stopped: its lease, and a tenth for clocks
/// that do not run alike. Whoever wrote something else holds nothing.
fn outlasts(slot: &[u8]) -> Duration {
    let lease = open(slot).map_or(Duration::ZERO, |record| Duration::from_millis(record.abandoned_after_ms));
    lease + lease / 10
}

/// Returns about how long slots are held that were written so long ago: twice their median age at any time. `None` if they
/// may be held for longer than that: a slot that is renewed each third of its `lease` is younger than it is held.
fn typically_held(mut ages: Vec<Duration>, lease: Duration) -> Option<Duration> {
    ages.sort_unstable();
    let median = *ages.get(ages.len().checked_sub(1)? / 2)?;
    let held = (median * 2).max(HELD_MIN);
    (held < lease / 6).then_some(held)
}

/// Renews the slot every third of its lease, until its lease has almost ended or another worker has it.
async fn renew(slots: Arc<FleetSlots>, held: Arc<Mutex<Held>>, lost: CancellationToken) {
    let third = slots.lease / 3;
    let mut renew_at = lock(&held).ends - third * 2;
    loop {
        sleep_until(renew_at).await;
        let (before, began) = (lock(&held).clone(), Instant::now());
        let stop_at = before.ends - (slots.lease / 6).min(MARGIN_MAX);
        match bounded("renew a slot", third.min(TRY), slots.write_again(&before)).await {
            Ok(version) => {
                *lock(&held) = Held { version, ends: began + slots.lease, ..before };
                renew_at = began + third;
            }
            Err(error) if error.kind() != ErrorKind::Conflict && Instant::now() + third / 4 < stop_at => {
                tracing::debug!(%error, "failed to renew a slot of the fleet; trying again");
                renew_at = Instant::now() + third / 4;
            }
            Err(error) => {
                tracing::warn!(%error, "a slot of the fleet is lost; its job is interrupted");
                if error.kind() == ErrorKind::Conflict {
                    // Another worker has it already.
                    lock(&held).ends = Instant::now();
                }
                lost.cancel();
                return;
            }
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for FleetSlot {
    fn drop(&mut self) {
        // A slot is free now.
        self.slots.state().closed_until = None;
        let (slots, Held { id, nonce, version, ends }) = (Arc::clone(&self.slots), lock(&self.held).clone());
        self.slots.in_background(&self.control, async move {
            slots.release(&id, &nonce, Some(&version), ends).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_held_for_twice_their_median_age_unless_they_are_renewed() {
        let lease = Duration::from_mins(1);
        for (ages_ms, held_ms) in [
            (&[][..], None),
            (&[50], Some(100)),
            (&[0, 0, 0, 0], Some(100)),
            (&[90, 900, 20, 700], Some(180)),
            (&[40, 19_000, 60], Some(120)),
            (&[4_900], Some(9_800)),
            (&[5_000], None),
            (&[1_000, 6_000, 11_000, 16_000], None),
        ] {
            let ages = ages_ms.iter().copied().map(Duration::from_millis).collect();
            assert_eq!(typically_held(ages, lease), held_ms.map(Duration::from_millis), "{ages_ms:?}");
        }
    }
}
