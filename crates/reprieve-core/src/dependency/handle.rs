//! A dependency as its users see it: whether to call it now, and how their calls fared.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::breaker::{Answer, Breaker, BreakerState, Change, PAUSE_MAX, SPREAD, Signal};
use super::refusals::Refusals;
use super::users::Users;
use super::without::{Lacks, Served};
use super::{Dependency, DependencyReport, PROBE_WITHIN};
use crate::clock::unix_millis;
use crate::{chance, panics, watch};

/// The longest time for which a job is deferred that has not begun and needs it.
const AWAY_MAX: Duration = Duration::from_mins(5);

/// One dependency of a worker. Clones are of the same one. From
/// [`JobContext::dependency`](crate::JobContext::dependency).
#[derive(Clone)]
pub struct DependencyHandle {
    inner: Arc<Inner>,
    /// The run of a job that needs it, and was admitted when it began: its calls are.
    needed_by: Option<Arc<Run>>,
    /// The run of a job that uses it.
    used_by: Option<u64>,
}

/// A call of a run that uses the dependency. Dropped before it has ended, it was given up.
struct Made<'a> {
    handle: &'a DependencyHandle,
    /// `None` for a run that does not use it, and when it has ended.
    number: Option<u64>,
}

impl Made<'_> {
    /// It failed.
    fn fails(mut self) {
        let (Some(run), Some(call)) = (self.handle.used_by, self.number.take()) else { return };
        let used = self.handle.number();
        self.handle.users().turn(|without, now| without.fails(run, used, call, now));
    }

    /// It was answered.
    fn serves(mut self) {
        self.handle.is_served(self.number.take().map_or(Served::Reported, Served::Called));
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let (Some(run), Some(call)) = (self.handle.used_by, self.number) else { return };
        let used = self.handle.number();
        self.handle.users().turn(|without, now| without.gives_up(run, used, call, now));
    }
}

/// A run of a job that needs the dependency.
#[derive(Default)]
struct Run {
    refused: Mutex<Refused>,
}

/// The calls of a run's present step that had no answer which the job can use.
#[derive(Default)]
struct Refused {
    count: u64,
    /// Why the last one had none.
    why: Option<String>,
    /// How many probes had begun by then.
    probes: u64,
    /// One of them failed, or was not made: the dependency was not there for it, and no answer to another call of the
    /// step changes that.
    has_failed: bool,
    /// A later call was answered: the job went on without what was refused.
    is_overcome: bool,
}

struct Inner {
    name: String,
    dependency: Arc<dyn Dependency>,
    began: Instant,
    began_unix_ms: i64,
    breaker: Mutex<Breaker>,
    refusals: Mutex<Refusals>,
    /// The last look at what it refuses that a job's failure was the reason for: when it began, and what it found.
    looked: tokio::sync::Mutex<Option<(Instant, Option<String>)>>,
    /// The worker's jobs that use any dependency, and its number among these.
    users: Users,
    number: usize,
    seen: watch::Sender<Seen>,
    /// The time of the next probe has changed.
    due: Notify,
    /// The time of the next look at what it refuses has changed.
    look_due: Notify,
}

/// What others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    state: BreakerState,
    topology: u64,
    topology_since: Instant,
    /// The number of probes that began, and of the last one that ended.
    begun: u64,
    ended: u64,
}

/// Why a call through a [`DependencyHandle`] has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError<E> {
    /// The breaker is open, and the call was not made.
    Open,
    /// The call failed.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("the dependency is away; the call was not made"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open => None,
            // What it says is said already.
            Self::Failed(error) => error.source(),
        }
    }
}

impl DependencyHandle {
    pub(crate) fn new(name: impl Into<String>, dependency: Arc<dyn Dependency>, users: &Users) -> Self {
        let (began, name) = (Instant::now(), name.into());
        let seen =
            Seen { state: BreakerState::Closed, topology: 0, topology_since: began, begun: 0, ended: 0 };
        let inner = Inner {
            number: users.add(&name),
            users: users.clone(),
            name,
            dependency,
            began,
            began_unix_ms: unix_millis(),
            breaker: Mutex::new(Breaker::new()),
            refusals: Mutex::default(),
            looked: tokio::sync::Mutex::default(),
            seen: watch::Sender::new(seen),
            due: Notify::new(),
            look_due: Notify::new(),
        };
        Self { inner: Arc::new(inner), needed_by: None, used_by: None }
    }

    /// The handle of one run of a job that needs the dependency.
    pub(crate) fn needed(&self) -> Self {
        Self { needed_by: Some(Arc::default()), ..self.clone() }
    }

