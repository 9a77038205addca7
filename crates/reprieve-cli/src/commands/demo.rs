//! `reprieve demo`: runs the demo and prints its results.

use reprieve::Result;
use reprieve_demo::Outcome;

use crate::out::{Out, say};

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    demo: reprieve_demo::DemoArgs,

    /// Prints the numbers as one JSON object, the last line on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: DemoArgs) -> Result<()> {
    let outcome = reprieve_demo::run(args.demo).await?;
    print(&outcome, args.json)?;
    outcome.verdict()
}

fn print(outcome: &Outcome, json: bool) -> Result<()> {
    let text = format!("{}\nSee {}\n", outcome.table, outcome.report.display());
    let mut out = Out::new();
    if json {
        say(text.trim_end());
        out.json(&outcome.summary)?;
        out.text("\n")?;
    } else {
        out.text(&text)?;
    }
    out.flush()
}
