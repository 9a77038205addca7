//! Prints what each policy costs on traces and on generated availability, as in docs/planning.md.
//!
//! ```text
//! cargo run --release -p reprieve-plan --example policies -- [WINDOWS] [TRACE…]
//! ```
//!
//! With traces, of any format that [`Series::parse`] reads, only these are used.

#![expect(clippy::print_stdout, reason = "an example that prints a table")]

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use reprieve_plan::availability::{Series, Window};
use reprieve_plan::compare::{Summary, compare};
use reprieve_plan::generated::{Markov, Regimes};
use reprieve_plan::policy::{Greedy, Programme, Uniform};
use reprieve_plan::{Price, Task};

const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;
const WINDOWS: usize = 1000;

/// Work in hours, slack as a percentage of it, how many times the price of Spot a regular machine
/// costs, and the minutes of a move.
const TASKS: [(u64, u64, u64, u64); 8] = [
    (48, 25, 3, 6),
    (24, 10, 3, 6),
    (8, 50, 3, 6),
    (4, 100, 3, 6),
    (8, 50, 10, 6),
    (24, 25, 5, 2),
    (8, 50, 3, 15),
    (2, 50, 4, 3),
];

/// A name, and windows of availability of a length.
type Setting = (String, Box<dyn Fn(u64, usize) -> Vec<Window>>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).peekable();
    let windows = arguments.next_if(|argument| argument.parse::<usize>().is_ok());
    let windows = windows.map_or(Ok(WINDOWS), |windows| windows.parse())?;
    let traces: Vec<String> = arguments.collect();
    let settings = if traces.is_empty() { all_settings()? } else { from_files(&traces)? };
    println!(
        "{:<34} {:>15} {:>15} {:>15} {:>17} {:>6} {:>6}",
        "setting", "greedy", "uniform", "programme", "against better", "bound", "missed"
    );
    for (hours, slack, ratio, minutes) in TASKS {
        println!("work {hours} h, slack {slack} %, price ratio {ratio}, {minutes} min for a move");
        let task = Task { move_ms: minutes * MINUTE_MS, ..task(hours, slack, ratio) };
        print_task(&task, &settings, windows);
    }
    Ok(())
}

/// A job of `hours` that is `ratio` times as expensive on regular machines.
fn task(hours: u64, slack: u64, ratio: u64) -> Task {
    let spot = Price::from_nanos_per_hour(60_000_000);
    let regular = Price::from_nanos_per_hour(60_000_000 * ratio);
    let job_ms = hours * HOUR_MS;
    Task { job_ms, deadline_ms: job_ms * (100 + slack) / 100, ..Task::new(spot, regular) }
}

fn print_task(task: &Task, settings: &[Setting], windows: usize) {
    let programme = Programme::new(task);
    let rows: Vec<_> = settings
        .iter()
        .map(|(name, draw)| {
            (name, compare(task, &[&Greedy, &Uniform, &programme], &draw(task.deadline_ms, windows)))
        })
        .collect();
    for (name, summaries) in &rows {
        print_row(name, summaries);
    }
    let rows_count = f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let columns = rows.first().map_or(0, |(_, summaries)| summaries.len());
    let means = (0..columns).map(|column| Summary {
        mean: rows.iter().map(|(_, summaries)| summaries[column].mean).sum::<f64>() / rows_count,
        missed: rows.iter().map(|(_, summaries)| summaries[column].missed).sum(),
        ..Summary::default()
    });
    print_row("mean", &means.collect::<Vec<_>>());
}

/// Prints mean costs as shares of all regular, and the programme against the better of the others.
fn print_row(name: &str, summaries: &[Summary]) {
    let [greedy, uniform, programme, bound] = summaries else { return };
    print!("  {name:<32}");
    for summary in [greedy, uniform, programme] {
        // The mean of settings has no interval: they are no sample of anything.
        let interval =
            if summary.half_width > 0.0 { format!("± {:.3}", summary.half_width) } else { String::new() };
        print!(" {:>7.3} {interval:<7}", summary.mean);
    }
    let against = (programme.mean / greedy.mean.min(uniform.mean) - 1.0) * 100.0;
    let missed = greedy.missed + uniform.missed + programme.missed;
    println!(" {against:>+15.1} % {:>6.3} {missed:>6}", bound.mean);
}

fn from_files(paths: &[String]) -> Result<Vec<Setting>, Box<dyn Error>> {
    paths.iter().map(|path| from_file(Path::new(path))).collect()
}

fn from_file(path: &Path) -> Result<Setting, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let series = Series::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, Box::new(move |length_ms, count| series.draw_windows(length_ms, count, 1))))
}

fn all_settings() -> Result<Vec<Setting>, Box<dyn Error>> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut settings =
        vec![from_file(&traces.join("aws-g4dn-fleet.csv"))?, from_file(&traces.join("aws-p3-fleet.csv"))?];
    for mean_up in [30, 120, 600] {
        for percent in [5, 10, 25, 50, 75, 90] {
            let chain = Markov { available: f64::from(percent) / 100.0, mean_up_ms: mean_up * MINUTE_MS };
            let name = format!("Markov {percent} %, {mean_up} min at a time");
            settings.push((name, fresh(move |length_ms, seed| chain.series(length_ms, seed))));
        }
    }
    for (scarce, plenty, hours) in [(2, 70, 6), (5, 85, 12), (10, 95, 24), (30, 95, 36)] {
        let regimes = Regimes {
            chains: [
                Markov { available: f64::from(scarce) / 100.0, mean_up_ms: 20 * MINUTE_MS },
                Markov { available: f64::from(plenty) / 100.0, mean_up_ms: 180 * MINUTE_MS },
            ],
            mean_ms: hours * HOUR_MS,
        };
        let name = format!("regimes {scarce}/{plenty} %, {hours} h each");
        settings.push((name, fresh(move |length_ms, seed| regimes.series(length_ms, seed))));
    }
    Ok(settings)
}

/// Windows that each have a series of their own.
fn fresh(series: impl Fn(u64, u64) -> Series + 'static) -> Box<dyn Fn(u64, usize) -> Vec<Window>> {
    Box::new(move |length_ms, count| {
        (0..count as u64).map(|seed| series(length_ms, seed).window(0, length_ms, 1)).collect()
    })
}
