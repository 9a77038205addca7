//! Executes a plan: starts processes, replaces them, disturbs them, and waits until the world
//! rests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::ports::Ending;
use reprieve_core::{Notice, NoticeId, NoticeKind, Result};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::history::{Cause, History, What};
use super::plan::{Action, Plan, Trouble};
use super::process::Process;
use super::start::{Birth, start};
use super::store::{FinalStore, SharedStore};
use super::village::Village;

/// How often to check whether the world rests.
const LOOK: Duration = Duration::from_secs(2);

/// How often the dead letters of cured jobs are redriven once the world is calm.
const OPERATE: Duration = Duration::from_secs(30);

/// An action that is due.
#[derive(Debug)]
pub(super) enum ScheduledAction {
    Do(Action),
    Replace(usize),
    /// Evicts the process at the end of its notice.
    Gone(Arc<Process>),
    Withdraw(Arc<Process>, NoticeId),
    Thaw(Arc<Process>),
    Clear(Arc<Process>),
    Calm,
    Operate,
    Look,
}

/// A running world.
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) history: History,
    pub(super) store: SharedStore,
    pub(super) village: Arc<Village>,
    pub(super) dice: SmallRng,
    began: Instant,
    machines: Vec<Option<Arc<Process>>>,
    /// Whether the next process of each machine is an old binary.
    old: Vec<bool>,
    due: BTreeMap<(Duration, u64), ScheduledAction>,
    scheduled: u64,
    processes: u32,
    ends: (mpsc::UnboundedSender<usize>, mpsc::UnboundedReceiver<usize>),
    calm: bool,
    /// The number of planned actions that have not happened yet.
    planned: usize,
    /// Jobs with stored arguments.
    pub(super) prepared: Vec<bool>,
    /// The number of programs that are cancelling a job.
    pub(super) cancelling: Arc<AtomicUsize>,
}

