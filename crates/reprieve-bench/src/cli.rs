//! The benchmarks' command line, and their sequence from the first section to the exit code.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::compare::Comparison;
use crate::machine::Machine;
use crate::measure::Measures;
use crate::peers::{Peer, directories};
use crate::report::{Report, now};
use crate::sections::{Bench, Section, say};
use crate::table;

/// Measures the cost of Reprieve, of hand-written SQLite, and of other queues, which it installs.
///
/// A full run takes 45 minutes. Close other programs first: on a busy machine they change the
/// figures.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    after_help = "Exit codes: 0 measured; 1 something could not be measured, or has \
become worse; 2 wrong usage. A missed goal is reported and is not a failure."
)]
struct Cli {
    /// Runs only these sections
    #[arg(long, value_name = "SECTION", value_delimiter = ',', value_enum)]
    only: Vec<Section>,

    /// The number of rounds [default: by section, 1 to 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Runs with small amounts to test the benchmarks; the figures mean nothing
    #[arg(long)]
    quick: bool,

    /// Measures Reprieve only
    #[arg(long)]
    no_peers: bool,

    /// Writes the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Writes the tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Compares with an earlier JSON, and fails when a value of Reprieve is worse by more than 10 %
    /// and by more than the spread of either run's rounds
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,

    /// The directory for peers and stores, on the disk to measure [default: target/bench]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The seed of random times and data [default: a random seed, which is printed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

/// Runs the command.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Ignore a closed pipe.
            let _unread = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(WRONG_USAGE));
        }
    };
    // Read it before the work: a mistyped name should not cost half an hour.
    let before = match cli.compare.as_deref().map(Report::read).transpose() {
        Ok(before) => before,
        Err(error) => {
            say(&format!("bench: {error:#}"));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    match block_on(&cli, before.as_ref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => {
            say(&format!("bench: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn block_on(cli: &Cli, before: Option<&Report>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = bench(cli, before) => done,
            // Dropping the run ends every process that it started.
            pressed = tokio::signal::ctrl_c() => {
                pressed.context("Ctrl-C can't be listened for")?;
                anyhow::bail!("stopped by Ctrl-C; nothing was written");
            }
        }
    })
}

/// Returns true when everything was measured and nothing became worse.
async fn bench(cli: &Cli, before: Option<&Report>) -> Result<bool> {
    let directory = directory(cli.dir.as_deref())?;
    // Remove stores of an earlier run that was killed: they would fill the disk.
    let work = directory.join("work");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("{} can't be removed", work.display()))?;
    }
    fs::create_dir_all(&work)?;
    let (machine, date) = (Machine::look(&work), now());
    let seed = cli.seed.unwrap_or_else(rand::random);
    say(&format!("seed {seed}, stores in {}", work.display()));
    let mut bench = Bench {
        work,
        rounds: cli.rounds.map(usize::from),
        quick: cli.quick,
        peers: Rc::default(),
        storage_peers: Rc::default(),
        random: SmallRng::seed_from_u64(seed),
        measures: Measures::default(),
        not_measured: Vec::new(),
    };
    let sections = sections(&cli.only);
    if !cli.no_peers {
        install(&mut bench, &sections, &directory.join("peers")).await?;
    }
    for section in sections {
        if let Err(error) = bench.run(section).await {
            bench.missed(section.name(), &error);
        }
    }
    let report = Report {
        machine,
        date,
        quick: cli.quick,
        seed,
        peers: bench.peers.iter().chain(&*bench.storage_peers).map(Peer::what).collect(),
        not_measured: bench.not_measured,
        measures: bench.measures.into_vec(),
    };
    publish(cli, &report, before)
}

/// Returns the working directory as an absolute path: peers run in directories of their own.
fn directory(named: Option<&Path>) -> Result<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    let directory = named.unwrap_or(&default);
    fs::create_dir_all(directory).with_context(|| format!("{} can't be made", directory.display()))?;
    Ok(fs::canonicalize(directory)?)
}

/// Returns the requested sections in the usual order.
fn sections(only: &[Section]) -> Vec<Section> {
    use clap::ValueEnum as _;
    let all = Section::value_variants().iter().copied();
    all.filter(|section| only.is_empty() || only.contains(section)).collect()
}

/// Installs the peers that these sections need.
async fn install(bench: &mut Bench, sections: &[Section], installs: &Path) -> Result<()> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let (mut peers, mut storage_peers) = (Vec::new(), Vec::new());
    for source in directories(&fs::canonicalize(&sources).unwrap_or(sources))? {
        let peer = Peer::read(&source, installs)?;
        let (takes_part, with) = if peer.is_on_storage() {
            (sections.iter().any(|section| section.has_storage_peers()), &mut storage_peers)
        } else {
            (sections.iter().any(|section| section.has_peers()), &mut peers)
        };
        if !takes_part {
            continue;
        }
        say(&format!("installing {}", peer.id));
        match peer.install().await {
            Ok(()) => with.push(peer),
            Err(error) => bench.missed(&peer.id, &error.context("it could not be installed")),
        }
    }
    (bench.peers, bench.storage_peers) = (peers.into(), storage_peers.into());
    Ok(())
}

/// Prints the result and writes the requested files.
fn publish(cli: &Cli, report: &Report, before: Option<&Report>) -> Result<bool> {
    if let Some(file) = &cli.json {
        report.write(file)?;
    }
    if let Some(file) = &cli.markdown {
        fs::write(file, table::markdown(report))
            .with_context(|| format!("{} can't be written", file.display()))?;
    }
    let mut shown = table::terminal(report);
    let mut regressed = false;
    if let Some(before) = before {
        if !before.machine.is_like(&report.machine) || before.quick != report.quick {
            say("the earlier run was on another machine, or of another size: they can't be compared well");
        }
        let comparison = Comparison::of(before, report);
        regressed = comparison.has_regressed();
        shown.push('\n');
        shown.push_str(&table::comparison(&comparison));
    }
    std::io::stdout().write_all(shown.as_bytes()).context("the result could not be shown")?;
    Ok(!regressed && report.not_measured.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["bench", "--only", "notice,depth", "--rounds", "2"]).unwrap();
        assert_eq!(sections(&cli.only), [Section::Depth, Section::Notice]);
        assert!(Cli::try_parse_from(["bench", "--rounds", "0"]).is_err());
        assert!(Cli::try_parse_from(["bench", "--only", "speed"]).is_err());
    }

    #[test]
    fn without_a_choice_everything_is_measured_under_its_own_name() {
        use clap::ValueEnum as _;
        let all = sections(&[]);
        assert_eq!(all.len(), Section::value_variants().len());
        for section in all {
            let value = section.to_possible_value().unwrap();
            assert_eq!(section.name(), value.get_name());
        }
    }
}
