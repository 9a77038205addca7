//! `reprieve redrive`: sends dead-lettered jobs again.

use std::fmt::Write as _;

use reprieve::{Client, Error, ErrorKind, JobId, Redrive, Redriven, Result, StoreArgs};

use crate::out::{answer, say};

#[derive(Debug, clap::Args)]
pub(crate) struct RedriveArgs {
    /// The job to redrive, as `reprieve status` and the log name it
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,

    /// Redrives every job in the poison queue
    #[arg(long)]
    all: bool,

    /// Prints {"jobs": [...], "unreadable": N} instead of one id per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) async fn run(args: RedriveArgs) -> Result<()> {
    let which = match &args.id {
        Some(id) => Redrive::Job(JobId::parse(id.as_str())?),
        None => Redrive::All,
    };
    let client = Client::open_existing(&args.store).await?;
    let redriven = client.store().redrive(&which).await?;
    if redriven.unreadable > 0 && args.all {
        say(&match redriven.unreadable {
            1 => "1 message in the poison queue can't be read as a job, and stays there".to_owned(),
            count => format!("{count} messages in the poison queue can't be read as jobs, and stay there"),
        });
    }
    if let (Some(id), true) = (&args.id, redriven.jobs.is_empty()) {
        let message = format!(
            "job {id} is not in the poison queue of {}; `reprieve status` lists what is there",
            client.queue()
        );
        return Err(Error::new(ErrorKind::NotFound, "redrive a job", message));
    }
    answer(args.json, &redriven, || page(&redriven))
}

/// One id per line.
fn page(redriven: &Redriven) -> String {
    let mut page = String::new();
    for job in &redriven.jobs {
        // Writing to a string can't fail.
        let _infallible = writeln!(page, "{job}");
    }
    page
}
