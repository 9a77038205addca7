//! One kind of job: what is measured of it, and how many of its jobs run under its limits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::time::Instant;

use super::depends::Depends;
use super::fleet_slots::FleetSlots;
use super::limits::{Backlog, DEFER_MIN, Limits, Missing, Places};
use super::measure::{Measured, Rate, Recent};
use super::packing::Packing;
use crate::dependency::{BreakerState, DependencyHandle, Share, Users, Using};
use crate::mutex::set;
use crate::ports::{LEASE_MAX, LimitedKind};

/// How long a kind's measurements count: longer than the longest time between two saves.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// How long the times between two moves of a job count. Steps may take hours.
const MOVES_KEPT: Duration = Duration::from_hours(7 * 24);

/// One kind of job.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) schema: u32,
    /// The measured times of checkpoint saves of this kind.
    pub(crate) saves: Recent,
    /// The run times of this kind's jobs that began where they finished.
    pub(crate) runs: Recent,
    /// The times between two moves of its jobs, as far as a look each second shows them.
    pub(super) moves: Recent,
    /// The memory that its jobs take.
    pub(super) measured: Arc<Measured>,
    /// Whether its states are compressed.
    pub(crate) packing: Packing,
    pub(super) limits: Limits,
    /// The slots of the whole fleet; `None` without such a limit.
    pub(super) fleet: Option<Arc<FleetSlots>>,
    /// What its jobs depend on.
    pub(super) depends: Depends,
    /// The dependencies that it needs, and those that it uses.
    needs: Vec<DependencyHandle>,
    uses: Vec<DependencyHandle>,
    /// The worker's jobs that use any, and how many may while that is away.
    users: Users,
    without_in_all: usize,
    /// All of the worker's.
    dependencies: Arc<[DependencyHandle]>,
    /// How many jobs count under the limit of this worker.
    taken: AtomicUsize,
    /// How many messages were released because of a limit.
    deferred: AtomicU64,
    /// Those that have not returned.
    pub(super) backlog: Backlog,
    /// How often a place becomes free.
    pub(super) ends: Rate,
}

impl Kind {
    pub(super) fn new(name: &'static str, schema: u32, limits: Limits) -> Self {
        Self {
            name,
            schema,
            saves: Recent::new(KEPT),
            runs: Recent::new(KEPT),
            moves: Recent::new(MOVES_KEPT),
            measured: Arc::default(),
            packing: Packing::default(),
            limits,
            fleet: None,
            depends: Depends::default(),
            needs: Vec::new(),
            uses: Vec::new(),
            users: Users::default(),
            without_in_all: usize::MAX,
            dependencies: Arc::new([]),
            taken: AtomicUsize::new(0),
            deferred: AtomicU64::new(0),
            backlog: Backlog::default(),
            ends: Rate::default(),
        }
    }

