//! Turns to compute: so many at once, and the others in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use crate::panics::{self, Panic};
use crate::wait_time::WaitTime;

/// The number of looks, one a second, after which work that was given up loses its turn although it still computes. Work
/// that reads its stop flag ends long before. If a turn ended with its step, steps that end at once would begin each
/// other's work, all at once; if it ended with the work, work that never ends would keep all others from computing.
/// Looks and not time, because a frozen machine makes none.
const LOOKS: u32 = 10;

/// Computes, or hears why there is no thread for it.
type Work = Box<dyn FnOnce(Result<(), Panic>) + Send>;

/// The turns of a worker. No task waits for one: whatever ends a turn begins the next work, on a thread for such work. So
/// none is kept by a step that does not look at its own, or by a job whose thread is busy.
pub(crate) struct Turns(Mutex<State>);

struct State {
    free: usize,
    last: u64,
    running: BTreeMap<u64, Running>,
    /// In order.
    waiting: BTreeMap<u64, Waiting>,
}

/// Work that has a turn.
struct Running {
    /// That of its job.
    time: Arc<WaitTime>,
    /// How many looks ago it was given up, if it was.
    given_up: Option<u32>,
}

struct Waiting {
    time: Arc<WaitTime>,
    threads: Handle,
    work: Work,
}