    /// The handle of one run of a job that uses the dependency, by the run's number among those that use any.
    pub(crate) fn used(&self, run: u64) -> Self {
        Self { used_by: Some(run), ..self.clone() }
    }

    /// The step of its run is dropped, and the calls of that tell nothing.
    pub(crate) fn drop_step(&self) {
        if let Some(run) = self.used_by {
            self.inner.users.turn(|without, now| without.drop_step(run, now));
        }
    }

    /// Returns the number of its run; `None` if that does not use it.
    pub(crate) const fn used_by(&self) -> Option<u64> {
        self.used_by
    }

    /// Returns its number among the worker's dependencies.
    pub(crate) fn number(&self) -> usize {
        self.inner.number
    }

    /// The worker's jobs that use any of its dependencies.
    pub(crate) fn users(&self) -> &Users {
        &self.inner.users
    }

    /// Notes that the run of this handle does without, if it uses it.
    fn lacks(&self, how: Lacks) {
        if let Some(run) = self.used_by {
            self.inner.users.turn(|without, now| without.lacks(run, self.inner.number, how, now));
        }
    }

    /// Notes that it does so no longer.
    fn is_served(&self, how: Served) {
        if let Some(run) = self.used_by {
            self.inner.users.turn(|without, now| without.is_served(run, self.inner.number, how, now));
        }
    }

    /// Its name in the worker's settings.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The dependency itself; `None` if it is no `D`. For clients whose calls depend on the handle.
    #[must_use]
    pub fn dependency<D: Dependency>(&self) -> Option<&D> {
        let any: &dyn Any = &*self.inner.dependency;
        any.downcast_ref()
    }