/// Executes `plan`, and returns the history and the store's final contents.
pub(super) async fn play(plan: &Plan) -> Result<(History, FinalStore)> {
    let mut world = World::new(plan);
    for machine in 0..plan.all_machines() {
        world.start(machine)?;
    }
    for (at, action) in &plan.actions {
        world.at(*at, ScheduledAction::Do(action.clone()));
    }
    world.at(plan.calm, ScheduledAction::Calm);
    while let Some(mut next) = world.due.first_entry() {
        let at = world.began + next.key().0;
        let ended = tokio::select! {
            biased;
            Some(machine) = world.ends.1.recv() => Some(machine),
            () = sleep_until(at) => None,
        };
        if let Some(machine) = ended {
            let delay = world.ms(300, 5_000);
            world.after(delay, ScheduledAction::Replace(machine));
            continue;
        }
        let action = std::mem::replace(next.get_mut(), ScheduledAction::Look);
        next.remove();
        if world.happen(action).await? || world.history.now() > plan.calm + plan.rest_within {
            break;
        }
    }
    let store = world.store.look().await?;
    Ok((world.history, store))
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            history: History::begin(),
            store: SharedStore::new(plan.shards),
            village: Arc::new(Village::new(plan.jobs.clone())),
            dice: SmallRng::seed_from_u64(plan.seed.wrapping_add(1)),
            began: Instant::now(),
            machines: vec![None; plan.all_machines()],
            old: plan.old.iter().copied().chain([false]).collect(),
            due: BTreeMap::new(),
            scheduled: 0,
            processes: 0,
            ends: mpsc::unbounded_channel(),
            calm: false,
            planned: plan.actions.len(),
            prepared: vec![false; plan.jobs.len()],
            cancelling: Arc::default(),
        }
    }

    fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.dice.random_range(least..=most))
    }

    fn at(&mut self, at: Duration, action: ScheduledAction) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), action);
    }

    fn after(&mut self, delay: Duration, action: ScheduledAction) {
        let at = self.history.now() + delay;
        self.at(at, action);
    }

    fn start(&mut self, machine: usize) -> Result<()> {
        let birth = Birth { id: self.next_process(), machine, old: self.old[machine] && !self.calm };
        let ends = self.ends.0.clone();
        let process = start(self.plan, birth, &self.store, &self.village, &self.history, ends)?;
        self.machines[machine] = Some(process);
        Ok(())
    }

    pub(super) fn next_process(&mut self) -> u32 {
        self.processes += 1;
        self.processes
    }

    /// Returns the machine's process, if one runs.
    fn process(&self, machine: usize) -> Option<Arc<Process>> {
        self.machines[machine].clone().filter(|process| !process.has_ended())
    }

    /// Performs what is due, and returns whether the world rests.
    async fn happen(&mut self, action: ScheduledAction) -> Result<bool> {
        match action {
            ScheduledAction::Do(action) => {
                self.planned -= 1;
                self.act(action).await?;
            }
            ScheduledAction::Replace(machine) => {
                if self.process(machine).is_none() {
                    self.start(machine)?;
                }
            }
            ScheduledAction::Gone(process) => process.end(Cause::Evicted),
            ScheduledAction::Withdraw(process, id) => {
                if !process.has_ended() {
                    process.link.note(What::Withdrawn);
                    process.notices.over(&id, Ending::Withdrawn);
                }
            }
            ScheduledAction::Thaw(process) => process.thaw(),
            ScheduledAction::Clear(process) => {
                if !process.has_ended() {
                    process.link.note(What::Untroubled);
                    process.link.set(Trouble::default());
                }
            }
            ScheduledAction::Calm => self.calm_down(),
            ScheduledAction::Operate => {
                if self.village.cured.load(Relaxed) {
                    self.redrive_cured().await?;
                }
                self.after(OPERATE, ScheduledAction::Operate);
            }
            ScheduledAction::Look => {
                if self.rests().await? {
                    self.history.note(None, What::Rest);
                    return Ok(true);
                }
                self.after(LOOK, ScheduledAction::Look);
            }
        }
        Ok(false)
    }

    async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Send(job) => return self.send(job).await,
            Action::Redrive { times, forget } => return self.redrive(times, forget).await,
            Action::CopyLetters => return self.copy_letters().await,
            Action::Cancel { job, trouble, dies } => return self.cancel(job, trouble, dies),
            Action::AddShard => self.store.add_shard(),
            Action::Cure => self.cure(),
            Action::Kill(machine, _) => {
                if let Some(process) = self.process(machine) {
                    process.end(Cause::Killed);
                }
            }
            Action::Evict(machine, notice) => self.evict(machine, notice, None),
            Action::Withdraw(machine, notice, after) => self.evict(machine, notice, Some(after)),
            Action::Freeze(machine, length) => {
                if let Some(process) = self.process(machine) {
                    process.freeze();
                    self.after(length, ScheduledAction::Thaw(process));
                }
            }
            Action::Trouble(machine, trouble, length) => {
                self.trouble(machine, trouble, length);
            }
            Action::Outage(trouble, length) => {
                for machine in 0..self.machines.len() {
                    self.trouble(machine, trouble, length);
                }
            }
            Action::Update(machine) => self.update(machine),
        }
        Ok(())
    }

    fn trouble(&mut self, machine: usize, trouble: Trouble, length: Duration) {
        if let Some(process) = self.process(machine) {
            process.link.note(What::Troubled);
            process.link.set(trouble);
            self.after(length, ScheduledAction::Clear(process));
        }
    }

    fn cure(&mut self) {
        if !self.village.cured.swap(true, Relaxed) {
            self.history.note(None, What::Cured);
        }
    }

    fn evict(&mut self, machine: usize, notice: Duration, withdrawn: Option<Duration>) {
        let Some(process) = self.process(machine) else { return };
        let id = format!("event-{}", self.scheduled);
        process.link.note(What::Noticed(notice));
        process.notices.notice(Notice::now(&id, NoticeKind::Preempt).at(Instant::now() + notice));
        match withdrawn {
            Some(after) => self.after(after, ScheduledAction::Withdraw(process, NoticeId::new(&id))),
            None => self.after(notice, ScheduledAction::Gone(process)),
        }
    }

    fn update(&mut self, machine: usize) {
        self.old[machine] = false;
        if let Some(process) = self.process(machine) {
            process.link.note(What::AskedToStop);
            process.stopper.stop();
        }
    }

    /// Ends all trouble, and replaces old binaries and those that do not see every shard.
    fn calm_down(&mut self) {
        self.calm = true;
        self.history.note(None, What::Calm);
        self.cure();
        for machine in 0..self.machines.len() {
            let Some(process) = self.process(machine) else { continue };
            let sees_all = process.is_calm || process.shards == self.store.shards.len();
            if process.old || !sees_all {
                self.update(machine);
            }
        }
        self.after(OPERATE, ScheduledAction::Operate);
        self.after(LOOK, ScheduledAction::Look);
    }

    /// Returns whether nothing is left to do: no message, no planned action, and no cured job
    /// without its result.
    async fn rests(&self) -> Result<bool> {
        let is_busy = self.planned > 0 || self.cancelling.load(Relaxed) > 0;
        if is_busy || self.store.messages().await? > 0 {
            return Ok(false);
        }
        self.cured_are_done().await
    }
}