/// Gives its work up when dropped. Work that waits does not begin. Work that has begun goes on, and keeps its turn for
/// [`LOOKS`] at most.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        let (running, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self(Mutex::new(State { free: at_once, last: 0, running, waiting }))
    }

    /// Runs `work` on a thread of the current runtime when its turn comes. `time` is the wait time of its job.
    pub(crate) fn run(
        self: &Arc<Self>,
        time: &Arc<WaitTime>,
        work: impl FnOnce(Result<(), Panic>) + Send + 'static,
    ) -> Turn {
        let waiting = Waiting { time: Arc::clone(time), threads: Handle::current(), work: Box::new(work) };
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        waiting.time.begin_turn();
        state.waiting.insert(number, waiting);
        self.start_next(state);
        Turn { turns: Arc::clone(self), number }
    }

    /// Ends the turns of work that was given up and computes on. To be called once a second.
    pub(crate) fn look(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut over = Vec::new();
        for (number, running) in &mut state.running {
            let Some(looks) = &mut running.given_up else { continue };
            *looks += 1;
            if *looks >= LOOKS {
                over.push(*number);
            }
        }
        for number in over {
            state.end(number);
        }
        self.start_next(state);
    }

    /// Starts what waits and has a turn now.
    fn start_next<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        while state.free > 0
            && let Some((number, Waiting { time, threads, work })) = state.waiting.pop_first()
        {
            state.free -= 1;
            time.begin_computing();
            state.running.insert(number, Running { time, given_up: None });
            drop(state);
            let has_thread = self.start(number, &threads, work);
            state = self.lock();
            if !has_thread {
                state.end(number);
            }
        }
    }

    /// Returns whether there is a thread for it. If not, the work has heard it.
    fn start(self: &Arc<Self>, number: u64, threads: &Handle, work: Work) -> bool {
        let there = Arc::new(Mutex::new(Some(work)));
        let (turns, here) = (Arc::clone(self), Arc::downgrade(&there));
        let take = |work: &Mutex<Option<Work>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let started = panics::catch(|| {
            // Where a runtime ends, this is dropped, and nothing begins by that: no turn is wanted any more.
            drop(threads.spawn_blocking(move || {
                let Some(work) = take(&there) else { return };
                work(Ok(()));
                let mut state = turns.lock();
                state.end(number);
                turns.start_next(state);
            }));
        });
        let Err(panic) = started else { return true };
        // Tokio, which panics, keeps what it has no thread for, and another thread may have found it since.
        let Some(work) = here.upgrade().and_then(|work| take(&work)) else { return true };
        // What it has may panic when dropped, also on the thread of another job.
        let _is_told = panics::catch(|| work(Err(panic)));
        false
    }

    fn give_up(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        let waited = state.waiting.remove(&number);
        if let Some(running) = state.running.get_mut(&number) {
            running.given_up = Some(0);
        }
        drop(state);
        if let Some(Waiting { time, work, .. }) = waited {
            time.end_turn();
            drop(work);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends a turn, unless it has ended.
    fn end(&mut self, number: u64) {
        if let Some(ended) = self.running.remove(&number) {
            self.free += 1;
            ended.time.end_computing();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.give_up(self.number);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Turns")
            .field("free", &state.free)
            .field("running", &state.running.len())
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Work that says when it begins, and ends when the sender is dropped.
    fn begin(turns: &Arc<Turns>, name: u8, says: &Sender<u8>) -> (Turn, Sender<()>) {
        let (ends, until): (Sender<()>, Receiver<()>) = channel();
        let says = says.clone();
        let turn = turns.run(&Arc::default(), move |_| {
            says.send(name).unwrap();
            let _is_gone = until.recv();
        });
        (turn, ends)
    }

    /// The names of the next two that begin, in order.
    fn two_of(said: &Receiver<u8>) -> [u8; 2] {
        let mut names = [said.recv().unwrap(), said.recv().unwrap()];
        names.sort_unstable();
        names
    }

    fn look(turns: &Arc<Turns>, times: u32) {
        (0..times).for_each(|_| turns.look());
    }

    #[tokio::test]
    async fn each_begins_when_one_before_it_has_ended_though_nobody_waits_for_it() {
        let turns = Arc::new(Turns::new(2));
        let (says, said) = channel();
        let [one, two, three, four] = [1, 2, 3, 4].map(|name| begin(&turns, name, &says));
        assert_eq!(two_of(&said), [1, 2]);
        assert!(said.try_recv().is_err());
        // Given up while it waits.
        drop(three.0);
        // It has ended, and its turn is not looked at.
        drop(one.1);
        assert_eq!(said.recv().unwrap(), 4);
        drop((one.0, two, three.1, four));
        let (_turn, _ends) = begin(&turns, 5, &says);
        assert_eq!(said.recv().unwrap(), 5);
    }

    #[tokio::test]
    async fn steps_that_end_begin_no_work_of_each_other_and_what_they_left_has_its_turns_for_some_seconds() {
        let turns = Arc::new(Turns::new(2));
        let (says, said) = channel();
        let names: Vec<u8> = (0..100).collect();
        let (given_up, ends): (Vec<Turn>, Vec<_>) =
            names.iter().map(|name| begin(&turns, *name, &says)).unzip();
        assert_eq!(two_of(&said), [0, 1]);
        drop(given_up);
        let others = [100, 101, 102].map(|name| begin(&turns, name, &says));
        look(&turns, LOOKS - 1);
        assert_eq!(format!("{turns:?}"), "Turns { free: 0, running: 2, waiting: 3 }");
        assert!(said.try_recv().is_err());
        look(&turns, 1);
        assert_eq!(two_of(&said), [100, 101]);
        // That those end which have no turn any more gives nobody one.
        drop(ends);
        look(&turns, LOOKS);
        assert_eq!(format!("{turns:?}"), "Turns { free: 0, running: 2, waiting: 1 }");
        drop(others);
    }

    #[test]
    fn a_runtime_that_ends_drops_what_waits() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let turns = Arc::new(Turns::new(1));
        let (says, said) = channel();
        let inside = runtime.enter();
        let all = [1, 2, 3, 4].map(|name| begin(&turns, name, &says));
        drop(inside);
        assert_eq!(said.recv().unwrap(), 1);
        runtime.shutdown_background();
        drop((all, says));
        assert!(said.recv().is_err(), "none of them has begun");
    }

    /// No machine has room for the stack of a thread of this runtime.
    #[test]
    fn work_hears_that_there_is_no_thread_for_it_and_the_turns_go_on() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let (runtime, without) =
            (builder.build().unwrap(), builder.thread_stack_size(1 << 60).build().unwrap());
        let turns = Arc::new(Turns::new(1));
        let (says, said) = channel();
        let inside = runtime.enter();
        let (one, ends) = begin(&turns, 1, &says);
        drop(inside);
        assert_eq!(said.recv().unwrap(), 1);
        let inside = without.enter();
        // So many that none may begin the next one within itself.
        let lack_threads: Vec<Turn> = (0..2_000)
            .map(|_| {
                let says = says.clone();
                turns.run(&Arc::default(), move |thread| {
                    says.send(if thread.is_err() { 2 } else { 3 }).unwrap();
                })
            })
            .collect();
        drop(inside);
        let inside = runtime.enter();
        let (last, _ends) = begin(&turns, 4, &says);
        drop(inside);
        drop(ends);
        assert!((0..2_000).all(|_| said.recv().unwrap() == 2));
        assert_eq!(said.recv().unwrap(), 4);
        drop((one, lack_threads, last));
    }
}