    /// The state of its breaker.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.inner.seen.get().state
    }

    /// How long it has been in this state.
    #[must_use]
    pub fn state_age(&self) -> Duration {
        let breaker = self.lock();
        self.now().saturating_sub(breaker.since())
    }

    /// Whether to do without it now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_open = self.state() == BreakerState::Open;
        if is_open {
            self.lacks(Lacks::Looked);
        } else {
            self.is_served(Served::Looked);
        }
        is_open
    }

    /// Whether most of those who use it do without it, by its breaker.
    pub(crate) fn is_away(&self) -> bool {
        self.lock().is_done_without(self.now())
    }

    /// Whether most of those who use it do without it, or should for the sake of others: see [`Users`].
    pub(crate) fn is_done_without(&self) -> bool {
        self.is_away() || self.inner.users.turn(|without, now| without.suspects(self.inner.number, now))
    }

    /// Makes a call unless the breaker is open, and notes how it fared. While the breaker is half-open, only
    /// some are made, and all of jobs that need it, of which only some are begun; those have five seconds more
    /// when a maintenance is announced, to end their step. `is_failure` says whether an error is the service's,
    /// such as a lost connection or a time-out, and not the call's own, such as a wrong type: that counts as an
    /// answer.
    ///
    /// # Errors
    /// [`CallError::Open`] when it was not made; else the call's own.
    ///
    /// # Cancel safety
    /// A call that is dropped tells the breaker nothing. A job that uses the dependency does without from then on, unless
    /// another of its calls was answered meanwhile, or it is the job's step that is dropped.
    pub async fn call<T, E: fmt::Display>(
        &self,
        call: impl Future<Output = Result<T, E>>,
        is_failure: impl FnOnce(&E) -> bool,
    ) -> Result<T, CallError<E>> {
        if !self.admit() {
            return Err(CallError::Open);
        }
        let refused_before = self.refused_of_step().map(|refused| refused.count);
        let made = self.begin_call();
        let called = call.await;
        match &called {
            Err(error) if is_failure(error) => {
                made.fails();
                self.report(&Answer::Failed(error.to_string()));
            }
            _ => {
                made.serves();
                self.change(|breaker, now| breaker.on_call(&Answer::Served, now));
                self.overcome(refused_before);
            }
        }
        called.map_err(CallError::Failed)
    }

    fn begin_call(&self) -> Made<'_> {
        let number = self
            .used_by
            .map(|run| self.inner.users.turn(|without, now| without.begin_call(run, self.inner.number, now)));
        Made { handle: self, number }
    }

    /// Whether one more call may be made, for a caller that [reports](Self::report) its answer. If not, that excuses
    /// a job that needs it, as what it [refuses](Self::refused).
    #[must_use]
    pub fn admit(&self) -> bool {
        if self.needed_by.is_none() {
            let is_admitted = self.lock().admit();
            if !is_admitted {
                self.lacks(Lacks::Called);
            }
            return is_admitted;
        }
        let is_admitted = self.lock().lets_end(self.now());
        if !is_admitted {
            self.note("it was away", true);
        }
        is_admitted
    }

    /// Whether one more job that needs it may begin.
    pub(crate) fn admit_job(&self) -> bool {
        let takes_all = self.refusals().admit();
        takes_all && self.lock().admit()
    }

    /// Returns how often it has opened, for those who need it: who was admitted before may have to wait now.
    pub(crate) fn openings(&self) -> u64 {
        let refused = self.refusals().openings();
        refused + self.lock().openings()
    }

    /// Whether and how far jobs that need it are begun: it may serve and refuse what they do.
    pub(crate) fn state_for_needing(&self) -> BreakerState {
        match self.state() {
            BreakerState::Closed => self.refusals().state(),
            state => state,
        }
    }

    /// Notes that it refused a call for a reason that is its own and not the call's, such as a lack of room. A job that
    /// uses it does without then, as after a call that failed, until a [`call`](Self::call) that begins later is answered.
    /// It is not away because of that, but if the step fails then whose job needs it, no attempt is spent: at most a
    /// hundred times, at the pauses of the kind's retries, until the job moves. A [`call`](Self::call) that begins
    /// later and is answered ends that: the job went on without. `call` and [`report`](Self::report) note the calls
    /// that fail, and that does not end before the step. `why` is a few words without a secret.
    pub fn refused(&self, why: &str) {
        self.lacks(Lacks::Refused);
        self.note(why, false);
    }

    fn note(&self, why: &str, has_failed: bool) {
        let probes = self.inner.seen.get().begun;
        if let Some(mut refused) = self.refused_of_step() {
            let (count, has_failed) = (refused.count + 1, refused.has_failed || has_failed);
            *refused = Refused { count, why: Some(why.to_owned()), probes, has_failed, is_overcome: false };
        }
    }

    /// Notes an answer to a call that began when so many had been refused. One that was under way beside it may be
    /// the reason for which the step fails. One that failed is not overcome: of calls that a step makes side by side,
    /// those after it tell nothing of it.
    fn overcome(&self, refused_before: Option<u64>) {
        if let Some(mut refused) = self.refused_of_step()
            && Some(refused.count) == refused_before
        {
            refused.is_overcome = true;
        }
    }

    /// Forgets what was refused: another step begins.
    pub(crate) fn begin_step(&self) {
        if let Some(mut refused) = self.refused_of_step() {
            *refused = Refused { count: refused.count, ..Refused::default() };
        }
    }

    /// Returns why a call of the present step had no answer that the job can use; `None` if all had one, or a later
    /// call, or the job does not need it.
    pub(crate) fn let_down(&self) -> Option<String> {
        let refused = self.refused_of_step()?;
        if refused.is_overcome && !refused.has_failed { None } else { refused.why.clone() }
    }

    /// Whether a call of the present step was refused or failed, and the job needs it.
    fn has_refused(&self) -> bool {
        self.refused_of_step().is_some_and(|refused| refused.why.is_some())
    }

    /// No code panics while it holds the lock.
    fn refused_of_step(&self) -> Option<MutexGuard<'_, Refused>> {
        let run = self.needed_by.as_ref()?;
        Some(run.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the run of this handle needs it.
    pub(crate) const fn is_needed(&self) -> bool {
        self.needed_by.is_some()
    }

    /// Notes how a call fared that was made otherwise than by [`call`](Self::call). One that failed excuses a job
    /// that needs it, as what it [refuses](Self::refused).
    pub fn report(&self, answer: &Answer) {
        match answer {
            Answer::Served => self.is_served(Served::Reported),
            Answer::Failed(_) => {
                self.note("a call failed", true);
                self.lacks(Lacks::Called);
            }
        }
        self.change(|breaker, now| breaker.on_call(answer, now));
    }

    /// Whether those who read replicas should read the primary for now.
    #[must_use]
    pub fn avoids_replicas(&self) -> bool {
        self.lock().avoids_replicas(self.now())
    }

    /// A number that grows whenever connections should be made anew, because the service's nodes may be others.
    #[must_use]
    pub fn topology(&self) -> u64 {
        self.inner.seen.get().topology
    }

    /// How long ago [`topology`](Self::topology) changed, or the worker began.
    #[must_use]
    pub fn topology_age(&self) -> Duration {
        self.inner.seen.get().topology_since.elapsed()
    }

    /// Completes when the breaker is open: at once if it is. Cancel-safe.
    pub async fn opened(&self) {
        self.inner.seen.subscribe().wait_for(|seen| seen.state == BreakerState::Open).await;
    }

    /// Completes when [`topology`](Self::topology) is no longer `known`. Cancel-safe.
    pub async fn topology_changed(&self, known: u64) {
        self.inner.seen.subscribe().wait_for(|seen| seen.topology != known).await;
    }

    /// Whether it serves, by a probe that begins after the last call of the run's present step that failed or was
    /// refused, or else after this call, and is not known to refuse anything. All that wait share the probe. If it
    /// refused a call of the step, it is looked at now: one job that fails by its own fault stops no others.
    pub(crate) async fn serves(&self) -> bool {
        let mut seen = self.inner.seen.subscribe();
        let by_call = self.refused_of_step().filter(|refused| refused.why.is_some()).map(|it| it.probes);
        let begun = by_call.unwrap_or_else(|| seen.get().begun);
        let probed = async {
            // A probe that was under way then had begun before.
            while seen.get().state == BreakerState::Closed && seen.get().ended <= begun {
                self.change(|breaker, now| {
                    breaker.doubt(now);
                    None
                });
                let ended = seen.get().ended;
                seen.wait_for(|seen| seen.state != BreakerState::Closed || seen.ended > ended).await;
            }
        };
        let _probed = timeout(3 * PROBE_WITHIN, probed).await;
        if self.state() != BreakerState::Closed {
            return false;
        }
        if self.refusals().state() == BreakerState::Open {
            return false;
        }
        if !self.has_refused() {
            return true;
        }
        let refused = self.look_after_now().await;
        self.turn(|refusals, now| refusals.on_failure(refused.as_deref(), now));
        refused.is_none()
    }

    /// As [`look`](Self::look), for many who ask at once: one look that begins after they have asked is for all.
    async fn look_after_now(&self) -> Option<String> {
        let asked = Instant::now();
        let mut looked = self.inner.looked.lock().await;
        match &*looked {
            Some((began, refused)) if *began > asked => refused.clone(),
            _ => {
                let began = Instant::now();
                let refused = self.look().await;
                *looked = Some((began, refused.clone()));
                refused
            }
        }
    }

    /// Returns what it refuses now, if anything. One that does not say so in time, or panics, may refuse all.
    async fn look(&self) -> Option<String> {
        let look = panics::contain("the look at what it refuses", || self.inner.dependency.refuses());
        match timeout(PROBE_WITHIN, look).await {
            Ok(looked) => looked.unwrap_or_else(Some),
            Err(_) => Some(format!("it did not say within {PROBE_WITHIN:?} what it refuses")),
        }
    }

    /// Returns for how long a job that needs it waits at least. It may serve again sooner than it is looked at.
    pub(crate) fn wait(&self) -> Duration {
        let now = self.now();
        let probe_at = {
            let breaker = self.lock();
            (breaker.state() != BreakerState::Closed).then(|| breaker.probe_at())
        };
        let look_at = probe_at.max(self.refusals().look_at()).unwrap_or_default();
        look_at.saturating_sub(now).min(PAUSE_MAX) + SPREAD.mul_f64(chance::fraction())
    }

    /// Returns the longest time for which a job that needs it and has not begun is deferred, of which there may be any
    /// number: while it is open about as long as it has been away by then. So each is deferred few times, and all are
    /// back when it serves again for about as long as it was away.
    pub(crate) fn longest_wait(&self) -> Duration {
        let now = self.now();
        let away = if self.is_open() { self.lock().away_for(now) } else { Duration::ZERO };
        let refusals = self.refusals();
        let refused = match refusals.state() {
            BreakerState::Open => refusals.refused_for(now),
            _ => Duration::ZERO,
        };
        away.max(refused).min(AWAY_MAX).mul_f64(0.5 + chance::fraction() / 2.0)
    }

    /// The same of a job that uses it and begins when others end, or it is closed. It may be half-open again and again.
    pub(crate) fn longest_wait_to_use(&self) -> Duration {
        let away = self.lock().away_for(self.now());
        let suspected = self.inner.users.turn(|without, now| without.suspected_for(self.inner.number, now));
        away.max(suspected).min(AWAY_MAX).mul_f64(0.5 + chance::fraction() / 2.0)
    }

    /// Returns its state as `status` shows it.
    pub(crate) fn shown(&self) -> DependencyReport {
        let limited_since = self.inner.users.limited_since(self.inner.number);
        let (now, breaker) = (self.now(), self.lock());
        // By the clock at the beginning, so that what does not change is shown the same.
        let unix_ms = |at: Duration| {
            self.inner.began_unix_ms.saturating_add(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
        };
        let is_closed = breaker.state() == BreakerState::Closed;
        let refusals = self.refusals();
        let next_look = if is_closed { refusals.look_at() } else { Some(breaker.probe_at()) };
        DependencyReport {
            name: self.inner.name.clone(),
            state: breaker.state(),
            since_unix_ms: unix_ms(breaker.since()),
            why: breaker.why(),
            refuses: refusals.what().map(str::to_owned),
            refuses_since_unix_ms: refusals.since().map(unix_ms),
            limited_since_unix_ms: limited_since
                .map(|at| unix_ms(at.saturating_duration_since(self.inner.began))),
            next_look_unix_ms: next_look.map(unix_ms),
            scheduled_unix_ms: breaker.scheduled_unix_ms(),
            avoids_replicas: breaker.avoids_replicas(now),
        }
    }

    pub(super) fn on_signal(&self, signal: &Signal) {
        tracing::info!(dependency = self.inner.name, ?signal, "a dependency announced something");
        self.change(|breaker, now| breaker.on_signal(signal, now, chance::fraction()));
    }

    pub(super) fn on_probe_begins(&self) {
        self.lock().on_probe_begins();
        self.inner.seen.modify(|seen| seen.begun += 1);
    }

    pub(super) fn on_probe(&self, answer: &Answer) {
        self.change(|breaker, now| breaker.on_probe(answer, now, chance::fraction()));
        self.inner.seen.modify(|seen| seen.ended = seen.begun);
    }

    /// Looks at what it refuses, and notes that.
    pub(super) async fn look_again(&self) {
        let refused = self.look().await;
        self.turn(|refusals, now| refusals.on_look(refused.as_deref(), now, chance::fraction()));
    }

    /// Completes when a look at what it refuses is due. Cancel-safe.
    pub(super) async fn look_due(&self) {
        loop {
            let changed = self.inner.look_due.notified();
            let at = self.refusals().look_at().map(|at| self.inner.began + at);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
                () = changed => {}
            }
        }
    }

    /// Completes when a probe is due. Cancel-safe.
    pub(super) async fn probe_due(&self) {
        loop {
            let changed = self.inner.due.notified();
            let at = self.inner.began + self.lock().probe_at();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => return,
                () = changed => {}
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Breaker, Duration) -> Option<Change>) {
        let changed = {
            let mut breaker = self.lock();
            let before = breaker.probe_at();
            let changed = change(&mut breaker, self.now());
            if breaker.probe_at() != before {
                self.inner.due.notify_one();
            }
            // Under the lock, so that the later of two changes is seen last.
            let (state, topology) = (breaker.state(), breaker.topology());
            self.inner.seen.modify(|seen| {
                if seen.topology != topology {
                    (seen.topology, seen.topology_since) = (topology, Instant::now());
                }
                seen.state = state;
            });
            changed
        };
        if let Some(change) = changed {
            self.log(&change);
        }
    }

    fn turn(&self, turn: impl FnOnce(&mut Refusals, Duration) -> Option<Change>) {
        let (dependency, now) = (&self.inner.name, self.now());
        let turned = turn(&mut self.refusals(), now);
        self.inner.look_due.notify_one();
        match turned {
            Some(Change::Opened(what)) => tracing::warn!(
                dependency,
                what,
                "a dependency does not do all that it should; jobs that need it wait"
            ),
            Some(Change::Closed) => tracing::info!(dependency, "a dependency does all that it should again"),
            Some(Change::HalfOpened(_) | Change::Ignored) | None => {}
        }
    }

    fn log(&self, change: &Change) {
        let dependency = &self.inner.name;
        match change {
            Change::Opened(why) => {
                tracing::warn!(dependency, why, "a dependency is away; jobs that need it wait");
            }
            Change::HalfOpened(after) => {
                tracing::info!(
                    dependency,
                    ?after,
                    "a dependency answers again; few calls are made to try it"
                );
            }
            Change::Closed => tracing::info!(dependency, "a dependency serves again"),
            Change::Ignored => tracing::warn!(
                dependency,
                "a dependency announced maintenance again, and announcements alone have kept it unused for too \
                 long; it is used until a call fails"
            ),
        }
    }

    fn now(&self) -> Duration {
        self.inner.began.elapsed()
    }

    /// As [`lock`](Self::lock). It is never locked before the breaker.
    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.inner.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.inner.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DependencyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DependencyHandle")
            .field("name", &self.inner.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
