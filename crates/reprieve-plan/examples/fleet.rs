//! Measures the simulation of fleets: seven strategies, each with many seeds, on this machine.
//!
//! `cargo run --release -p reprieve-plan --example fleet -- [SEEDS] [JOBS] [MACHINES]`

#![expect(clippy::print_stdout, reason = "an example prints its result")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::error::Error;
use std::time::Instant;

use reprieve_plan::Price;
use reprieve_plan::availability::{lives, losses};
use reprieve_plan::fleet::{Bursts, Evictions, Mix, Model, Notice, Strategy, Summary};
use reprieve_plan::lifetime::{self, Lifetime, Resampled};

const MINUTE_MS: u64 = 60_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let (seeds, jobs, machines) = (next(200)?, next(2_000)?, next(100)?);
    let trace = losses(include_str!("../traces/aws-p3-fleet.csv"))?;
    let machine_lives = lives(include_str!("../traces/gcp-lifetimes.csv"))?;
    println!("laws of the lives of gcp-lifetimes.csv, those included that were not seen to end:");
    println!("  {:?}", lifetime::exponential(&machine_lives)?);
    println!("  {:?}", lifetime::weibull(&machine_lives)?);
    let worlds = [
        ("each machine for itself, 10 % an hour", Evictions::Each(Lifetime::from_hourly_rate(0.1))),
        ("as the p3 fleet lost machines", Evictions::Together(Bursts::new(trace.clone()))),
        (
            "as machines of gcp-lifetimes.csv lived",
            Evictions::Each(Lifetime::Resampled(Resampled::new(&machine_lives))),
        ),
        (
            "as the p3 fleet lost machines, at 10 % an hour",
            Evictions::Together(Bursts::new(trace).at_hourly_rate(0.1)),
        ),
    ];
    println!("{jobs} jobs of 40 min on {machines} machines, {seeds} seeds");
    for (name, evictions) in worlds {
        print_world(name, &model(jobs, evictions), machines, seeds);
    }
    Ok(())
}

/// Prices of a D4s v5 in West Europe as an example: Spot at a fifth.
fn model(jobs: u32, evictions: Evictions) -> Model {
    let (spot, regular) = (Price::from_nanos_per_hour(46_000_000), Price::from_nanos_per_hour(230_000_000));
    let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
    let mut model = Model::new(jobs, 40 * MINUTE_MS, spot, regular);
    model.work.save_ms = 2_000;
    model.work.restore_ms = 10_000;
    model.machines.boot_ms = (2 * MINUTE_MS, 4 * MINUTE_MS);
    model.market.disks = Price::from_nanos_per_hour(3_300_000);
    model.market.evictions = evictions;
    model.market.notice = Some(Notice { lead_ms: 30_000, share: 0.9, blind_ms: 2 * MINUTE_MS });
    model.market.refused = 0.1;
    model
}

fn print_world(name: &str, model: &Model, machines: u32, seeds: u32) {
    let tenth = machines.div_ceil(10);
    let strategies = [
        Strategy::all_regular(machines),
        Strategy::steady(machines),
        Strategy::steady_fleet(machines),
        Strategy::elastic(machines),
        Strategy::balanced(machines, Mix { base: tenth, percent_above: 0 }),
        Strategy::balanced(machines, Mix { base: tenth, percent_above: 25 }).named("balanced, 25 % above"),
        Strategy::swap(machines, tenth, 3),
    ];
    let began = Instant::now();
    println!("{name}");
    println!(
        "  {:<22} {:>16} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "strategy", "cost, mean USD", "p90", "p50, min", "p95, min", "evictions", "lost, h"
    );
    for strategy in strategies {
        let summary = Summary::of_runs(model, &strategy, 0..u64::from(seeds), None, || {});
        print_row(&strategy.name, &summary);
    }
    println!("  {:.2} s on one core", began.elapsed().as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn print_row(name: &str, summary: &Summary) {
    let (cost, finish) = (summary.cost_micros, summary.finished_ms);
    println!(
        "  {name:<22} {:>8.2} ± {:>5.2} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
        cost.mean / 1e6,
        cost.half_width / 1e6,
        cost.p90 as f64 / 1e6,
        finish.p50 as f64 / 60_000.0,
        finish.p95 as f64 / 60_000.0,
        summary.evictions,
        summary.time.lost_ms as f64 / 3_600_000.0,
    );
}
