//! The goodput of the interval that follows from the ledger: kept step time ÷ slot time, over simulated histories of
//! losses. The ledger's count, the interval and the careful time after a death are the worker's own functions.

use std::fmt;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use reprieve_core::WorkerId;
use reprieve_core::checkpoint::{
    ASSUMED_LOSSES, CheckpointEvery, LONGEST, Losses, SHORTEST, careful_gap, young,
};
use reprieve_core::ledger::{Boot, Counting, Death, Entry, How, Interruption, Machine};
use reprieve_core::ports::WorkerReport;

const SEEDS: u64 = 20;

/// The machines of a fleet, each with one slot.
const MACHINES: usize = 10;

/// The losses after which the interval is asked for.
const LEARNED_FROM: usize = 20;

/// For how many mean times between losses goodput is measured after that, on each machine.
const MEASURED: f64 = 20.0;

/// A step takes half a second.
const STEP: f64 = 0.5;

/// Noon of some day, in milliseconds since the Unix epoch.
const START_MS: i64 = 20_000 * 86_400_000 + 43_200_000;

/// By which law losses come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Law {
    Exponential,
    /// Of this shape: below 1 machines fail early, above 1 late.
    Weibull(f64),
    /// Each moment strikes half of the machines.
    Waves,
}

/// A fleet: the law and mean of the times between losses of a machine, and what a save costs, in seconds.
#[derive(Debug, Clone, Copy)]
struct Fleet {
    law: Law,
    between: f64,
    cost: f64,
}

impl Fleet {
    fn wait(self, mean: f64, random: &mut ChaCha8Rng) -> f64 {
        let exponential = -(1.0 - random.random::<f64>()).ln();
        match self.law {
            Law::Exponential | Law::Waves => mean * exponential,
            Law::Weibull(shape) => mean * exponential.powf(shape.recip()) / gamma(1.0 + shape.recip()),
        }
    }

    /// The times of the losses of each machine, until none has fewer than are learned from and measured.
    fn history(self, seed: u64) -> Vec<Vec<f64>> {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        #[expect(clippy::cast_precision_loss, reason = "twenty")]
        let end = self.between * (LEARNED_FROM as f64 + MEASURED) * 2.0;
        let mut machines = vec![Vec::new(); MACHINES];
        if self.law == Law::Waves {
            let mut at = 0.0;
            while at < end {
                at += self.wait(self.between / 2.0, random);
                machines.iter_mut().filter(|_| random.random::<bool>()).for_each(|losses| losses.push(at));
            }
            return machines;
        }
        for losses in &mut machines {
            let mut at = 0.0;
            while at < end {
                at += self.wait(self.between, random);
                losses.push(at);
            }
        }
        machines
    }

    fn cost(self) -> Duration {
        Duration::from_secs_f64(self.cost)
    }
}

/// Γ for 1 to 3, by Stirling's series at x + 8.
fn gamma(x: f64) -> f64 {
    let z = x + 8.0;
    let ln = (z - 0.5).mul_add(z.ln(), -z) + 0.5 * std::f64::consts::TAU.ln() + (12.0 * z).recip();
    ln.exp() / (0..8).map(|k| x + f64::from(k)).product::<f64>()
}

/// The first losses as the ledger has them, and what follows from it. Returns also when the last of them was.
fn count(history: &[Vec<f64>]) -> (Losses, f64) {
    let mut times: Vec<f64> = history.iter().flatten().copied().collect();
    times.sort_by(f64::total_cmp);
    let now = times[LEARNED_FROM - 1];
    let unix_ms = |at: f64| START_MS + i64::try_from(Duration::from_secs_f64(at).as_millis()).unwrap();
    let (mut counting, mut reports) = (Counting::default(), Vec::new());
    for (machine, losses) in history.iter().enumerate() {
        // Each loss is the end of a machine, in whose place another boots.
        let losses: Vec<_> = losses.iter().copied().filter(|at| *at <= now).collect();
        for (number, begins) in [0.0].into_iter().chain(losses.iter().copied()).enumerate() {
            let (worker, boot) =
                (WorkerId::new(format!("{machine}-{number}")), format!("{machine}-{number}"));
            counting.add(&Entry::Boot(Boot {
                boot: boot.clone(),
                worker: worker.clone(),
                at_unix_ms: unix_ms(begins),
                machine: Machine::default(),
                seen_unix_ms: None,
                worked_on_unix_ms: None,
            }));
            match losses.get(number) {
                Some(ends) => counting.add(&Entry::Interruption(Box::new(Interruption {
                    worker,
                    boot,
                    machine: Machine::default(),
                    queue: String::new(),
                    at_unix_ms: unix_ms(*ends),
                    jobs: Vec::new(),
                    how: How::Died(Death::default()),
                }))),
                None => {
                    reports.push(WorkerReport {
                        boot,
                        at_unix_ms: unix_ms(now),
                        ..WorkerReport::new(worker)
                    });
                }
            }
        }
    }
    (counting.end(&reports, unix_ms(now)).losses(unix_ms(now)), now)
}

/// The goodput of jobs that are saved at this interval, on all machines from `since` on: of each, for whole times
/// between two losses.
fn goodput(fleet: Fleet, history: &[Vec<f64>], since: f64, interval: Duration) -> f64 {
    let until = since + MEASURED * fleet.between;
    let (mut kept, mut slot) = (0.0, 0.0);
    for losses in history {
        let from = losses.partition_point(|at| *at <= since);
        let lives = losses[from..].windows(2).take_while(|pair| pair[0] <= until);
        for life in lives.map(|pair| pair[1] - pair[0]) {
            slot += life;
            kept += kept_of(fleet, life, interval);
        }
    }
    kept / slot
}