    /// Finds the dependencies of its jobs among those of the worker. `slots` is the worker's number of them.
    ///
    /// # Errors
    /// The names of those that the worker does not have.
    pub(super) fn find_dependencies(&mut self, among: &[DependencyHandle], slots: usize) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut find = |names: &[String]| {
            let found = names.iter().filter_map(|name| {
                let handle = among.iter().find(|handle| handle.name() == name);
                if handle.is_none() {
                    unknown.push(name.clone());
                }
                handle.cloned()
            });
            found.collect()
        };
        (self.needs, self.uses) = (find(&self.depends.needs), find(&self.depends.uses));
        self.dependencies = among.into();
        let half = slots.div_ceil(2);
        self.without_in_all = half.max(*self.depends.without.get_or_insert(half));
        if let Some(used) = self.uses.first() {
            self.users = used.users().clone();
            self.users.have_slots(slots);
        }
        unknown
    }

    /// Returns the worker's dependencies as one run of its jobs sees them.
    pub(super) fn dependencies(&self) -> Arc<[DependencyHandle]> {
        if self.needs.is_empty() && self.uses.is_empty() {
            return Arc::clone(&self.dependencies);
        }
        let is_among = |these: &[DependencyHandle], it: &DependencyHandle| {
            these.iter().any(|one| one.name() == it.name())
        };
        let run = self.users.run();
        let seen = |handle: &DependencyHandle| {
            if is_among(&self.needs, handle) {
                handle.needed()
            } else if is_among(&self.uses, handle) {
                handle.used(run)
            } else {
                handle.clone()
            }
        };
        self.dependencies.iter().map(seen).collect()
    }

    /// Whether one more job may begin, as far as what it needs goes. Returns what shows whether it still may later,
    /// when it has a slot: `before`, if nothing of that was away meanwhile.
    ///
    /// # Errors
    /// What it must wait for.
    pub(super) fn admit(&self, before: Option<u64>) -> Result<u64, &DependencyHandle> {
        let openings = self.needs.iter().map(DependencyHandle::openings).sum();
        if before != Some(openings) {
            self.needs.iter().try_for_each(|needed| if needed.admit_job() { Ok(()) } else { Err(needed) })?;
        }
        Ok(openings)
    }

    /// Completes when something that its jobs need is away: at once if it is. Cancel-safe.
    pub(super) async fn need_opened(&self) -> &DependencyHandle {
        if self.needs.is_empty() {
            return std::future::pending().await;
        }
        let opened = self.needs.iter().map(|needed| {
            Box::pin(async move {
                needed.opened().await;
                needed
            })
        });
        select_all(opened).await.0
    }

    /// Returns what its jobs need and does not serve, or not all that they do, as far as is known.
    pub(super) fn known_to_be_away(&self) -> Option<&DependencyHandle> {
        self.needs.iter().find(|needed| needed.state_for_needing() != BreakerState::Closed)
    }

    /// Returns what one of its jobs takes, in bytes, as far as that is known.
    pub(super) fn memory(&self) -> Option<u64> {
        self.limits.memory.max(self.measured.get())
    }

    /// Returns what its jobs use and most of them do without now: while a breaker is half-open, few calls are made.
    fn done_without(&self) -> impl Iterator<Item = &DependencyHandle> {
        self.uses.iter().filter(|used| used.is_done_without())
    }

    /// Returns how many of its jobs may begin at once without what is away that they use, if that is set and any is.
    fn without(&self) -> Option<usize> {
        self.done_without().next().and(self.depends.without)
    }

    /// Returns how many of its jobs may run at once in this worker now; `None` without a limit.
    fn most_here(&self) -> Option<usize> {
        self.limits.per_worker.into_iter().chain(self.without()).min()
    }

    /// Returns the longest time for which a message over a limit is deferred. While something is away that its jobs
    /// use, they take longer, and fewer run at once: not for as long as all of them would take so, but about as long
    /// as it has been away.
    pub(super) fn longest_over_limit(&self) -> Duration {
        let away = self.done_without().map(|used| used.longest_wait_to_use().max(used.wait()).max(DEFER_MIN));
        away.max().unwrap_or(LEASE_MAX)
    }

    /// Takes a place; `None` if as many jobs run as may run in this worker.
    pub(super) fn take_place(self: &Arc<Self>) -> Option<Place> {
        // The places of stuck jobs stay taken, and they use nothing.
        if !self.uses.is_empty() && !self.in_share(|share| self.users.admits(share)) {
            return None;
        }
        let most = self.limits.per_worker.unwrap_or(usize::MAX);
        let more = |taken| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Place { kind: Arc::clone(self), using: Mutex::default() })
    }

    /// How one more of its jobs is counted, with all that is away now: a job of another kind that does without
    /// something else has a slot, too.
    fn in_share<T>(&self, turn: impl FnOnce(&Share<'_>) -> T) -> T {
        let uses: Vec<_> = self.uses.iter().map(DependencyHandle::number).collect();
        let away = self.dependencies.iter().filter(|one| one.is_done_without());
        let away: Vec<_> = away.map(DependencyHandle::number).collect();
        let of_kind = self.depends.without.unwrap_or(usize::MAX);
        let in_all = self.without_in_all;
        let serves = !self.uses.iter().any(DependencyHandle::is_away);
        turn(&Share { kind: self.name, uses: &uses, away: &away, of_kind, in_all, serves })
    }

    /// Whether messages of its jobs went back lately, and not because what they need is away.
    pub(super) fn has_waiting_work(&self) -> bool {
        self.backlog.is_recent() && self.known_to_be_away().is_none()
    }

    /// Counts a message that went back because of a limit.
    pub(super) fn note_deferral(&self) {
        self.deferred.fetch_add(1, Relaxed);
    }

    /// Returns its limits and how many jobs are under them; `None` for a kind with the default limits whose
    /// jobs' memory is not known.
    pub(super) fn limited(&self) -> Option<LimitedKind> {
        let memory_bytes = self.memory();
        if self.limits == Limits::default() && memory_bytes.is_none() {
            return None;
        }
        let Limits {
            per_worker,
            in_fleet,
            memory: _,
            step_timeout,
            job_timeout,
            stall_after,
            attempts,
            backoff,
            backoff_max,
        } = self.limits;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Some(LimitedKind {
            kind: self.name.to_owned(),
            running: self.taken.load(Relaxed) as u64,
            deferred: self.deferred.load(Relaxed),
            per_worker: per_worker.map(|most| most as u64),
            in_fleet,
            memory_bytes,
            step_timeout_ms: step_timeout.map(millis),
            job_timeout_ms: job_timeout.map(millis),
            stall_after_ms: stall_after.map(millis),
            attempts,
            backoff_ms: millis(backoff),
            backoff_max_ms: millis(backoff_max),
        })
    }

    /// Returns how many jobs of this kind may be held now; `None` without a limit.
    fn open(&self) -> Option<usize> {
        let in_fleet = self.fleet.as_ref().zip(self.limits.in_fleet).map(|(slots, most)| {
            let taken = self.taken.load(Relaxed);
            if slots.is_closed() { taken } else { usize::try_from(most).unwrap_or(usize::MAX) }
        });
        let state = self.needs.iter().map(DependencyHandle::state_for_needing);
        let needed = state.filter_map(|state| match state {
            BreakerState::Closed => None,
            BreakerState::Open => Some(self.taken.load(Relaxed)),
            BreakerState::HalfOpen => Some(self.taken.load(Relaxed).saturating_add(1)),
        });
        self.limits.per_worker.into_iter().chain(in_fleet).chain(needed).min()
    }

    /// Whether its jobs in this worker have all places in the fleet, or are about to take them.
    pub(super) fn has_all_of_fleet(&self) -> bool {
        self.limits.in_fleet.is_some_and(|most| self.taken.load(Relaxed) >= most as usize)
    }

    /// Whether one more of its jobs may begin, as far as is known without a call to the store.
    fn is_free(&self) -> bool {
        let taken = self.taken.load(Relaxed);
        let has_place = self.limits.per_worker.is_none_or(|most| taken < most);
        // Where other workers may have the places, what was deferred lately says more than what runs here, until one
        // ends here.
        let ended_since = |ago| self.ends.quiet().is_some_and(|quiet| quiet < ago);
        let is_over = || self.backlog.last().is_some_and(|ago| !ended_since(ago));
        let is_open = |slots: &FleetSlots, most| taken < most && !slots.is_closed() && !is_over();
        let in_fleet = self.fleet.as_ref().zip(self.limits.in_fleet);
        let may_have_slot = in_fleet.is_none_or(|(slots, most)| is_open(slots, most as usize));
        has_place && may_have_slot && self.known_to_be_away().is_none()
    }

    /// Returns for how long one more message is deferred that waits for `missing`, where so many kinds have some that are,
    /// and the worker `passes` so many messages in a second. The last of its jobs that run `began` then.
    pub(super) fn deferral(
        &self,
        began: Option<Instant>,
        kinds: usize,
        missing: Missing,
        passes: f64,
    ) -> Duration {
        let most = self.most_here().into_iter().chain(self.limits.in_fleet.map(|most| most as usize));
        let limit = most.min().unwrap_or(usize::MAX);
        let places = Places {
            limit,
            ends: self.ends.a_second(),
            quiet: self.ends.quiet().into_iter().chain(began.map(|began| began.elapsed())).min(),
            run: self.runs.mean(),
            of_fleet: self.limits.in_fleet.is_some(),
            held_by_others: self.fleet.as_ref().and_then(|slots| slots.typically_held()),
        };
        self.backlog.deferral(places, kinds, missing, passes)
    }
}

