//! Runs the simulated fleet: many seeds, or one seed with its history.

use std::io::{self, Write};
use std::process::ExitCode;

use reprieve_sim::batch::{self, Compared, Details, Row};
use reprieve_sim::fleet::{self, Run};
use reprieve_sim::survival::{self, AGES_H, HELD_PERCENT};

const USAGE: &str = "\
Usage: simulate [--seeds N] [--from S] [--replay S] [--keep-going] [--survival N] [--plan [TEXT] [--runs N]]

  --seeds N      how many seeds to run; default 1000
  --from S       the first one; default 0
  --replay S     one seed, with all that happens in it
  --keep-going   also after a violation
  --survival N   instead: N fleets with a known law, in nine of ten of which the ledger's band must hold it
  --plan TEXT    instead: the model of a plan against real workers, in the scenarios whose names contain TEXT;
                 in all of them without it; `tuning` and `held-out` are the two halves
  --runs N       how often each is done; default 200

Exit codes: 0 no promise was broken, 1 one was, 2 wrong usage.
";

/// The command line's options.
#[derive(Debug, Clone)]
struct Asked {
    seeds: u64,
    from: u64,
    replay: Option<u64>,
    keep_going: bool,
    survival: Option<u64>,
    plan: Option<String>,
    runs: u32,
}

fn read(arguments: impl Iterator<Item = String>) -> Option<Asked> {
    let mut asked = Asked {
        seeds: 1_000,
        from: 0,
        replay: None,
        keep_going: false,
        survival: None,
        plan: None,
        runs: 200,
    };
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--plan" {
            asked.plan = Some(arguments.next_if(|next| !next.starts_with("--")).unwrap_or_default());
            continue;
        }
        let mut number = || arguments.next()?.replace('_', "").parse().ok();
        match argument.as_str() {
            "--seeds" => asked.seeds = number()?,
            "--from" => asked.from = number()?,
            "--replay" => asked.replay = Some(number()?),
            "--runs" => {
                asked.runs = number().and_then(|runs| u32::try_from(runs).ok()).filter(|runs| *runs > 0)?;
            }
            "--survival" => asked.survival = Some(number()?),
            "--keep-going" => asked.keep_going = true,
            _ => return None,
        }
    }
    Some(asked)
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let Some(asked) = read(std::env::args().skip(1)) else {
        // If this write fails, there is no other place to report it.
        let _written = out.write_all(USAGE.as_bytes());
        return ExitCode::from(2);
    };
    match simulate(&asked, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the seeds, and returns whether all promises were kept.
fn simulate(asked: &Asked, out: &mut impl Write) -> io::Result<bool> {
    if let Some(seed) = asked.replay {
        let run = fleet::run(seed).map_err(io::Error::other)?;
        show(&run, out)?;
        return Ok(run.violations.is_empty());
    }
    let began = tokio::time::Instant::now();
    if let Some(fleets) = asked.survival {
        let is_kept = survive(asked.from, fleets, out)?;
        writeln!(out, "took {} ms", began.elapsed().as_millis())?;
        return Ok(is_kept);
    }
    if let Some(plan) = &asked.plan {
        let is_kept = compare(plan, asked.runs, out)?;
        writeln!(out, "took {} ms", began.elapsed().as_millis())?;
        return Ok(is_kept);
    }
    let mut broken = 0_u64;
    for seed in asked.from..asked.from.saturating_add(asked.seeds) {
        let run = fleet::run(seed).map_err(io::Error::other)?;
        if run.violations.is_empty() {
            continue;
        }
        broken += 1;
        if !asked.keep_going {
            show(&run, out)?;
            writeln!(out, "took {} ms", began.elapsed().as_millis())?;
            return Ok(false);
        }
        for violation in &run.violations {
            writeln!(out, "seed {seed}: {violation}")?;
        }
    }
    writeln!(out, "{} seeds from {}: {broken} broke a promise", asked.seeds, asked.from)?;
    writeln!(out, "took {} ms", began.elapsed().as_millis())?;
    Ok(broken == 0)
}

/// Plays fleets with a known law on all cores, and returns whether the ledger's band holds it often enough.
fn survive(from: u64, fleets: u64, out: &mut impl Write) -> io::Result<bool> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = |first: u64| -> io::Result<[usize; AGES_H.len()]> {
        let mut held = [0; AGES_H.len()];
        for seed in (first..from.saturating_add(fleets)).step_by(cores) {
            let holds = survival::holds(seed).map_err(io::Error::other)?;
            held.iter_mut().zip(holds).for_each(|(held, holds)| *held += usize::from(holds));
        }
        Ok(held)
    };
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = (from..).take(cores).map(|first| scope.spawn(move || count(first))).collect();
        let panicked = |_| io::Error::other("a fleet could not be played");
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect::<io::Result<Vec<_>>>()
    })?;
    let fleets = usize::try_from(fleets).map_err(io::Error::other)?;
    let mut is_kept = true;
    for (at, hours) in AGES_H.iter().enumerate() {
        let held: usize = counted.iter().map(|held| held[at]).sum();
        is_kept &= held * 100 >= fleets * HELD_PERCENT;
        writeln!(out, "at {hours} h the band holds the true share in {held} of {fleets} fleets")?;
    }
    Ok(is_kept)
}

/// Compares the model of a plan with real workers on one core, and returns whether they are close in 18 of 20
/// scenarios.
fn compare(wanted: &str, runs: u32, out: &mut impl Write) -> io::Result<bool> {
    let (mut rows, mut close, mut all) = (Vec::new(), 0, 0);
    for scenario in batch::all().map_err(io::Error::other)? {
        let half = if scenario.is_held_out { "held-out" } else { "tuning" };
        if wanted != half && !scenario.name.contains(wanted) {
            continue;
        }
        let began = tokio::time::Instant::now();
        let compared = Compared::new(&scenario, runs).map_err(io::Error::other)?;
        writeln!(out, "{half}: {} ({:.1} s)", scenario.name, began.elapsed().as_secs_f64())?;
        write!(out, "{}", Details(&compared))?;
        out.flush()?;
        rows.push(Row(&scenario, &compared).to_string());
        (close, all) = (close + usize::from(compared.is_within()), all + 1);
    }
    writeln!(out, "\n{}\n{}\n\n{close} of {all} within 10 %", batch::HEAD, rows.join("\n"))?;
    Ok(close * 20 >= all * 18)
}

/// Prints a run: its plan, its history, and its violations.
fn show(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let plan = &run.plan;
    writeln!(
        out,
        "seed {}: lease {:?}, budget {:?}, interval {:?}, {} shards, machines with {:?} slots, old {:?}, calm at {:?}",
        plan.seed, plan.lease, plan.budget, plan.interval, plan.shards, plan.machines, plan.old, plan.calm
    )?;
    for job in &plan.jobs {
        writeln!(out, "{job:?}")?;
    }
    for (at, action) in &plan.actions {
        writeln!(out, "planned {:>10.3}s {action:?}", at.as_secs_f64())?;
    }
    for event in run.history.events() {
        writeln!(out, "{event}")?;
    }
    for violation in &run.violations {
        writeln!(out, "BROKEN {violation}")?;
    }
    writeln!(out, "seed {}: {} broken promises", plan.seed, run.violations.len())
}
