//! The plan that a seed generates: the workers, the jobs, and the events until the world becomes
//! calm.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A world before its first event.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The workers' lease.
    pub lease: Duration,
    /// The workers' budget for a drain.
    pub budget: Duration,
    /// The checkpoint interval; `None` to derive it from the cost of a save.
    pub interval: Option<Duration>,
    /// How long finished jobs are remembered.
    pub remember_done: Duration,
    /// Whether the store announces new messages.
    pub hints: bool,
    /// The initial number of shards.
    pub shards: usize,
    /// The slots of each machine's worker.
    pub machines: Vec<usize>,
    /// After how many interruptions a job moves to the queue of a calm machine, which has the number
    /// after the last; `None`: there is no such machine.
    pub escalate_after: Option<u32>,
    /// How many jobs of the first kind may run at once in the fleet.
    pub in_fleet: Option<u32>,
    /// How many jobs of the second kind may run at once in a worker.
    pub per_worker: Option<usize>,
    /// Whether each machine's first worker is an old binary, which lacks a kind and reads only the
    /// first schema.
    pub old: Vec<bool>,
    /// The jobs.
    pub jobs: Vec<JobPlan>,
    /// The actions, and when each happens.
    pub actions: Vec<(Duration, Action)>,
    /// When the trouble ends.
    pub calm: Duration,
    /// How long after that the world must rest.
    pub rest_within: Duration,
}

/// A job, which is also its arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobPlan {
    /// The job's number in the plan.
    pub number: usize,
    /// The index of its kind.
    pub kind: usize,
    /// The number of its steps.
    pub steps: u32,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// One step with another length: its number and its milliseconds.
    pub long: Option<(u32, u64)>,
    /// The step after which it waits at its own request, and for how many milliseconds.
    pub waits: Option<(u32, u64)>,
    /// Whether it returns a result. A job without one writes an output in its last step.
    pub result: bool,
    /// The size of its state.
    pub state_bytes: usize,
    /// Its behaviour.
    pub nature: Nature,
    /// Whether its arguments are in a blob.
    pub args_in_blob: bool,
}

/// The behaviour of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nature {
    /// Succeeds in every step.
    Healthy,
    /// Fails on its first attempt at each of these steps.
    Flaky(Vec<u32>),
    /// Always fails at this step.
    Fails(u32),
    /// Kills its process.
    Kills(Where),
    /// Fails at this step until it is cured, before a redrive.
    Curable(u32),
}

/// The place where a job kills its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Where {
    /// While its arguments are read; they are in a blob.
    Args,
    /// In `begin`.
    Begin,
    /// In this step, after this many milliseconds.
    Step(u32, u64),
}

impl Nature {
    /// Returns whether the job must be done in the end.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Healthy | Self::Flaky(_) | Self::Curable(_))
    }
}

impl Plan {
    /// Returns the number of all machines.
    #[must_use]
    pub const fn all_machines(&self) -> usize {
        self.machines.len() + if self.escalate_after.is_some() { 1 } else { 0 }
    }

    /// Returns the slots of a machine's worker.
    #[must_use]
    pub fn slots(&self, machine: usize) -> usize {
        self.machines.get(machine).copied().unwrap_or(CALM_SLOTS)
    }
}

impl JobPlan {
    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> String {
        format!("job-{}", self.number)
    }

    /// Returns the length of step `at`.
    #[must_use]
    pub fn step(&self, at: u32) -> Duration {
        let ms = self.long.filter(|(long, _)| *long == at).map_or(self.step_ms, |(_, ms)| ms);
        Duration::from_millis(ms)
    }

    /// Returns the length of its longest step.
    #[must_use]
    pub fn longest_step(&self) -> Duration {
        Duration::from_millis(self.step_ms.max(self.long.map_or(0, |(_, ms)| ms)))
    }
}

/// A planned action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Sends the job's message; a repeated action sends it again.
    Send(usize),
    /// Kills the machine's process; another replaces it after this time.
    Kill(usize, Duration),
    /// Gives the machine notice; its process is gone after this time.
    Evict(usize, Duration),
    /// Gives the machine this much notice, and withdraws it after the second time.
    Withdraw(usize, Duration, Duration),
    /// Freezes the machine's process for this time.
    Freeze(usize, Duration),
    /// Disturbs the calls of a machine's process for this time.
    Trouble(usize, Trouble, Duration),
    /// Disturbs the store itself for this time, for all machines.
    Outage(Trouble, Duration),
    /// Asks the machine's worker to stop, and starts a new binary in its place.
    Update(usize),
    /// Adds a shard, which new processes see.
    AddShard,
    /// Cures the curable jobs.
    Cure,
    /// Redrives dead letters.
    Redrive {
        /// How often each dead letter is sent.
        times: usize,
        /// Whether the redrive fails to remove the dead letter from the poison queue.
        forget: bool,
    },
    /// Sends the bodies of dead letters with a tool that does not know redrives.
    CopyLetters,
    /// Cancels the job.
    Cancel {
        /// The job.
        job: usize,
        /// What disturbs the first try.
        trouble: Trouble,
        /// After which time the program that cancels it dies.
        dies: Option<Duration>,
    },
}

