//! Holds the paused clock while a step waits for something real: a connection, a process, a thread.
//!
//! Tokio's paused clock advances to the next timer whenever the runtime is idle, and a runtime that
//! waits for a socket is idle. So a step's timeout would end before an answer that takes a
//! millisecond. Nothing tells from outside whether a step waits for a timer or for a socket; but it
//! shows afterwards, because a timer's wake follows an advance. So the clock stands still for a
//! while at each new wait, and what the wait turned out to be is remembered for the next time.

use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep};

use crate::codec::Digest;
use crate::hash::ContentHash;
use crate::ids::JobId;

/// How long the clock stands still at a wait of which nothing is known, and that only one thing can
/// end: if that is real, no timer of the step can fire early.
const FIRST_HOLD: Duration = Duration::from_millis(100);

/// The same if several things can end it, such as an answer and a timeout.
pub(super) const REAL_WAIT: Duration = Duration::from_secs(1);

/// The shortest that the clock stands still where only timers were seen, in other states.
const SHORTEST_HOLD: Duration = Duration::from_micros(250);

/// The same where both timers and real waits were seen.
const SHORTEST_MIXED_HOLD: Duration = Duration::from_millis(20);

/// The longest that the clock stands still at a time.
const LONGEST_HOLD: Duration = Duration::from_secs(20);

/// How much longer than the longest known wait the clock stands still: machines are busy at times.
const MARGIN: u32 = 4;

/// After the hold the clock runs, and stands still again for [`GAP`] after each of these times, so
/// that the end of a real wait is seen as such. Each is twice as long as the one before.
const RUNS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
const GAP: Duration = Duration::from_millis(1);

/// From which wait of a step on all are taken as one place.
const PLACES_MAX: u32 = 16;

/// What is known about the waits of steps. One for all runs of a test.
#[derive(Debug)]
pub(super) struct Waits {
    known: Mutex<Known>,
    /// How long the clock stands still at an unknown wait that several things can end.
    real_wait: Duration,
    /// How often the runtime was idle.
    idle: AtomicU64,
    /// A real wait ended after the clock had advanced, so timers may have fired early.
    was_late: AtomicBool,
    /// How often a step began, ended, or went on after an await, such as a call to the store.
    moves: AtomicU64,
    /// How long steps worked on the thread of the test, in microseconds.
    worked_us: AtomicU64,
    /// How often a step left a mark: it began in a new state, saved one, or was the last of a job.
    marks: AtomicU64,
    /// How many workers began.
    workers: AtomicU64,
    /// How many steps of all jobs began in the run under way, how many new states they saved, and how often jobs waited
    /// at their own request.
    steps: AtomicU64,
    saves: AtomicU64,
    rests: AtomicU64,
    /// How often jobs may wait before it is no mark any more.
    rests_max: u64,
    /// How often they went on after something real.
    answers: AtomicU64,
    /// The states of jobs in which steps began, and those that were saved, since a worker began.
    begun: Mutex<HashSet<(JobId, Digest)>>,
    saved: Mutex<HashSet<(JobId, ContentHash)>>,
}

/// What steps have done, as counts that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Done {
    /// How often they began, ended, or went on.
    pub(super) moves: u64,
    /// How long they worked on the thread of the test.
    pub(super) worked: Duration,
    /// How often they began in a new state, saved one, or ended a job.
    pub(super) marks: u64,
    /// How often they went on after something real in the run.
    pub(super) answers: u64,
    /// How many workers began.
    pub(super) workers: u64,
}

#[derive(Debug, Default)]
struct Known {
    waits: HashMap<Wait, Cause>,
    usual: HashMap<Place, Usual>,
}

/// One await of one step, at which it was not woken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Wait {
    pub(super) kind: &'static str,
    /// The state that the step began with, if it can be encoded.
    pub(super) state: Option<Digest>,
    /// Its number among those of the step, from 1.
    pub(super) number: u32,
    /// Whether more than one thing can end it.
    pub(super) has_several: bool,
}

