//! Turns to compute: so many at once, and the others in order.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;

type Work = Box<dyn FnOnce() + Send>;

/// The turns of a worker. No task waits for one: whatever ends a turn begins the next work, on a thread for such work. So
/// none is kept by a step that does not look at its own, or by a job whose thread is busy.
pub(crate) struct Turns(Mutex<State>);

struct State {
    free: usize,
    last: u64,
    /// Those that have a turn.
    running: BTreeSet<u64>,
    waiting: VecDeque<(u64, Handle, Work)>,
}

/// Gives its turn, or its place among those that wait, back when dropped. Work that has begun goes on.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        let (running, waiting) = (BTreeSet::new(), VecDeque::new());
        Self(Mutex::new(State { free: at_once, last: 0, running, waiting }))
    }

    /// Runs `work` on a thread of the current runtime when its turn comes, which ends with it.
    pub(crate) fn run(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> Turn {
        let (threads, work) = (Handle::current(), Box::new(work) as Work);
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        // Before its work is started, which panics where there are no threads.
        let turn = Turn { turns: Arc::clone(self), number };
        if state.free == 0 {
            state.waiting.push_back((number, threads, work));
        } else {
            state.free -= 1;
            state.running.insert(number);
            drop(state);
            self.start(number, &threads, work);
        }
        turn
    }

    fn start(self: &Arc<Self>, number: u64, threads: &Handle, work: Work) {
        let turns = Arc::clone(self);
        // Where a runtime ends, this is dropped, and nothing begins by that: no turn is wanted any more.
        threads.spawn_blocking(move || {
            work();
            turns.end(number);
        });
    }

    fn end(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        if !state.running.remove(&number) {
            let at = state.waiting.iter().position(|(waiting, ..)| *waiting == number);
            let given_up = at.and_then(|at| state.waiting.remove(at));
            drop(state);
            drop(given_up);
            return;
        }
        let Some((next, threads, work)) = state.waiting.pop_front() else {
            state.free += 1;
            return;
        };
        state.running.insert(next);
        drop(state);
        self.start(next, &threads, work);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.end(self.number);
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
        let turn = turns.run(move || {
            says.send(name).unwrap();
            let _is_gone = until.recv();
        });
        (turn, ends)
    }

    #[tokio::test]
    async fn each_begins_when_one_before_it_has_ended_or_was_given_up_though_nobody_waits_for_it() {
        let turns = Arc::new(Turns::new(2));
        let (says, said) = channel();
        let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(|name| begin(&turns, name, &says));
        let mut begun = [said.recv().unwrap(), said.recv().unwrap()];
        begun.sort_unstable();
        assert_eq!(begun, [1, 2]);
        assert!(said.try_recv().is_err());
        // Given up while it waits.
        drop(three.0);
        // It has ended, and its turn is not looked at.
        drop(one.1);
        assert_eq!(said.recv().unwrap(), 4);
        // Given up while it computes, which goes on.
        drop(two.0);
        assert_eq!(said.recv().unwrap(), 5);
        drop((one.0, two.1, three.1, four, five));
        let (_turn, _ends) = begin(&turns, 6, &says);
        assert_eq!(said.recv().unwrap(), 6);
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
}
