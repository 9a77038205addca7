//! `reprieve blobs`: lists and prints results, outputs and inputs, and stores inputs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use reprieve::{BlobName, Client, Error, ErrorKind, Result, StoreArgs};
use tokio::fs::File;
use tokio::io::AsyncRead;

use super::{EXIT_CODES, block_on, log_warnings};
use crate::out::{Out, answer};

/// Lists and prints blobs: results, outputs and inputs; stores inputs
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Prints the names of blobs in order, one per line
    #[command(after_help = EXIT_CODES)]
    List(ListArgs),
    /// Prints a blob's bytes, such as a result's JSON
    #[command(after_help = EXIT_CODES)]
    Get(GetArgs),
    /// Stores a file of any size as an input for jobs, in place of a former one of the name
    #[command(after_help = EXIT_CODES)]
    Put(PutArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The beginning of the names, such as results/
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Prints the names as a JSON array on one line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The blob's name, such as results/JOB.json
    name: String,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PutArgs {
    /// The blob's name, such as films/12.mov
    name: String,

    /// The file; - for standard input
    file: PathBuf,

    #[command(flatten)]
    store: StoreArgs,
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        match self {
            Self::List(args) => block_on(list(args)),
            Self::Get(args) => block_on(get(args)),
            Self::Put(args) => block_on(put(args)),
        }
    }
}

async fn list(args: ListArgs) -> Result<()> {
    let client = Client::open_existing(&args.store).await?;
    let names = client.store().blobs.list(&args.prefix).await?;
    let names: Vec<&str> = names.iter().map(BlobName::as_str).collect();
    answer(args.json, &names, || {
        names.iter().fold(String::new(), |mut page, name| {
            // Writing to a string can't fail.
            let _infallible = writeln!(page, "{name}");
            page
        })
    })
}

async fn get(args: GetArgs) -> Result<()> {
    let name = BlobName::parse(args.name)?;
    let client = Client::open_existing(&args.store).await?;
    let Some(mut blob) = client.store().open_blob(&name).await? else {
        let message = format!("there is no blob {name}; `reprieve blobs list` prints the names");
        return Err(Error::new(ErrorKind::NotFound, "read a blob", message));
    };
    let mut out = Out::new();
    while let Some(bytes) = blob.next().await? {
        out.bytes(&bytes)?;
        if out.closed() {
            break;
        }
    }
    out.flush()
}

async fn put(PutArgs { name, file, store }: PutArgs) -> Result<()> {
    let content: Box<dyn AsyncRead + Send + Unpin> = if file == Path::new("-") {
        Box::new(tokio::io::stdin())
    } else {
        let opened = File::open(&file).await.map_err(|error| {
            let message = format!("{} can't be opened: {error}", file.display());
            Error::new(ErrorKind::Invalid, "write an input", message)
        });
        Box::new(opened?)
    };
    let client = Client::open(&store).await?;
    client.producer().write_input(&name, content).await.map(drop)
}
