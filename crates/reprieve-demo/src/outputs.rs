//! The jobs' outputs in the store, compared with an uninterrupted render.

use std::fmt::Write;
use std::num::NonZero;

use futures_util::{StreamExt, TryStreamExt, stream};
use reprieve::ports::Store;
use reprieve::{BlobName, Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::directory::DemoDirectory;
use crate::frame;
use crate::reconstruct::Output;
use crate::worker::Frame;

/// All outputs, in the order of the jobs' numbers.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) all: Vec<Output>,
    /// SHA-256 of the files one after the other, as of `cat frames/*.png`.
    pub(crate) digest: String,
    /// The same of the uninterrupted render.
    pub(crate) reference_digest: String,
}

/// Renders every frame again, in one go each, and compares; the frames that are there go to files.
pub(crate) async fn collect(directory: &DemoDirectory, store: &Store, ids: Vec<String>) -> Result<Outputs> {
    let of = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let (mut digest, mut reference_digest) = (Sha256::new(), Sha256::new());
    let mut all = Vec::with_capacity(ids.len());
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut references = stream::iter(0..of).map(|number| reference(number, of)).buffered(cores);
    for (id, number) in ids.into_iter().zip(0..) {
        let Some(reference) = references.try_next().await? else { break };
        reference_digest.update(&reference);
        let frame = Frame { number, of };
        let has_result = read(store, &format!("results/{id}.json")).await?.is_some();
        let png = read(store, &frame.blob()).await?;
        if let Some(png) = &png {
            digest.update(png);
            directory.write_frame(&frame.file_name(), png)?;
        }
        let matches_reference = png.as_ref() == Some(&reference);
        all.push(Output { id, has_result, png, matches_reference });
    }
    Ok(Outputs { all, digest: hex(&digest.finalize()), reference_digest: hex(&reference_digest.finalize()) })
}

async fn reference(number: u32, of: u32) -> Result<Vec<u8>> {
    let rendered = tokio::task::spawn_blocking(move || frame::render(number, of)).await;
    let failed = |message: String| Error::new(ErrorKind::Internal, "render a frame", message);
    rendered.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

async fn read(store: &Store, name: &str) -> Result<Option<Vec<u8>>> {
    store.blobs.get(&BlobName::parse(name)?).await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}
