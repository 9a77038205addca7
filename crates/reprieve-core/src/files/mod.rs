//! Inputs and outputs in parts: ranges, streams, lists and deletion.

mod blob_reader;
mod input;
mod output;

use std::future::Future;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

pub use self::blob_reader::BlobReader;
pub use self::input::InputStream;
pub use self::output::OutputStream;
use crate::context::JobContext;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Writer};
use crate::names::{input_blob, output_blob, outputs_of};
use crate::ports::{BlobStore, ListedBlob, Page};
use crate::process::in_process;

const READ: &str = "read an input";
const WRITE: &str = "write an output";
const LIST: &str = "list blobs";

impl JobContext {
    /// The blob of the output called `name`: a relative name lies below `jobs/<job id>/`, and one that
    /// begins with `/` where it says. Every worker that runs this job gets the same blob, so a job
    /// reads its own outputs by it.
    ///
    /// # Example: an output of an earlier step
    /// ```
    /// # use reprieve_core::{JobContext, JobError};
    /// # async fn step(cx: &JobContext) -> Result<(), JobError> {
    /// cx.put_output("tiles/0.png", vec![1, 2, 3]).await?;      // jobs/<job id>/tiles/0.png
    /// cx.put_output("/public/0.png", vec![1, 2, 3]).await?;    // public/0.png
    /// let tile = cx.input(&cx.output_name("tiles/0.png")?).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that no blob can have; see [`BlobName`].
    pub fn output_name(&self, name: &str) -> Result<BlobName> {
        output_blob("name an output", self.job(), name)
    }

    /// Reads a range of an input blob, all of one write: the bytes of it that the blob has. A range at
    /// or beyond the end is shorter, or empty. Waits through outages as [`input`](Self::input) does.
    ///
    /// # Errors
    /// As of `input`.
    pub async fn input_range(&self, name: &str, range: impl RangeBounds<u64> + Send) -> Result<Vec<u8>> {
        let (name, range) = (input_blob(name)?, range_of(&range));
        loop {
            let mut stream = InputStream::open(self, name.clone(), range.clone()).await?;
            let mut bytes = Vec::with_capacity(stream.capacity());
            match stream.read_to(&mut bytes).await {
                // It was replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::Conflict => tokio::task::consume_budget().await,
                read => return read.map(|_| bytes),
            }
        }
    }

    /// Reads an input blob of any size as a stream, in bounded memory; see [`InputStream`].
    ///
    /// # Errors
    /// As of [`input`](Self::input).
    pub async fn input_stream(&self, name: &str) -> Result<InputStream> {
        InputStream::open(self, input_blob(name)?, 0..u64::MAX).await
    }

    /// Writes an input blob of any size to `to`, such as a file for an external program, and returns
    /// its length in bytes. Takes the memory of one [`InputStream`].
    ///
    /// # Example: files for an external program
    /// ```no_run
    /// # use reprieve_core::{JobContext, JobError};
    /// # async fn step(cx: &JobContext) -> Result<(), JobError> {
    /// let mut film = tokio::fs::File::create("/mnt/film.mov").await.map_err(JobError::retry)?;
    /// cx.read_input("films/12.mov", &mut film).await?;
    /// // … the program runs …
    /// let film = tokio::fs::File::open("/mnt/small.mov").await.map_err(JobError::retry)?;
    /// cx.write_output("small.mov", film).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As of [`input`](Self::input). [`Conflict`](ErrorKind::Conflict) when the blob is replaced or
    /// removed meanwhile; `to` then has a part of it. [`Internal`](ErrorKind::Internal) when `to`
    /// can't be written.
    pub async fn read_input(&self, name: &str, to: impl AsyncWrite + Send + Unpin) -> Result<u64> {
        self.input_stream(name).await?.read_to(to).await
    }

    /// Begins an output blob of any size, in bounded memory. Nothing is visible before
    /// [`OutputStream::finish`].
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name.
    pub fn output_stream(&self, name: &str) -> Result<OutputStream> {
        Ok(OutputStream::new(self, output_blob(WRITE, self.job(), name)?))
    }

    /// Writes everything that `content` yields, such as a file of an external program, as an output
    /// blob, whole or not at all, and returns its length in bytes. Takes the memory of one
    /// [`OutputStream`].
    ///
    /// # Errors
    /// As of [`OutputStream::finish`]. [`Internal`](ErrorKind::Internal) when `content` can't be read.
    ///
    /// # Cancel safety
    /// A dropped call may have stored the output, and otherwise changes nothing.
    pub async fn write_output(&self, name: &str, content: impl AsyncRead + Send + Unpin) -> Result<u64> {
        let (mut stream, mut content) = (self.output_stream(name)?, content);
        match tokio::io::copy(&mut content, &mut stream).await {
            Ok(_) => stream.finish().await,
            Err(error) => Err(stream.take_failure().unwrap_or_else(|| unusable(WRITE, error))),
        }
    }