/// A place in the code, as far as it can be told: the job's kind, the number of the wait in its step,
/// and whether several things can end it.
type Place = (&'static str, u32, bool);

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Timer,
    /// Something real, and it took this long at most.
    Real(Duration),
}

/// The waits at one place of the code.
#[derive(Debug, Clone, Copy)]
struct Usual {
    hold: Duration,
    longest: Option<Duration>,
}

/// How a step goes on after an await.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    On,
    /// It is polled again at once.
    Again,
    /// The process was killed: the step is dropped.
    Killed,
}

impl Waits {
    /// With how long the clock stands still at an unknown wait that several things can end, and how often jobs may
    /// wait at their own request and get nowhere else.
    pub(super) fn new(real_wait: Duration, rests_max: u64) -> Self {
        Self {
            known: Mutex::default(),
            real_wait,
            idle: AtomicU64::new(0),
            was_late: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            worked_us: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            saves: AtomicU64::new(0),
            workers: AtomicU64::new(0),
            rests: AtomicU64::new(0),
            rests_max,
            answers: AtomicU64::new(0),
            begun: Mutex::default(),
            saved: Mutex::default(),
        }
    }

    /// To be called when a run begins.
    pub(super) fn note_run(&self) {
        for count in [&self.steps, &self.saves, &self.answers, &self.rests] {
            count.store(0, Relaxed);
        }
    }

    /// To be called when a worker begins: jobs may come to the same states again.
    pub(super) fn note_worker(&self) {
        self.workers.fetch_add(1, Relaxed);
        lock(&self.begun).clear();
        lock(&self.saved).clear();
    }

    /// To be called when the runtime becomes idle.
    pub(super) fn note_idle(&self) {
        self.idle.fetch_add(1, Relaxed);
    }

    /// What steps have done so far.
    pub(super) fn done(&self) -> Done {
        Done {
            moves: self.moves.load(Relaxed),
            worked: Duration::from_micros(self.worked_us.load(Relaxed)),
            marks: self.marks.load(Relaxed),
            answers: self.answers.load(Relaxed),
            workers: self.workers.load(Relaxed),
        }
    }