/// The step time that is kept of a time between two losses, as the worker saves: by the time since the last save
/// began, and more often within an interval after a loss: after the first step, and then as [`careful_gap`] says.
fn kept_of(fleet: Fleet, life: f64, interval: Duration) -> f64 {
    let (every, gap) = (interval.as_secs_f64(), careful_gap(fleet.cost()).min(interval).as_secs_f64());
    let (mut at, mut tried, mut kept) = (0.0, 0.0, 0.0);
    loop {
        let after = match at {
            _ if at <= 0.0 => 0.0,
            _ if at < every => gap,
            _ => every,
        };
        // After the first step at whose end a save is due.
        let worked = STEP * ((tried + after - at) / STEP).ceil().max(1.0);
        if at + worked + fleet.cost > life {
            return kept;
        }
        tried = at + worked;
        at = tried + fleet.cost;
        kept += worked;
    }
}

/// The goodput of the best interval that is the same all the time, and that interval.
fn best(fleet: Fleet, history: &[Vec<f64>], since: f64) -> (f64, Duration) {
    let all =
        (0..).map(|number| SHORTEST.mul_f64(1.2_f64.powi(number))).take_while(|every| *every <= LONGEST);
    let all = all.map(|every| (goodput(fleet, history, since, every), every));
    all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

/// A mean with its 95 % interval.
#[derive(Debug, Clone, Copy)]
struct Mean {
    mean: f64,
    half: f64,
}

impl Mean {
    #[expect(clippy::cast_precision_loss, reason = "few seeds")]
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        // 2.09 is Student's for 20 values.
        Self { mean, half: 2.09 * (variance / count).sqrt() }
    }

    fn low(self) -> f64 {
        self.mean - self.half
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ± {:.4}", self.mean, self.half)
    }
}

/// What came of a fleet with an assumption that is wrong by ten times.
struct Measured {
    best: Mean,
    best_every: Duration,
    learned_every: Duration,
    wrong_every: Duration,
    /// The learned interval's goodput as a part of the best's, and how much of the slot time it keeps more than the
    /// interval that follows from the assumption alone.
    ratio: Mean,
    gain: Mean,
}

fn measure(fleet: Fleet, assumed: Losses) -> Measured {
    let wrong_every = young(fleet.cost(), assumed.between());
    let (mut bests, mut ratios, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    let (mut best_every, mut learned_every) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..SEEDS {
        let history = fleet.history(seed);
        let (counted, since) = count(&history);
        assert!(counted.count >= LEARNED_FROM as u64, "{fleet:?}: seed {seed}: {counted:?}");
        let every = young(fleet.cost(), (assumed + counted).between());
        if assumed == ASSUMED_LOSSES {
            assert_eq!(every, CheckpointEvery::Auto.interval(Some(fleet.cost()), counted));
        }
        let (best, at) = best(fleet, &history, since);
        let learned = goodput(fleet, &history, since, every);
        for every in [every, at, wrong_every] {
            assert!(
                SHORTEST < every && every < LONGEST,
                "{fleet:?}: seed {seed}: a bound applies: {every:?}"
            );
        }
        bests.push(best);
        ratios.push(learned / best);
        gains.push(learned - goodput(fleet, &history, since, wrong_every));
        best_every += at / u32::try_from(SEEDS).unwrap();
        learned_every += every / u32::try_from(SEEDS).unwrap();
    }
    let [best, ratio, gain] = [bests, ratios, gains].map(|values| Mean::of(&values));
    Measured { best, best_every, learned_every, wrong_every, ratio, gain }
}

/// Seeds are the same for all rows, and for both assumptions of a row.
#[test]
fn after_twenty_losses_goodput_is_near_the_best_and_above_that_of_an_assumption_wrong_by_ten_times() {
    println!("seeds 0 to {}, means ± 95 %", SEEDS - 1);
    println!(
        "law | between | save | assumed | best | at | learned | as a part of the best | wrong | gain on it"
    );
    for (between, cost) in [(900.0, 2.0), (1_200.0, 8.0), (3_600.0, 4.9)] {
        for law in [Law::Exponential, Law::Weibull(0.7), Law::Weibull(1.5), Law::Waves] {
            for factor in [10.0, 0.1] {
                let fleet = Fleet { law, between, cost };
                let assumed_between = Duration::from_secs_f64(between * factor);
                let vm_ms = u64::try_from(assumed_between.as_millis()).unwrap() * ASSUMED_LOSSES.count;
                let it = measure(fleet, Losses { vm_ms, ..ASSUMED_LOSSES });
                println!(
                    "{law:?} | {between} s | {cost} s | {factor} × | {} | {:.0?} | {:.0?} | {} | {:.0?} | {}",
                    it.best, it.best_every, it.learned_every, it.ratio, it.wrong_every, it.gain
                );
                assert!(1.0 - it.best.mean >= 0.05, "{fleet:?}: the best costs too little to be of use here");
                assert!(it.ratio.low() >= 0.98, "{fleet:?}, {factor} ×: {} of the best", it.ratio);
                assert!(it.gain.low() > 0.0, "{fleet:?}, {factor} ×: {} above the wrong one", it.gain);
            }
        }
    }
}
