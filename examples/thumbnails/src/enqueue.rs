//! `thumbnails enqueue`: asks for the thumbnails of a directory's pictures, which it stores as inputs, or of pictures that are
//! in the store already; a job per batch.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures_util::stream::{self, StreamExt};
use reprieve::{Client, ErrorKind, JobId, NewJob, Producer, StoreArgs};

use crate::find::{self, Picture, Skipped};
use crate::job::{Batch, Thumbnails, input};
use crate::say::{Bar, counted, note};
use crate::wait;

/// How many pictures are on their way at once: a cloud store answers each in tens of milliseconds.
const UPLOADS_AT_ONCE: usize = 8;

/// What to make thumbnails of.
#[derive(Debug, clap::Args)]
pub(crate) struct EnqueueArgs {
    /// The directory; it is searched with all that is below it for JPEG, PNG, WebP and GIF files. Links are not followed
    #[arg(required_unless_present = "uploaded", conflicts_with = "uploaded")]
    dir: Option<PathBuf>,

    /// Instead of a directory: the pictures that are in the store already, under photos/, or with FOLDER under photos/FOLDER/
    ///
    /// They may have been put there with any tool, such as
    /// `az storage blob upload-batch --destination reprieve/photos --source .`
    /// where reprieve is the container.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    uploaded: Option<String>,

    /// The side of the square that thumbnails fit into, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,

    /// How many pictures make a job: what one machine does in a row
    #[arg(long, value_name = "PICTURES", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,

    /// Waits for the thumbnails and says what became of each picture
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    jobs: Vec<JobId>,
    pictures: usize,
    skipped: Vec<Skipped>,
}

/// Runs the command; true when every picture that was found could be asked for and, with `--wait`, has a thumbnail.
pub(crate) async fn enqueue(args: EnqueueArgs) -> anyhow::Result<bool> {
    let (client, asked) = match &args.dir {
        Some(dir) => of_directory(dir, &args).await?,
        None => of_uploads(args.uploaded.as_deref().unwrap_or_default(), &args).await?,
    };
    let Asked { jobs, pictures, skipped } = asked;
    for Skipped { path, reason } in &skipped {
        note(&format!("left out {}: {reason}", path.display()));
    }
    note(&format!("asked for {} in {}", counted(pictures, "thumbnail"), counted(jobs.len(), "job")));
    let made = if args.wait { wait::until_made(client.store(), jobs, pictures).await? } else { true };
    Ok(made && skipped.is_empty())
}

/// Stores a directory's pictures, and asks for each batch as soon as it is stored.
async fn of_directory(dir: &Path, args: &EnqueueArgs) -> anyhow::Result<(Client, Asked)> {
    let found = find::pictures(dir).with_context(|| format!("can't read {}", dir.display()))?;
    let client = Client::open(&args.store).await?;
    let producer = client.producer();
    let mut asked = Asked { skipped: found.skipped, ..Asked::default() };
    let mut bar = Bar::new("storing", found.pictures.len());
    for batch in found.pictures.chunks(args.batch.into()) {
        let pictures = store_all(&producer, batch, &mut asked.skipped).await?;
        asked.pictures += pictures.len();
        asked.jobs.extend(ask(&producer, pictures, args.size).await?);
        bar.set(asked.pictures, "");
    }
    bar.clear();
    Ok((client, asked))
}

/// Asks for the pictures that somebody has uploaded.
async fn of_uploads(folder: &str, args: &EnqueueArgs) -> anyhow::Result<(Client, Asked)> {
    let client = Client::open(&args.store).await?;
    let (pictures, skipped) = find::uploaded(client.store().blobs.as_ref(), folder).await?;
    if pictures.is_empty() && skipped.is_empty() {
        bail!("there are no pictures under {} in the store", find::uploads(folder));
    }
    let mut asked = Asked { skipped, pictures: pictures.len(), ..Asked::default() };
    for batch in pictures.chunks(args.batch.into()) {
        asked.jobs.extend(ask(&client.producer(), batch.to_vec(), args.size).await?);
    }
    Ok((client, asked))
}

/// Stores a batch and returns the names of its pictures, without those that can't be read or are too large.
async fn store_all(
    producer: &Producer,
    batch: &[Picture],
    skipped: &mut Vec<Skipped>,
) -> anyhow::Result<Vec<String>> {
    let mut storing = stream::iter(batch).map(|picture| store(producer, picture)).buffered(UPLOADS_AT_ONCE);
    let mut names = Vec::with_capacity(batch.len());
    while let Some(stored) = storing.next().await {
        match stored? {
            Ok(name) => names.push(name),
            Err(one) => skipped.push(one),
        }
    }
    Ok(names)
}

/// Stores one picture. The inner error is the picture's own fault, the outer one the store's.
async fn store(producer: &Producer, picture: &Picture) -> anyhow::Result<Result<String, Skipped>> {
    let skip = |reason: String| Ok(Err(Skipped { path: picture.path.clone(), reason }));
    let bytes = match tokio::fs::read(&picture.path).await {
        Ok(bytes) => bytes,
        Err(error) => return skip(error.to_string()),
    };
    match producer.put_input(&input(&picture.name), bytes).await {
        Ok(()) => Ok(Ok(picture.name.clone())),
        Err(error) if error.kind() == ErrorKind::TooLarge => skip(error.to_string()),
        Err(error) => Err(error).with_context(|| format!("can't store {}", picture.path.display())),
    }
}

/// Enqueues the job of a batch whose pictures are stored.
async fn ask(producer: &Producer, pictures: Vec<String>, size: u32) -> anyhow::Result<Vec<JobId>> {
    if pictures.is_empty() {
        return Ok(Vec::new());
    }
    Ok(producer.enqueue(vec![NewJob::of::<Thumbnails>(&Batch { size, pictures })?]).await?)
}