    /// Lists the blobs with names that begin with `prefix`, from the root with or without `/`, in
    /// order, with their lengths. For more than some ten thousand, see
    /// [`input_page`](Self::input_page). While the store does not answer, this waits.
    ///
    /// # Errors
    /// A temporary error only when the job should yield. The store's other errors.
    pub async fn inputs(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        let prefix = prefix.strip_prefix('/').unwrap_or(prefix);
        Page::all(|at| async move { self.page(prefix, at.as_deref()).await }).await
    }

    /// Lists a part of the blobs of [`inputs`](Self::inputs): the first part, or the one that begins at
    /// the `next` of the part before, which a checkpoint may keep.
    ///
    /// # Errors
    /// As of `inputs`.
    pub async fn input_page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        self.page(prefix.strip_prefix('/').unwrap_or(prefix), at).await
    }

    /// Lists the outputs with names that begin with `prefix`, in order, with their lengths: this job's,
    /// or all blobs if the prefix begins with `/`. The names in the list are those of the blobs, as
    /// [`output_name`](Self::output_name) returns them.
    ///
    /// # Errors
    /// As of [`inputs`](Self::inputs).
    pub async fn outputs(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        if prefix.starts_with('/') {
            return self.inputs(prefix).await;
        }
        self.inputs(&(outputs_of(self.job()) + prefix)).await
    }

    /// Whether there is a blob called `name`, from the root with or without `/`. For an output of this
    /// job, pass [`output_name`](Self::output_name).
    ///
    /// # Errors
    /// As of [`inputs`](Self::inputs), and [`Invalid`](ErrorKind::Invalid) for a bad name.
    pub async fn exists(&self, name: &str) -> Result<bool> {
        let name = input_blob(name)?;
        self.outlast("look for a blob", || self.blobs().exists(&name)).await
    }

    /// Deletes an output under this owner's fence; succeeds when there is none. The store refuses to
    /// delete what a newer owner of this job has written. Waits through outages as
    /// [`put_output`](Self::put_output) does.
    ///
    /// # Errors
    /// As of `put_output`.
    pub async fn delete_output(&self, name: &str) -> Result<()> {
        const OPERATION: &str = "delete an output";
        let name = &output_blob(OPERATION, self.job(), name)?;
        self.fenced(OPERATION, |store, writer| async move { store.delete(name, Some(&writer)).await }).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        self.outlast(LIST, || self.blobs().page(prefix, at)).await
    }

    /// The store of inputs and outputs: in a drain, the one that gives up sooner.
    fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.run.store(self.is_interrupted()).blobs
    }

    /// Makes a call that writes under this owner's fence, and repeats it until it is answered or the
    /// job should yield.
    async fn fenced<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        call: impl Fn(Arc<dyn BlobStore>, Writer) -> F,
    ) -> Result<T> {
        let done = self.outlast(operation, || async {
            self.run.may_write(operation).await?;
            call(Arc::clone(self.blobs()), self.run.writer()).await
        });
        let done = done.await;
        if let Err(error) = &done {
            self.run.note_refusal(error);
        }
        done
    }

    /// Another handle of the same delivery, for a task.
    fn of_task(&self) -> Self {
        Self { run: Arc::clone(&self.run) }
    }
}

/// Starts a transfer that goes on while the step computes: on the control thread, since tokio would keep
/// it for the thread of the step. It ends with its handle.
fn transfer<T: Send + 'static>(
    cx: &JobContext,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> AbortOnDropHandle<Result<T>> {
    let work = in_process(work.in_current_span());
    let begun = match &cx.run.control {
        Some(control) => control.spawn(work),
        None => tokio::spawn(work),
    };
    AbortOnDropHandle::new(begun)
}

fn range_of(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

/// Reads the next part of a content, of so many bytes; a shorter or empty one at its end.
pub(crate) async fn next_part(content: &mut (impl AsyncRead + Unpin), bytes: usize) -> io::Result<Bytes> {
    let mut part = BytesMut::with_capacity(bytes);
    let mut rest = content.take(bytes as u64);
    while rest.read_buf(&mut part).await? > 0 {}
    Ok(part.freeze())
}

/// The error of a reader or writer that is not the store's.
pub(crate) fn unusable(operation: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, operation, error.to_string()).with_source(error)
}

/// The store's error, for a reader or writer. Its source is the store's error.
fn to_io(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::Denied => io::ErrorKind::PermissionDenied,
        ErrorKind::Unavailable | ErrorKind::TimedOut => io::ErrorKind::TimedOut,
        ErrorKind::Full => io::ErrorKind::StorageFull,
        ErrorKind::TooLarge => io::ErrorKind::FileTooLarge,
        ErrorKind::Corrupt => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The error of a transfer that its runtime has ended.
fn stopped(operation: &'static str) -> Error {
    Error::new(ErrorKind::Internal, operation, "the worker has stopped")
}
