//! Runs the VMs and injects the faults of the schedule until all jobs are completed.

use std::time::Duration;

use reprieve::ports::Store;
use reprieve::{Error, ErrorKind, Result};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::directory::DemoDirectory;
use crate::fleet::{Fleet, Lifetime, Replaced};
use crate::observer::Observer;
use crate::progress::Progress;
use crate::schedule::{Fault, Kind};
use crate::screen::Screen;

/// The interval at which journal and logs are read: short enough for moving bars.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The interval at which the queue's length is read: a worker that was killed just after completing
/// a job did not log it.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The longest time without a step. Far longer than any notice or lease.
const STALLED: Duration = Duration::from_secs(120);

/// A running demo.
#[derive(Debug)]
pub(crate) struct Run {
    store: Store,
    fleet: Fleet,
    progress: Progress,
    observer: Observer,
    screen: Screen,
    notice: Duration,
    /// The faults to inject.
    due: Vec<Fault>,
}

impl Run {
    /// With this fleet at work on the jobs with these ids, which are in `store`.
    pub(crate) fn new(
        directory: &DemoDirectory,
        store: Store,
        ids: &[String],
        fleet: Fleet,
        notice: Duration,
        due: Vec<Fault>,
    ) -> Self {
        let (screen, mut observer) = (Screen::new(ids.len()), Observer::new(directory));
        for vm in (0..fleet.len()).filter_map(|slot| fleet.staying(slot)) {
            observer.add(vm);
        }
        Self { store, fleet, progress: Progress::new(ids), observer, screen, notice, due }
    }

    /// Runs until every job is completed and no eviction is in progress.
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
            if std::mem::replace(&mut seen, self.observer.entries.len()) != self.observer.entries.len() {
                moved = Instant::now();
            }
            let mut done = self.progress.all_completed();
            if !done && asked.elapsed() >= ASK_EVERY {
                asked = Instant::now();
                done = self.store.queue.depth().await?.total == 0;
            }
            if done && self.is_calm() {
                return Ok(());
            }
            if moved.elapsed() >= STALLED {
                let message = format!("no step was done for {STALLED:?}");
                return Err(Error::new(ErrorKind::TimedOut, "run the demo", message));
            }
        }
    }

    /// Ends the VMs and returns what was seen.
    pub(crate) async fn finish(mut self) -> Result<(Vec<Lifetime>, Observer)> {
        self.screen.clear();
        let lifetimes = self.fleet.finish().await?;
        // The last lines of their logs.
        self.observer.look(&mut self.progress)?;
        Ok((lifetimes, self.observer))
    }

    /// Kills all processes and waits for their end.
    pub(crate) async fn stop(self) {
        self.screen.clear();
        self.fleet.stop().await;
    }

    /// Whether every VM with a notice has released its jobs.
    fn is_calm(&self) -> bool {
        self.fleet.going().all(|vm| self.observer.has_drained(vm))
    }

    fn look(&mut self) -> Result<()> {
        for news in self.observer.look(&mut self.progress)? {
            self.screen.news(&news);
        }
        self.screen.show(&self.progress);
        Ok(())
    }

    /// Injects every fault that is due and finds a VM with work; the others wait.
    async fn strike(&mut self) -> Result<()> {
        let done = self.progress.done_permille();
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

    /// The first slot, from `slot` on and round, with a VM that stays and has work to lose.
    fn victim(&self, slot: usize) -> Option<usize> {
        let slots = self.fleet.len();
        let mut round = (slot..slots).chain(0..slot);
        round.find(|&slot| self.fleet.staying(slot).is_some_and(|vm| self.progress.is_at_work(vm)))
    }

    /// Records that a VM was replaced.
    fn replaced(&mut self, replaced: &Replaced, noticed: bool) -> Result<()> {
        // All that the dead one wrote is read before it is forgotten.
        self.look()?;
        self.progress.gone(&replaced.gone);
        self.observer.add(&replaced.by);
        self.screen.replaced(replaced, noticed);
        Ok(())
    }
}