    /// How many steps of all jobs began in the run.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// What steps of the run have done more than `most` times, if anything: a step may have no end, too.
    pub(super) fn beyond(&self, most: u64) -> Option<&'static str> {
        let counts = [
            (&self.steps, "steps, with those of jobs that it enqueues"),
            (&self.saves, "saves of new states"),
            (&self.answers, "waits for computations, files or anything else that is real"),
        ];
        counts.into_iter().find_map(|(count, what)| (count.load(Relaxed) >= most).then_some(what))
    }

    /// To be called when a job ends.
    pub(super) fn note_mark(&self) {
        self.marks.fetch_add(1, Relaxed);
    }

    /// To be called when a job is to wait at its own request: in days of simulated time, it may do so often.
    pub(super) fn note_job_waits(&self) {
        if self.rests.fetch_add(1, Relaxed) < self.rests_max {
            self.note_mark();
        }
    }

    /// To be called when a step begins.
    pub(super) fn note_begin(&self, job: &JobId, state: Option<Digest>) {
        self.steps.fetch_add(1, Relaxed);
        if state.is_none_or(|state| lock(&self.begun).insert((job.clone(), state))) {
            self.note_mark();
        }
    }

    /// To be called when a step saves this state.
    pub(super) fn note_save(&self, job: &JobId, state: ContentHash) {
        if lock(&self.saved).insert((job.clone(), state)) {
            self.saves.fetch_add(1, Relaxed);
            self.note_mark();
        }
    }

    /// The step is polled, and takes so long on the thread of the test.
    fn poll<T>(&self, step: Pin<&mut (dyn Future<Output = T> + Send + '_)>, waker: &Waker) -> Poll<T> {
        self.moves.fetch_add(1, Relaxed);
        let began = real_now();
        let polled = step.poll(&mut Context::from_waker(waker));
        let worked = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.worked_us.fetch_add(worked, Relaxed);
        polled
    }

    /// Whether a real wait ended after the clock had advanced, since the last call.
    pub(super) fn take_late(&self) -> bool {
        self.was_late.swap(false, Relaxed)
    }

    /// Runs a step, and holds the clock while it waits for something real. `at_await` is called
    /// with the number of each await that does not complete at once. Returns `None` if it was
    /// killed. While the step `is_saving` the clock runs: the save is simulated, and the step is not polled
    /// until it is done. That is another await: the state is saved then, and the step has not gone on.
    pub(super) async fn drive<T, F: Future<Output = Going> + Send>(
        &self,
        (kind, state): (&'static str, Option<Digest>),
        mut step: Pin<Box<dyn Future<Output = T> + Send + '_>>,
        is_saving: impl Fn() -> bool + Send,
        mut at_await: impl FnMut(u32) -> F + Send,
    ) -> Option<T> {
        let woken = Arc::new(Woken::new());
        let waker = Waker::from(Arc::clone(&woken));
        let (mut awaits, mut waits, mut has_saved) = (0, 0, false);
        loop {
            if woken.is_real.swap(false, SeqCst) {
                self.answers.fetch_add(1, Relaxed);
            }
            if !has_saved {
                woken.is.store(false, SeqCst);
                if let Poll::Ready(ended) = self.poll(step.as_mut(), &waker) {
                    return Some(ended);
                }
            }
            awaits += 1;
            let is_saved = mem::take(&mut has_saved);
            let is_wait = !is_saved && !woken.is.load(SeqCst);
            match at_await(awaits).await {
                Going::On if !is_saved => {}
                Going::On => continue,
                Going::Again => {
                    // Else it is still at this wait.
                    waits += u32::from(is_wait && woken.is.load(SeqCst));
                    continue;
                }
                Going::Killed => return None,
            }
            if is_saving() {
                Woken::wake(&woken).await;
                has_saved = true;
                continue;
            }
            if woken.is.load(SeqCst) {
                // Others get their turn, too.
                yield_now().await;
                continue;
            }
            waits += 1;
            // Whatever can wake the step has a clone of its waker; two are here.
            let has_several = Arc::strong_count(&woken) > 3;
            self.wait(Wait { kind, state, number: waits, has_several }, &woken).await;
        }
    }

    /// Waits until the step is woken, and holds the clock for as long as is wise.
    async fn wait(&self, wait: Wait, woken: &Woken) {
        let (began, simulated, idle) = (real_now(), Instant::now(), self.idle.load(Relaxed));
        let is_still = || Instant::now() == simulated;
        let mut wake = pin!(woken.wake());
        let Some(hold) = self.hold_at(&wait) else {
            wake.await;
            if is_still() && self.idle.load(Relaxed) != idle {
                self.note_real(&wait, woken, began.elapsed());
            }
            return;
        };
        tokio::select! {
            biased;
            () = &mut wake => {
                // What another task answers at once is no wait.
                if self.idle.load(Relaxed) != idle {
                    self.note_real(&wait, woken, began.elapsed());
                }
                return;
            }
            () = stand_still(hold) => {}
        }
        let [mut run, longest] = RUNS;
        loop {
            tokio::select! {
                biased;
                () = &mut wake => {
                    // A blocking task of the step held the clock.
                    return if is_still() { self.note_real(&wait, woken, began.elapsed()) } else { self.note_timer(&wait) };
                }
                () = sleep(run) => {}
            }
            tokio::select! {
                biased;
                () = &mut wake => {
                    self.was_late.store(true, Relaxed);
                    return self.note_real(&wait, woken, began.elapsed());
                }
                () = stand_still(GAP) => {}
            }
            run = longest.min(run * 2);
        }
    }

    /// How long the clock is to stand still; `None` if this wait is known to end by a timer.
    fn hold_at(&self, wait: &Wait) -> Option<Duration> {
        let known = self.known();
        match known.waits.get(wait) {
            Some(Cause::Timer) => None,
            Some(Cause::Real(longest)) => Some(with_margin(*longest)),
            None => Some(known.usual.get(&wait.place()).map_or(self.first_hold(wait), |usual| usual.hold)),
        }
    }

    fn first_hold(&self, wait: &Wait) -> Duration {
        if wait.has_several { self.real_wait } else { FIRST_HOLD.min(self.real_wait) }
    }

    fn note_timer(&self, wait: &Wait) {
        let first = self.first_hold(wait);
        let mut known = self.known();
        if wait.is_exact() {
            known.waits.entry(*wait).or_insert(Cause::Timer);
        }
        let usual = known.usual(wait, first);
        let shortest =
            usual.longest.map_or(SHORTEST_HOLD, |longest| SHORTEST_MIXED_HOLD.max(longest * MARGIN));
        usual.hold = (usual.hold / 4).max(shortest).min(LONGEST_HOLD);
    }

    fn note_real(&self, wait: &Wait, woken: &Woken, took: Duration) {
        woken.is_real.store(true, SeqCst);
        let first = self.first_hold(wait);
        let mut known = self.known();
        if wait.is_exact() {
            let before = known.waits.insert(*wait, Cause::Real(took));
            if let Some(Cause::Real(longest)) = before {
                known.waits.insert(*wait, Cause::Real(longest.max(took)));
            }
        }
        let usual = known.usual(wait, first);
        usual.longest = usual.longest.max(Some(took));
        usual.hold = usual.hold.max(with_margin(took));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn usual(&mut self, wait: &Wait, first: Duration) -> &mut Usual {
        self.usual.entry(wait.place()).or_insert(Usual { hold: first, longest: None })
    }
}

impl Wait {
    fn place(&self) -> Place {
        (self.kind, self.number.min(PLACES_MAX), self.has_several)
    }

    /// Whether it can be told from other waits.
    const fn is_exact(&self) -> bool {
        self.state.is_some() && self.number < PLACES_MAX
    }
}

fn with_margin(longest: Duration) -> Duration {
    FIRST_HOLD.max(longest * MARGIN).min(LONGEST_HOLD)
}

/// Keeps the clock from advancing for `length` of real time: tokio's paused clock stands still while a
/// blocking task is in flight.
async fn stand_still(length: Duration) {
    let (_release, released) = mpsc::channel::<()>();
    let blocking = spawn_blocking(move || {
        // It ends early when this future is dropped, and the sender with it.
        let _released = released.recv_timeout(length);
    });
    // It can't panic, and nothing aborts it but the end of the runtime.
    let _ended = blocking.await;
}

#[expect(clippy::disallowed_methods, reason = "waits for something real are measured in real time")]
pub(super) fn real_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Notes that a step was woken, and wakes its task.
struct Woken {
    is: AtomicBool,
    /// By something real: at once by a thread that computes, or when the runtime had been idle.
    is_real: AtomicBool,
    /// That of the test, on which all that is simulated runs.
    thread: ThreadId,
    task: AtomicWaker,
}

impl Woken {
    fn new() -> Self {
        let (is, is_real) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is, is_real, thread: thread::current().id(), task: AtomicWaker::new() }
    }

    /// Completes when the step was woken.
    async fn wake(&self) {
        poll_fn(|cx| {
            self.task.register(cx.waker());
            if self.is.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if thread::current().id() != self.thread {
            self.is_real.store(true, SeqCst);
        }
        self.is.store(true, SeqCst);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_waits_of_a_jobs_own_get_somewhere_in_each_run() {
        let waits = Waits::new(REAL_WAIT, 3);
        for run in 1..=2 {
            waits.note_run();
            (0..5).for_each(|_| waits.note_job_waits());
            assert_eq!(waits.done().marks, 3 * run);
        }
    }
}
