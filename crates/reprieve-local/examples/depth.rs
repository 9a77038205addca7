//! Measures that the store does not slow down as its queue gets longer: what one cycle (send, receive, renew, complete)
//! costs with a thousand, a hundred thousand and a million messages waiting, and how much more that is than with the
//! fewest. Takes about a minute:
//!
//! ```text
//! cargo run --release -p reprieve-local --example depth [power-loss|process]
//! ```
//!
//! The three stores take turns, several times, and medians are compared, so that whatever else the machine does
//! meanwhile slows all of them.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Duration;

use reprieve_core::WorkerId;
use reprieve_core::ports::{NewMessage, Store};
use reprieve_local::{Address, LocalStore, Options, QueueName};
use tokio::time::Instant;

type Failed = Box<dyn std::error::Error + Send + Sync>;

const DEPTHS: [u64; 3] = [1_000, 100_000, 1_000_000];
const ROUNDS: usize = 7;
const CYCLES_ALONE: u32 = 1_000;
const TASKS: u32 = 16;
const CYCLES_EACH: u32 = 500;
const LEASE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let durability = std::env::args().nth(1).unwrap_or_else(|| "power-loss".to_owned());
    let directory = tempfile::tempdir_in(".")?;
    let mut benches = Vec::new();
    for depth in DEPTHS {
        let path = directory.path().join(format!("{depth}.db"));
        let address: Address = format!("sqlite:{}?durability={durability}", path.display()).parse()?;
        let options = Options::new(QueueName::parse("depth")?).owned_by(WorkerId::unique());
        let store = LocalStore::open(&address.path, options.durability(address.durability)).await?.store();
        for _ in (0..depth).step_by(1_000) {
            store.queue.send(vec![message(); 1_000]).await?;
        }
        benches.push(Bench { depth, store, alone: Vec::new(), together: Vec::new(), renewals: Vec::new() });
    }
    for _ in 0..ROUNDS {
        for bench in &mut benches {
            bench.round().await?;
        }
    }

    println!("durability {durability}; 1 cycle = send + receive + renew + complete, bodies of 200 bytes");
    println!("   queued  alone, µs/cycle  of 16 tasks, µs/cycle  renewal p50, p99 of 16, µs  counting, ms");
    for bench in &mut benches {
        let counting = Instant::now();
        bench.store.queue.depth().await?;
        println!(
            "{:>9}  {:>15.0}  {:>21.1}  {:>14.0} {:>10.0}  {:>12.1}",
            bench.depth,
            quantile(&mut bench.alone, 0.5),
            quantile(&mut bench.together, 0.5),
            quantile(&mut bench.renewals, 0.5),
            quantile(&mut bench.renewals, 0.99),
            counting.elapsed().as_secs_f64() * 1e3
        );
    }
    if let [first, .., last] = &mut benches[..] {
        println!(
            "a million against a thousand: {:.2} times the cost alone, {:.2} times together",
            quantile(&mut last.alone, 0.5) / quantile(&mut first.alone, 0.5),
            quantile(&mut last.together, 0.5) / quantile(&mut first.together, 0.5)
        );
    }
    Ok(())
}

/// A store with so many messages waiting, and what was measured there, in microseconds.
struct Bench {
    depth: u64,
    store: Store,
    alone: Vec<f64>,
    together: Vec<f64>,
    renewals: Vec<f64>,
}

impl Bench {
    /// Cycles one after the other, and then sixteen at a time, whose operations are committed together.
    async fn round(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        for _ in 0..CYCLES_ALONE {
            cycle(&self.store).await?;
        }
        self.alone.push(micros(begun) / f64::from(CYCLES_ALONE));

        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let store = self.store.clone();
            tasks.spawn(async move {
                let mut renewals = Vec::new();
                for _ in 0..CYCLES_EACH {
                    renewals.push(cycle(&store).await?);
                }
                Ok::<_, Failed>(renewals)
            });
        }
        while let Some(done) = tasks.join_next().await {
            self.renewals.extend(done??);
        }
        self.together.push(micros(begun) / f64::from(TASKS * CYCLES_EACH));
        Ok(())
    }
}

/// Returns how long the renewal took.
async fn cycle(store: &Store) -> Result<f64, Failed> {
    store.queue.send(vec![message()]).await?;
    let delivery = store.queue.receive(1, LEASE).await?.pop().ok_or("the queue is empty")?;
    let begun = Instant::now();
    let receipt = store.queue.renew(&delivery.receipt, LEASE).await?;
    let renewal = micros(begun);
    store.queue.complete(&receipt).await?;
    Ok(renewal)
}

fn message() -> NewMessage {
    NewMessage { body: vec![b'x'; 200], delay: Duration::ZERO }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let index = (values.len() as f64 * at) as usize;
    values[index.min(values.len() - 1)]
}
