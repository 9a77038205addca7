//! What a seed brings: the workers, the jobs, and what happens to them until the world becomes calm.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A world, before anything has happened in it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The workers' lease.
    pub lease: Duration,
    /// The workers' budget for a drain.
    pub budget: Duration,
    /// How often jobs are saved; `None` for what a save costs.
    pub interval: Option<Duration>,
    /// How long finished jobs are remembered.
    pub remember_done: Duration,
    /// Whether the store announces messages.
    pub hints: bool,
    /// Shards in the beginning.
    pub shards: usize,
    /// Slots of each machine's worker.
    pub machines: Vec<usize>,
    /// Whether each machine's first worker is an old binary, which lacks a kind and reads only the first schema.
    pub old: Vec<bool>,
    /// The jobs.
    pub jobs: Vec<JobPlan>,
    /// What happens, and when.
    pub actions: Vec<(Duration, Action)>,
    /// When the trouble ends.
    pub calm: Duration,
}

/// A job, which is also its arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobPlan {
    /// Its place in the plan.
    pub number: usize,
    /// Which kind.
    pub kind: usize,
    /// How many steps it has.
    pub steps: u32,
    /// How long a step takes.
    pub step_ms: u64,
    /// One step that takes another time.
    pub long: Option<(u32, u64)>,
    /// Whether it has a result. Without one it writes an output in its last step.
    pub result: bool,
    /// How large its state is.
    pub state_bytes: usize,
    /// How it behaves.
    pub nature: Nature,
    /// Whether its arguments are in a blob.
    pub args_in_blob: bool,
}

/// How a job behaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nature {
    /// It does its steps.
    Healthy,
    /// It fails the first time that it comes to each of these steps.
    Flaky(Vec<u32>),
    /// It always fails at this step.
    Fails(u32),
    /// It kills its process.
    Kills(Where),
    /// It fails at this step until it is cured, which is before a redrive.
    Curable(u32),
}

/// Where a job kills its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Where {
    /// While its arguments are read; they are in a blob.
    Args,
    /// In `begin`.
    Begin,
    /// In this step, after so many milliseconds.
    Step(u32, u64),
}

impl Nature {
    /// Whether the job is to be done in the end.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Healthy | Self::Flaky(_) | Self::Curable(_))
    }
}

impl JobPlan {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> String {
        format!("job-{}", self.number)
    }

    /// How long step `at` takes.
    #[must_use]
    pub fn step(&self, at: u32) -> Duration {
        let ms = self.long.filter(|(long, _)| *long == at).map_or(self.step_ms, |(_, ms)| ms);
        Duration::from_millis(ms)
    }

    /// The longest step.
    #[must_use]
    pub fn longest_step(&self) -> Duration {
        Duration::from_millis(self.step_ms.max(self.long.map_or(0, |(_, ms)| ms)))
    }
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The job's message is sent; once more when it was before.
    Send(usize),
    /// The machine's process dies, and another replaces it after so long.
    Kill(usize, Duration),
    /// The machine gets notice, and its process is gone after that.
    Evict(usize, Duration),
    /// The machine gets notice of so long, which is withdrawn after a part of that.
    Withdraw(usize, Duration, Duration),
    /// The machine's process stops for so long.
    Freeze(usize, Duration),
    /// What a machine's process sends is in trouble for so long.
    Trouble(usize, Trouble, Duration),
    /// The store itself is in trouble for so long, for all machines.
    Outage(Trouble, Duration),
    /// The machine's worker is asked to stop, and a new binary takes its place.
    Update(usize),
    /// A shard is added, which new processes see.
    AddShard,
    /// Curable jobs fail no more.
    Cure,
    /// Letters are sent again; each as often as this says, and left in the poison queue once more where asked for.
    Redrive {
        /// How often each is sent.
        times: usize,
        /// Whether the letter's removal is forgotten.
        forget: bool,
    },
    /// The bodies of letters are sent by a tool that knows nothing of redrives.
    CopyLetters,
}

