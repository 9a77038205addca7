//! `thumbnails enqueue`: enqueues a job for each batch of pictures. It uploads the pictures of a
//! directory first; others are already in the store.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures_util::stream::{self, StreamExt};
use reprieve::{Client, ErrorKind, JobId, NewJob, Producer, StoreArgs};

use crate::find::{self, Picture, Skipped};
use crate::job::{Batch, Thumbnails, input};
use crate::terminal::{Bar, counted, note};
use crate::wait;

/// The number of concurrent uploads. A cloud store takes tens of milliseconds for each.
const CONCURRENT_UPLOADS: usize = 8;

/// The arguments of `thumbnails enqueue`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnqueueArgs {
    /// A directory, searched recursively for JPEG, PNG, WebP and GIF files; symbolic links are not
    /// followed
    #[arg(required_unless_present = "uploaded", conflicts_with = "uploaded")]
    dir: Option<PathBuf>,

    /// Uses the pictures already in the store under photos/, or under photos/FOLDER/, instead of a
    /// directory
    ///
    /// Upload them with any tool, for example `az storage blob upload-batch --destination
    /// reprieve/photos --source .`, where reprieve is the container.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    uploaded: Option<String>,

    /// The maximum width and height of a thumbnail, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,

    /// The number of pictures per job; one machine processes them in order
    #[arg(long, value_name = "PICTURES", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,

    /// Waits until all jobs have ended, and lists the pictures without a thumbnail
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// The enqueued jobs.
#[derive(Debug, Default)]
struct Enqueued {
    jobs: Vec<JobId>,
    /// The number of pictures in all jobs.
    pictures: usize,
    skipped: Vec<Skipped>,
}

/// Runs the command. Returns whether every picture found was enqueued and, with `--wait`, has a
/// thumbnail.
pub(crate) async fn enqueue(args: EnqueueArgs) -> anyhow::Result<bool> {
    let (client, enqueued) = match &args.dir {
        Some(dir) => enqueue_directory(dir, &args).await?,
        None => enqueue_uploaded(args.uploaded.as_deref().unwrap_or_default(), &args).await?,
    };
    let Enqueued { jobs, pictures, skipped } = enqueued;
    for Skipped { path, reason } in &skipped {
        note(&format!("skipped {}: {reason}", path.display()));
    }
    note(&format!("enqueued {} for {}", counted(jobs.len(), "job"), counted(pictures, "picture")));
    let complete = if args.wait { wait::wait(client.store(), jobs, pictures).await? } else { true };
    Ok(complete && skipped.is_empty())
}

/// Uploads the pictures of a directory, and enqueues each batch as soon as it is uploaded.
async fn enqueue_directory(dir: &Path, args: &EnqueueArgs) -> anyhow::Result<(Client, Enqueued)> {
    let found = find::pictures(dir).with_context(|| format!("failed to read {}", dir.display()))?;
    let client = Client::open(&args.store).await?;
    let producer = client.producer();
    let mut enqueued = Enqueued { skipped: found.skipped, ..Enqueued::default() };
    let mut bar = Bar::new("uploading", found.pictures.len());
    for batch in found.pictures.chunks(args.batch.into()) {
        let pictures = upload_all(&producer, batch, &mut enqueued.skipped).await?;
        enqueued.pictures += pictures.len();
        enqueued.jobs.extend(enqueue_batch(&producer, pictures, args.size).await?);
        bar.set(enqueued.pictures, "");
    }
    bar.clear();
    Ok((client, enqueued))
}

/// Enqueues the pictures that are already in the store.
async fn enqueue_uploaded(folder: &str, args: &EnqueueArgs) -> anyhow::Result<(Client, Enqueued)> {
    let client = Client::open(&args.store).await?;
    let (pictures, skipped) = find::uploaded(client.store().blobs.as_ref(), folder).await?;
    if pictures.is_empty() && skipped.is_empty() {
        bail!("there are no pictures under {} in the store", find::prefix(folder));
    }
    let mut enqueued = Enqueued { skipped, pictures: pictures.len(), ..Enqueued::default() };
    for batch in pictures.chunks(args.batch.into()) {
        enqueued.jobs.extend(enqueue_batch(&client.producer(), batch.to_vec(), args.size).await?);
    }
    Ok((client, enqueued))
}

/// Uploads a batch and returns the names of its pictures, except of those that can't be read or are
/// too large.
async fn upload_all(
    producer: &Producer,
    batch: &[Picture],
    skipped: &mut Vec<Skipped>,
) -> anyhow::Result<Vec<String>> {
    let mut uploads =
        stream::iter(batch).map(|picture| upload(producer, picture)).buffered(CONCURRENT_UPLOADS);
    let mut names = Vec::with_capacity(batch.len());
    while let Some(uploaded) = uploads.next().await {
        match uploaded? {
            Ok(name) => names.push(name),
            Err(one) => skipped.push(one),
        }
    }
    Ok(names)
}

/// Uploads one picture. The outer error is the store's, the inner one is of this picture only.
async fn upload(producer: &Producer, picture: &Picture) -> anyhow::Result<Result<String, Skipped>> {
    let skip = |reason: String| Ok(Err(Skipped { path: picture.path.clone(), reason }));
    let bytes = match tokio::fs::read(&picture.path).await {
        Ok(bytes) => bytes,
        Err(error) => return skip(error.to_string()),
    };
    match producer.put_input(&input(&picture.name), bytes).await {
        Ok(()) => Ok(Ok(picture.name.clone())),
        Err(error) if error.kind() == ErrorKind::TooLarge => skip(error.to_string()),
        Err(error) => Err(error).with_context(|| format!("failed to upload {}", picture.path.display())),
    }
}

/// Enqueues the job for a batch. Its pictures must be in the store.
async fn enqueue_batch(producer: &Producer, pictures: Vec<String>, size: u32) -> anyhow::Result<Vec<JobId>> {
    if pictures.is_empty() {
        return Ok(Vec::new());
    }
    Ok(producer.enqueue(vec![NewJob::of::<Thumbnails>(&Batch { size, pictures })?]).await?)
}
