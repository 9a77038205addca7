//! `reprieve plan`: what a batch costs under each strategy, when it is done, and which strategy to take.
//!
//! | file | concept |
//! |---|---|
//! | `args`, `values` | the flags, and how their values are read |
//! | `unused` | flags that would change nothing, which are refused |
//! | `batch` | the jobs, and the number of machines |
//! | `like_batch` | the jobs, as a store has kept them |
//! | `history` | Spot prices over time, from a file |
//! | `market` | a size in a region with its prices |
//! | `online` | sizes and regions with the prices and rates of Azure's services |
//! | `trace` | evictions as they were, from a file |
//! | `simulate` | the plans of all markets |
//! | `answer` | the result as data, for `--json` |
//! | `text`, `page` | the result as text |
//! | `html`, `curves` | the result as a page |

mod answer;
mod args;
mod batch;
mod curves;
mod history;
mod html;
mod like_batch;
mod market;
mod online;
mod page;
mod progress;
mod simulate;
mod text;
mod trace;
mod unused;
mod values;

use std::process::ExitCode;

use reprieve::{Error, ErrorKind, Result, StoreArgs, clock};

use self::answer::{Answer, Assumed, Table, Unplanned};
use self::args::{BatchArgs, FleetArgs, KnownArgs, MarketArgs, OutputArgs, RUNS_DEFAULT};
use self::batch::Batch;
use self::like_batch::LikeBatch;
use self::market::Market;
use self::online::Markets;
use self::simulate::{Planned, simulate};
use self::trace::Trace;
use self::unused::Unused;
use self::values::millis;
use crate::format::plain;
use crate::out::{self, print_stderr};

/// The end of `plan --help`.
const AFTER_HELP: &str = "\
Give --jobs and --job-time, or --like-batch for a batch like the one in the store.
Either --spot-price and --regular-price, or --sizes and --regions, whose prices are asked for.
Money is in US dollars, before your own discounts. Both ends of an eviction rate are simulated; an
unknown rate is not zero. What is assumed stands above the table, with its source.
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
Exit codes: 0 planned, also if the advice is not to use Spot; 1 failed, or a price is missing;
2 wrong usage, a deadline that can't be met, or an unknown size or region.
Data goes to stdout, everything else to stderr.";

/// Plans a batch: what it costs on Spot and regular VMs, when it is done, and what to deploy
///
/// Simulates regular VMs alone and each preset of infra/, with evictions by a rate or by a trace, and
/// advises the cheapest that meets the deadline and the budget, or not to use Spot, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    // The first, because the others take their values away.
    #[command(flatten)]
    _unused: Unused,

    #[command(flatten)]
    batch: BatchArgs,

    #[command(flatten)]
    fleet: FleetArgs,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    market: MarketArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten, next_help_heading = "Store of --like-batch")]
    store: StoreArgs,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        super::log_warnings();
        reprieve::block_on(run(&self)).unwrap_or_else(|error| reprieve::fail(&error))
    }
}

async fn run(args: &Args) -> Result<ExitCode> {
    let (batch, trace) = given(args).await?;
    let rate = args.known.eviction_rate;
    let markets = if args.market.sizes.is_empty() {
        Markets { found: vec![Market::given(&args.known)?], ..Markets::default() }
    } else {
        let vms = |speed| batch.machines(batch.job_ms_at(speed), &args.batch, &args.fleet).0;
        Markets::ask(&args.market, vms).await?
    };
    let is_asked = args.market.sizes.is_empty() || args.market.subscription.is_some();
    if !is_asked && rate.is_none() && trace.is_none() {
        print_stderr(
            "eviction rates are unknown: give --subscription to ask Azure, --eviction-rate, or --trace",
        );
    }
    for note in &markets.notes {
        print_stderr(&plain(note));
    }
    let planned = simulate(args, &batch, trace.as_ref(), &markets.found);
    let answer = answer(args, &batch, planned, markets.problems);
    for problem in &answer.problems {
        print_stderr(&plain(&format!("error: {}", problem.problem)));
    }
    print(args, &answer).await?;
    Ok(ExitCode::from(answer.problems.iter().map(|problem| problem.code).max().unwrap_or(0)))
}

/// The batch, and evictions as they were: by the flags, or by what a store has kept.
async fn given(args: &Args) -> Result<(Batch, Option<Trace>)> {
    let rate = args.known.eviction_rate;
    let trace = args.known.trace.as_deref().map(|file| Trace::read(file, rate)).transpose()?;
    if !args.batch.like_batch {
        return Ok((Batch::given(&args.batch)?, trace));
    }
    let LikeBatch { batch, machines } = LikeBatch::read(&args.store, &args.batch, &args.fleet).await?;
    // What was given comes first.
    let ledger =
        machines.filter(|machines| rate.is_none() && machines.rate().is_some()).map(Trace::of_ledger);
    Ok((batch, trace.or(ledger)))
}

/// Prints the answer, or writes its page. Without a table there is nothing to show but as JSON.
async fn print(args: &Args, answer: &Answer) -> Result<()> {
    let OutputArgs { json, html, .. } = &args.output;
    if answer.tables.is_empty() && !json {
        return Ok(());
    }
    let Some(file) = html else { return out::answer(*json, answer, || page::page(answer)) };
    tokio::fs::write(file, html::page(answer)).await.map_err(|error| {
        let message = format!("{} can't be written: {error}; name another file", file.display());
        Error::new(ErrorKind::Invalid, "write the plan", message).with_source(error)
    })?;
    out::answer(false, answer, || format!("see {}\n", file.display()))
}

/// Puts the plans in order, and what all of them assume above them.
fn answer(args: &Args, batch: &Batch, planned: Vec<Planned>, problems: Vec<Unplanned>) -> Answer {
    let mut answer = Answer {
        at_unix_ms: clock::unix_millis(),
        jobs: batch.jobs,
        deadline_ms: args.batch.deadline.map(millis),
        budget_usd: args.batch.budget_usd,
        runs: args.output.runs.unwrap_or(RUNS_DEFAULT),
        seed: args.output.seed,
        assumptions: Vec::new(),
        tables: Vec::new(),
        problems,
    };
    for planned in planned {
        match planned {
            Ok(table) => answer.tables.push(table),
            Err(problem) => answer.problems.push(problem),
        }
    }
    answer.tables.sort_by(|a, b| {
        let ((a_late, a), (b_late, b)) = (a.rank(), b.rank());
        a_late.cmp(&b_late).then(a.total_cmp(&b))
    });
    answer.assumptions = shared(&answer.tables);
    for table in &mut answer.tables {
        table.assumptions.retain(|it| !answer.assumptions.contains(it));
    }
    answer
}

/// The assumptions of all tables.
fn shared(tables: &[Table]) -> Vec<Assumed> {
    let Some((first, others)) = tables.split_first() else { return Vec::new() };
    let is_shared = |it: &&Assumed| others.iter().all(|other| other.assumptions.contains(it));
    first.assumptions.iter().filter(is_shared).cloned().collect()
}