/// Disturbances of a process's calls. Shares are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trouble {
    /// Whether no call reaches the store.
    pub partitioned: bool,
    /// The share of calls that are not applied.
    pub failed: f64,
    /// The share of calls that are applied, but lose their answers.
    pub lost: f64,
    /// The share of calls that are applied at once and answered late.
    pub late_answers: f64,
    /// The share of calls that are applied late, when the caller may have given up.
    pub late_requests: f64,
    /// Whether every call takes about 1.5 s.
    pub slow: bool,
}

/// The choices for the length of everything in a world.
struct Pace {
    lease_secs: &'static [u64],
    jobs: &'static [usize],
    machines: &'static [usize],
    slots: &'static [usize],
    step_ms: &'static [u64],
    /// At most this much time in a job's steps, but always one step.
    job_ms: u64,
    calm_ms: (u64, u64),
    rest_within: Duration,
}

/// Jobs of seconds on small machines.
const FAST: Pace = Pace {
    lease_secs: &[3, 6, 6, 10, 10, 20, 60],
    jobs: &[2, 2, 4, 4, 6, 10, 50],
    machines: &[1, 2, 2, 3, 3, 4, 5],
    slots: &[1, 2, 2, 4],
    step_ms: &[20, 100, 100, 500, 1_000, 3_000],
    job_ms: 20_000,
    calm_ms: (20_000, 120_000),
    rest_within: Duration::from_hours(2),
};

/// Jobs with steps of minutes on larger machines.
const SLOW: Pace = Pace {
    lease_secs: &[60, 60, 300],
    jobs: &[2, 4, 16, 20],
    machines: &[1, 1, 2, 3],
    slots: &[2, 4, 8, 16],
    step_ms: &[3_000, 60_000, 200_000, 600_000],
    job_ms: 600_000,
    calm_ms: (120_000, 1_800_000),
    rest_within: Duration::from_hours(96),
};

/// The slots of a calm machine's worker.
const CALM_SLOTS: usize = 2;

/// Random choices of a plan.
struct Dice(SmallRng);

impl Dice {
    fn chance(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.0.random_range(least..=most))
    }

    fn of<T: Copy>(&mut self, choices: &[T], otherwise: T) -> T {
        choices.choose(&mut self.0).copied().unwrap_or(otherwise)
    }

    fn up_to(&mut self, most: usize) -> usize {
        self.0.random_range(0..=most)
    }

    fn step(&mut self, steps: u32) -> u32 {
        self.0.random_range(0..steps)
    }
}

