//! `reprieve clean`: removes from the store what nothing needs any more.

use std::process::ExitCode;

use reprieve::retention::{Position, Removed};
use reprieve::{CleanArgs, Client, Result};

use super::{EXIT_CODES, block_on, log_warnings};
use crate::format::{bytes, count, list};
use crate::out::{answer, print_stderr};

/// Removes expired results and reports, and leftovers of finished jobs
///
/// Workers do the same once a day, when they are idle. Nothing that was written in the last 8 days
/// is removed, and without --keep-unfinished nothing of a job that waits, runs or is in the poison
/// queue.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Prints what would be removed, and removes nothing
    #[arg(long)]
    dry_run: bool,

    /// Prints the numbers as JSON on one line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    clean: CleanArgs,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    let cleaner = Client::cleaner(&args.clean).await?.dry_run(args.dry_run);
    let (mut removed, mut position) = (Removed::default(), Some(Position::default()));
    while let Some(at) = position {
        let part = cleaner.clean(&at).await.inspect_err(|_| {
            if !removed.is_nothing() {
                print_stderr(&format!("until the failure: {}", sentence(&removed, args.dry_run)));
            }
        })?;
        removed += part.removed;
        position = part.next;
    }
    answer(args.json, &removed, || sentence(&removed, args.dry_run) + "\n")
}

fn sentence(removed: &Removed, dry_run: bool) -> String {
    if removed.is_nothing() {
        return "nothing to remove".to_owned();
    }
    let counts = [
        (removed.arguments, "argument blob"),
        (removed.records, "record"),
        (removed.payloads, "payload"),
        (removed.results, "result"),
        (removed.drains, "drain report"),
        (removed.marks, "mark"),
        (removed.ledger, "ledger record"),
    ];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let counts: Vec<_> = counts.map(|(number, one)| count(number, one)).collect();
    let counts: Vec<_> = counts.iter().map(String::as_str).collect();
    let did = if dry_run { "would remove" } else { "removed" };
    format!("{did} {}: {}", list(&counts), bytes(removed.bytes))
}