/// A place under the limit of this worker, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    kind: Arc<Kind>,
    /// From its job's beginning on, if that uses anything.
    using: Mutex<Option<Using>>,
}

impl Place {
    /// Whether its job may begin, now that it has a slot: what it uses may have gone since it took the place, and then
    /// as many do without as may. `dependencies` are those of its run.
    pub(super) fn begin(&mut self, dependencies: &[DependencyHandle]) -> bool {
        let Some(run) = dependencies.iter().find_map(DependencyHandle::used_by) else { return true };
        let using = self.kind.in_share(|share| self.kind.users.begin(run, share));
        let may_begin = using.is_some();
        set(&self.using, using);
        may_begin
    }

    /// Counts its job no longer among those that use what it uses: its slot is stuck, and another one replaces it.
    pub(super) fn use_nothing(&self) {
        set(&self.using, None);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kind.taken.fetch_sub(1, Relaxed);
    }
}

/// Returns how many jobs of these kinds may be held at once; `None` if any kind has no limit.
pub(super) fn open(kinds: &[Arc<Kind>]) -> Option<usize> {
    kinds.iter().try_fold(0_usize, |sum, kind| Some(sum.saturating_add(kind.open()?)))
}

/// Whether one more job may begin of any of these kinds, as far as is known without a call to the store.
pub(super) fn is_any_free(kinds: &[Arc<Kind>]) -> bool {
    kinds.iter().any(|kind| kind.is_free())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let limits = Limits { per_worker: Some(2), ..Limits::default() };
        let kind = Arc::new(Kind::new("k", 1, limits));
        let (first, _second) = (kind.take_place().unwrap(), kind.take_place().unwrap());
        assert!(kind.take_place().is_none());
        assert_eq!(open(std::slice::from_ref(&kind)), Some(2));
        drop(first);
        assert!(kind.take_place().is_some());
        let other = Arc::new(Kind::new("o", 1, Limits::default()));
        assert_eq!(open(&[kind, other]), None, "an unlimited kind");
    }

    #[test]
    fn what_is_set_counts_unless_more_was_measured() {
        let kind = Kind::new("k", 1, Limits { memory: Some(200), ..Limits::default() });
        assert_eq!(kind.memory(), Some(200));
        kind.measured.note(100);
        assert_eq!(kind.memory(), Some(200));
        kind.measured.note(300);
        assert_eq!(kind.memory(), Some(300));
    }
}