impl Plan {
    /// Generates the plan of `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice(SmallRng::seed_from_u64(seed));
        let pace = if dice.chance(0.03) { &SLOW } else { &FAST };
        let lease = Duration::from_secs(dice.of(pace.lease_secs, 10));
        let budget = (lease.mul_f64(2.0 / 3.0)).min(Duration::from_secs(dice.of(&[2, 4, 10], 4)));
        let interval = dice.of(&[Some(0), Some(1), Some(2), Some(5), None], None).map(Duration::from_secs);
        let machines: Vec<usize> = (0..dice.of(pace.machines, 2)).map(|_| dice.of(pace.slots, 2)).collect();
        let updates = dice.chance(0.2);
        let old = machines.iter().map(|_| updates && dice.chance(0.7)).collect();
        let calm = dice.ms(pace.calm_ms.0, pace.calm_ms.1);
        let jobs = dice.jobs(lease, pace, updates);
        let mut plan = Self {
            seed,
            lease,
            budget,
            interval,
            remember_done: Duration::from_secs(dice.of(&[0, 0, 0, 0, 3_600], 0)),
            hints: dice.chance(0.5),
            shards: dice.of(&[1, 1, 2, 3], 1),
            machines,
            escalate_after: None,
            in_fleet: None,
            per_worker: None,
            old,
            jobs,
            actions: Vec::new(),
            calm,
            rest_within: pace.rest_within,
        };
        plan.actions = dice.actions(&plan, updates);
        plan.escalate();
        plan.limit();
        plan.cancel();
        plan
    }

    /// Limits the jobs of two kinds in some worlds.
    fn limit(&mut self) {
        let mut dice = Dice(SmallRng::seed_from_u64(self.seed ^ 0x0011_4147));
        self.in_fleet = dice.chance(0.1).then(|| dice.of(&[1, 1, 2, 3], 1));
        self.per_worker = dice.chance(0.1).then(|| dice.of(&[1, 2], 1));
    }

    /// Cancels some jobs in some worlds.
    fn cancel(&mut self) {
        let mut dice = Dice(SmallRng::seed_from_u64(self.seed ^ 0x00CA_9CE1));
        if !dice.chance(0.2) {
            return;
        }
        let calm = calm_ms(self);
        for job in 0..self.jobs.len() {
            if dice.chance(0.5) {
                let (trouble, dies) = (dice.trouble(), dice.chance(0.3).then(|| dice.ms(0, 200)));
                let trouble = if dice.chance(0.5) { trouble } else { Trouble::default() };
                // Some twice, and some after the calm.
                for _ in 0..=dice.up_to(1) {
                    let cancel = Action::Cancel { job, trouble, dies };
                    self.actions.push((dice.ms(0, calm * 3 / 2), cancel));
                }
            }
        }
        self.actions.sort_by_key(|(at, _)| *at);
    }

    /// Gives some worlds a calm machine, which also dies now and then. Its dice are its own, so that
    /// worlds without one are the same as before.
    fn escalate(&mut self) {
        let mut dice = Dice(SmallRng::seed_from_u64(self.seed ^ 0x00CA_1111));
        if !dice.chance(0.3) {
            return;
        }
        self.escalate_after = Some(dice.of(&[1, 2, 3, 3], 3));
        let calm = u64::try_from(self.calm.as_millis()).unwrap_or(0);
        for _ in 0..dice.up_to(3) {
            let kill = Action::Kill(self.machines.len(), Duration::ZERO);
            self.actions.push((dice.ms(0, calm), kill));
        }
        // Interruptions without progress are rare with short steps, so there are more of them.
        for _ in 0..dice.of(&[0, 4, 8], 4) {
            let machine = dice.up_to(self.machines.len() - 1);
            let notice = Duration::from_millis(dice.of(&[0, 200, 3_000], 200));
            self.actions.push((dice.ms(0, calm), Action::Evict(machine, notice)));
        }
        self.actions.sort_by_key(|(at, _)| *at);
    }
}

impl Dice {
    fn jobs(&mut self, lease: Duration, pace: &Pace, updates: bool) -> Vec<JobPlan> {
        let most = self.of(pace.jobs, 4);
        let rogues = self.of(&[0.0, 0.0, 0.2, 0.5], 0.0);
        let blobs = self.of(&[0.0, 0.3], 0.0);
        let result = self.of(&[0.0, 0.5, 1.0], 0.5);
        (0..=self.up_to(most - 1))
            .map(|number| self.job(number, lease, pace, updates, [rogues, blobs, result]))
            .collect()
    }

    fn job(
        &mut self,
        number: usize,
        lease: Duration,
        pace: &Pace,
        updates: bool,
        shares: [f64; 3],
    ) -> JobPlan {
        let [rogues, blobs, result] = shares;
        let step_ms = self.of(pace.step_ms, 100);
        let steps = self.of(&[1, 2, 5, 10, 20], 5).min(u32::try_from(pace.job_ms / step_ms).unwrap_or(1));
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(10_000).min(20_000);
        let long = self.chance(0.1).then(|| (self.step(steps), lease_ms * 3 / 2));
        let nature = if self.chance(rogues) { self.rogue(steps, lease_ms) } else { self.decent(steps) };
        JobPlan {
            number,
            kind: if updates { self.up_to(2) } else { self.up_to(1) },
            steps,
            step_ms,
            long,
            waits: self
                .chance(0.25)
                .then(|| (self.step(steps), self.of(&[200, 3_000, 3 * lease_ms], 20_000))),
            result: self.chance(result),
            state_bytes: self.of(&[0, 0, 0, 100, 30_000], 0),
            args_in_blob: nature == Nature::Kills(Where::Args) || self.chance(blobs),
            nature,
        }
    }

