//! `reprieve demo`: runs the demo and prints its results.

use std::process::ExitCode;

use reprieve::Result;
use reprieve_demo::Outcome;

use super::{EXIT_CODES, block_on};
use crate::out::{Out, print_stderr};

/// Renders pictures on VMs that are evicted and killed, and shows that no work is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    demo: reprieve_demo::DemoArgs,

    /// Prints the results as one JSON object, the last line on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
}

/// A VM of the demo
#[derive(Debug, clap::Args)]
pub(crate) struct DemoWorker {
    #[command(flatten)]
    vm: reprieve_demo::VmArgs,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        block_on(async {
            let outcome = reprieve_demo::run(self.demo).await?;
            print(&outcome, self.json)?;
            outcome.verdict()
        })
    }
}

impl DemoWorker {
    /// Works outside any runtime, because a worker has runtimes of its own.
    pub(crate) fn run(self) -> ExitCode {
        reprieve_demo::work(self.vm)
    }
}

fn print(outcome: &Outcome, json: bool) -> Result<()> {
    let text = format!("{}\nSee {}\n", outcome.table, outcome.report.display());
    let mut out = Out::new();
    if json {
        print_stderr(text.trim_end());
        out.json(&outcome.summary)?;
        out.text("\n")?;
    } else {
        out.text(&text)?;
    }
    out.flush()
}