/// What goes wrong with the calls of a process, as shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trouble {
    /// Nothing reaches the store.
    pub partitioned: bool,
    /// Calls that are not applied.
    pub failed: f64,
    /// Calls that are applied, and whose answers are lost.
    pub lost: f64,
    /// Calls that are applied at once and answered late.
    pub late_answers: f64,
    /// Calls that are applied late, when the caller may have given up.
    pub late_requests: f64,
}

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
    /// What `seed` brings.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice(SmallRng::seed_from_u64(seed));
        let lease = Duration::from_secs(dice.of(&[3, 6, 6, 10, 10, 20, 60], 10));
        let budget = (lease.mul_f64(2.0 / 3.0)).min(Duration::from_secs(dice.of(&[2, 4, 10], 4)));
        let interval = dice.of(&[Some(0), Some(1), Some(2), Some(5), None], None).map(Duration::from_secs);
        let machines: Vec<usize> =
            (0..dice.of(&[1, 2, 2, 3, 3, 4, 5], 2)).map(|_| dice.of(&[1, 2, 2, 4], 2)).collect();
        let updates = dice.chance(0.2);
        let old = machines.iter().map(|_| updates && dice.chance(0.7)).collect();
        let calm = dice.ms(20_000, 120_000);
        let jobs = dice.jobs(lease, updates);
        let mut plan = Self {
            seed,
            lease,
            budget,
            interval,
            remember_done: Duration::from_secs(dice.of(&[0, 0, 0, 0, 3_600], 0)),
            hints: dice.chance(0.5),
            shards: dice.of(&[1, 1, 2, 3], 1),
            machines,
            old,
            jobs,
            actions: Vec::new(),
            calm,
        };
        plan.actions = dice.actions(&plan, updates);
        plan
    }
}

impl Dice {
    fn jobs(&mut self, lease: Duration, updates: bool) -> Vec<JobPlan> {
        let most = self.of(&[2, 2, 4, 4, 6, 10, 50], 4);
        let rogues = self.of(&[0.0, 0.0, 0.2, 0.5], 0.0);
        let blobs = self.of(&[0.0, 0.3], 0.0);
        let result = self.of(&[0.0, 0.5, 1.0], 0.5);
        (0..=self.up_to(most - 1))
            .map(|number| self.job(number, lease, updates, [rogues, blobs, result]))
            .collect()
    }

    fn job(&mut self, number: usize, lease: Duration, updates: bool, shares: [f64; 3]) -> JobPlan {
        let [rogues, blobs, result] = shares;
        let step_ms = self.of(&[20, 100, 100, 500, 1_000, 3_000], 100);
        let steps = self.of(&[1, 2, 5, 10, 20], 5).min(u32::try_from(20_000 / step_ms).unwrap_or(1));
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(10_000).min(20_000);
        let long = self.chance(0.1).then(|| (self.step(steps), lease_ms * 3 / 2));
        let nature = if self.chance(rogues) { self.rogue(steps, lease_ms) } else { self.decent(steps) };
        JobPlan {
            number,
            kind: if updates { self.up_to(2) } else { self.up_to(1) },
            steps,
            step_ms,
            long,
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

    /// One more thing that happens; of every kind, or of one of them in this world.
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
        match self.up_to(5) {
            0 => Trouble { partitioned: true, ..none },
            1 => Trouble { failed: share, ..none },
            2 => Trouble { lost: share, ..none },
            3 => Trouble { late_answers: share, ..none },
            4 => Trouble { late_requests: share, ..none },
            _ => {
                let part = share / 4.0;
                Trouble {
                    partitioned: false,
                    failed: part,
                    lost: part,
                    late_answers: part,
                    late_requests: part,
                }
            }
        }
    }
}

fn calm_ms(plan: &Plan) -> u64 {
    u64::try_from(plan.calm.as_millis()).unwrap_or(u64::MAX)
}
