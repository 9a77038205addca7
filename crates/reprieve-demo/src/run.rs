//! Runs the demo: the VMs work, the faults of the schedule strike, until nothing is left to do.

use std::time::Duration;

use reprieve::ports::Store;
use reprieve::{Error, ErrorKind, Result};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::directory::Place;
use crate::fleet::{Fleet, Life, Replaced};
use crate::observer::Watch;
use crate::progress::Board;
use crate::schedule::{Fault, Kind};
use crate::screen::Screen;

/// How often the workers are looked at: often enough that a picture of them moves.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How often the queue is asked whether it is empty: who was killed the moment it had completed a job could not say so.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// How long nothing may move. Far longer than any notice or lease, so something is broken then.
const STALLED: Duration = Duration::from_secs(120);

/// A demo under way.
#[derive(Debug)]
pub(crate) struct Stage {
    store: Store,
    fleet: Fleet,
    board: Board,
    watch: Watch,
    screen: Screen,
    notice: Duration,
    /// The faults that have not struck yet.
    due: Vec<Fault>,
}

impl Stage {
    /// With this fleet at work on the jobs with these ids, which are in `store`.
    pub(crate) fn new(
        place: &Place,
        store: Store,
        ids: &[String],
        fleet: Fleet,
        notice: Duration,
        due: Vec<Fault>,
    ) -> Self {
        let (screen, mut watch) = (Screen::new(ids.len()), Watch::new(place));
        for vm in (0..fleet.len()).filter_map(|slot| fleet.staying(slot)) {
            watch.add(vm);
        }
        Self { store, fleet, board: Board::new(ids), watch, screen, notice, due }
    }

    /// Plays until every job is completed and no eviction is half way.
    ///
    /// # Cancel safety
    /// Dropping it leaves VMs that [`stop`](Self::stop) ends.
    pub(crate) async fn play(&mut self) -> Result<()> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut asked, mut moved, mut seen) = (Instant::now(), Instant::now(), 0);
        loop {
            let strikes = self.fleet.next_end();
            tokio::select! {
                _ = looks.tick() => {}
                () = sleep_until(strikes.unwrap_or_else(Instant::now)), if strikes.is_some() => {}
            }
            while let Some(replaced) = self.fleet.end_evicted().await? {
                self.replaced(&replaced, true)?;
            }
            self.look()?;
            self.strike().await?;
            self.fleet.check()?;
            if std::mem::replace(&mut seen, self.watch.entries.len()) != self.watch.entries.len() {
                moved = Instant::now();
            }
            let mut done = self.board.all_completed();
            if !done && asked.elapsed() >= ASK_EVERY {
                asked = Instant::now();
                done = self.store.queue.depth().await?.total == 0;
            }
            if done && self.is_calm() {
                return Ok(());
            }
            if moved.elapsed() >= STALLED {
                let message = format!("nothing has moved for {STALLED:?}");
                return Err(Error::new(ErrorKind::TimedOut, "run the demo", message));
            }
        }
    }

    /// Ends the VMs and returns what was seen.
    pub(crate) async fn finish(mut self) -> Result<(Vec<Life>, Watch)> {
        self.screen.clear();
        let lives = self.fleet.finish().await?;
        // What they still had to say.
        self.watch.look(&mut self.board)?;
        Ok((lives, self.watch))
    }

    /// Kills everything, and waits until it is gone.
    pub(crate) async fn stop(self) {
        self.screen.clear();
        self.fleet.stop().await;
    }

    /// Whether everybody who was told to go has handed everything back.
    fn is_calm(&self) -> bool {
        self.fleet.going().all(|vm| self.watch.has_drained(vm))
    }

    fn look(&mut self) -> Result<()> {
        for news in self.watch.look(&mut self.board)? {
            self.screen.news(&news);
        }
        self.screen.show(&self.board);
        Ok(())
    }

    /// Lets every fault strike that is due and finds a victim; the others wait.
    async fn strike(&mut self) -> Result<()> {
        let done = self.board.done_permille();
        for fault in std::mem::take(&mut self.due) {
            let victim = if fault.at_permille <= done { self.victim(fault.slot) } else { None };
            match (victim, fault.kind) {
                (None, _) => self.due.push(fault),
                (Some(slot), Kind::Eviction) => {
                    let vm = self.fleet.evict(slot)?;
                    self.screen.announced(&vm, self.notice);
                }
                (Some(slot), Kind::Kill) => {
                    let replaced = self.fleet.kill(slot).await?;
                    self.replaced(&replaced, false)?;
                }
            }
        }
        Ok(())
    }

    /// The first slot, from `slot` on and round, whose VM stays and has something to lose.
    fn victim(&self, slot: usize) -> Option<usize> {
        let slots = self.fleet.len();
        let mut round = (slot..slots).chain(0..slot);
        round.find(|&slot| self.fleet.staying(slot).is_some_and(|vm| self.board.is_at_work(vm)))
    }

    /// Takes note of a VM that is gone and of the one in its place.
    fn replaced(&mut self, replaced: &Replaced, noticed: bool) -> Result<()> {
        // All that the dead one wrote is read before it is forgotten.
        self.look()?;
        self.board.gone(&replaced.gone);
        self.watch.add(&replaced.by);
        self.screen.replaced(replaced, noticed);
        Ok(())
    }
}