    fn decent(&mut self, steps: u32) -> Nature {
        if self.chance(0.2) {
            let count = self.up_to(3);
            Nature::Flaky((0..count).map(|_| self.step(steps)).collect())
        } else if self.chance(0.05) {
            // More often than a job may fail without moving.
            Nature::Flaky((0..steps).step_by(2).collect())
        } else {
            Nature::Healthy
        }
    }

    fn rogue(&mut self, steps: u32, lease_ms: u64) -> Nature {
        let step = self.step(steps);
        match self.up_to(6) {
            0 => Nature::Fails(step),
            1 => Nature::Curable(step),
            2 => Nature::Kills(Where::Args),
            3 => Nature::Kills(Where::Begin),
            4 => Nature::Kills(Where::Step(step, lease_ms)),
            _ => Nature::Kills(Where::Step(step, self.of(&[0, 5, 50], 0))),
        }
    }

    fn actions(&mut self, plan: &Plan, updates: bool) -> Vec<(Duration, Action)> {
        let calm = u64::try_from(plan.calm.as_millis()).unwrap_or(0);
        let mut actions = Vec::new();
        let late = self.chance(0.5);
        for job in 0..plan.jobs.len() {
            let sent = if late { self.ms(0, calm / 2) } else { self.ms(0, 50) };
            actions.push((sent, Action::Send(job)));
            if self.chance(0.1) {
                let most = self.of(&[100, 60_000], 100);
                let again = sent + self.ms(0, most);
                actions.push((again.min(plan.calm), Action::Send(job)));
            }
        }
        let kinds = self.up_to(7);
        for _ in 0..self.up_to(8) {
            let action = self.action(plan, kinds);
            actions.push((self.ms(0, calm), action));
        }
        if updates {
            for machine in 0..plan.machines.len() {
                actions.push((self.ms(calm / 4, calm), Action::Update(machine)));
            }
        }
        if self.chance(0.1) {
            actions.push((self.ms(0, calm), Action::AddShard));
        }
        if plan.jobs.iter().any(|job| !matches!(job.nature, Nature::Healthy | Nature::Flaky(_))) {
            actions.push((self.ms(0, calm), Action::Cure));
            for _ in 0..self.up_to(2) {
                let redrive = Action::Redrive { times: 1 + self.up_to(1), forget: self.chance(0.3) };
                let action = if self.chance(0.7) { redrive } else { Action::CopyLetters };
                actions.push((self.ms(calm / 4, calm * 2), action));
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        actions
    }

    /// Chooses one more action: of any kind, or of this world's one kind.
    fn action(&mut self, plan: &Plan, kinds: usize) -> Action {
        let machine = self.up_to(plan.machines.len() - 1);
        let lease_ms = u64::try_from(plan.lease.as_millis()).unwrap_or(10_000);
        match if kinds > 4 { self.up_to(4) } else { kinds } {
            0 => Action::Kill(machine, self.ms(10, 10_000)),
            1 => {
                let notice = self.of(&[0, 500, 3_000, 10_000, 30_000], 0);
                Action::Evict(machine, Duration::from_millis(notice))
            }
            2 if self.chance(0.3) => {
                let notice = self.ms(2_000, 30_000);
                Action::Withdraw(machine, notice, notice.mul_f64(self.0.random_range(0.1..0.9)))
            }
            2 => Action::Freeze(machine, self.ms(100, lease_ms * 3)),
            3 => Action::Freeze(machine, self.ms(lease_ms, lease_ms * 2)),
            _ => {
                let (length, trouble) = (self.ms(500, 40_000.min(calm_ms(plan))), self.trouble());
                if self.chance(0.3) {
                    Action::Outage(trouble, length)
                } else {
                    Action::Trouble(machine, trouble, length)
                }
            }
        }
    }

    fn trouble(&mut self) -> Trouble {
        let share = self.of(&[0.05, 0.2, 0.5, 0.9], 0.2);
        let none = Trouble::default();
        match self.up_to(6) {
            0 => Trouble { partitioned: true, ..none },
            1 => Trouble { failed: share, ..none },
            2 => Trouble { lost: share, ..none },
            3 => Trouble { late_answers: share, ..none },
            4 => Trouble { late_requests: share, ..none },
            5 => Trouble { slow: true, ..none },
            _ => {
                let part = share / 4.0;
                Trouble { failed: part, lost: part, late_answers: part, late_requests: part, ..none }
            }
        }
    }
}

fn calm_ms(plan: &Plan) -> u64 {
    u64::try_from(plan.calm.as_millis()).unwrap_or(u64::MAX)
}
