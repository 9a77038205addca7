//! Writing an output as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio_util::task::AbortOnDropHandle;

use super::{WRITE, stopped, to_io, transfer};
use crate::context::JobContext;
use crate::error::{Error, Result};
use crate::ids::BlobName;
use crate::ports::{BlobStore, PART_BYTES, Upload};

/// How many parts are sent at a time.
const AT_ONCE: usize = 2;

/// An output blob that is written piece by piece and published by [`finish`](Self::finish).
///
/// It holds at most three parts of 4 MiB: the one that is being filled, and two that are sent
/// meanwhile, also while the step computes. Nothing is visible before `finish`. A stream that is dropped
/// before, or whose worker dies, publishes nothing: a former output of the name stays, and what was
/// sent is removed (on the embedded store at once, or soon after the process has died; in Azure, where
/// blocks can't be deleted, after a week). The next step begins the output again. An output has at most
/// 195 GiB; one of up to 4 MiB costs one write.
///
/// Shutting the writer down, as encoders do, publishes nothing either. While the store does not answer,
/// a write waits, as [`JobContext::put_output`] does. After an error the stream is of no use: each later
/// call returns the error again. The errors of `AsyncWrite` have the store's [`Error`](struct@Error) as
/// their source; [`JobError::retry`](crate::JobError::retry) is right for all of them.
///
/// # Example: copy in bounded memory
/// ```
/// # use reprieve_core::{JobContext, JobError};
/// # async fn step(cx: &JobContext) -> Result<(), JobError> {
/// let mut from = cx.input_stream("films/12.mov").await?;
/// let mut to = cx.output_stream("12.mov")?;
/// tokio::io::copy_buf(&mut from, &mut to).await.map_err(JobError::retry)?;
/// to.finish().await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is published before `finish`"]
pub struct OutputStream {
    cx: JobContext,
    name: BlobName,
    upload: Upload,
    /// The part that is being filled.
    buffer: BytesMut,
    /// The number of parts that were begun to be sent.
    parts: u32,
    sending: VecDeque<AbortOnDropHandle<Result<()>>>,
    failed: Option<Error>,
}

impl OutputStream {
    pub(super) fn new(cx: &JobContext, name: BlobName) -> Self {
        let (upload, buffer, sending) = (Upload::new(), BytesMut::new(), VecDeque::with_capacity(AT_ONCE));
        Self { cx: cx.of_task(), name, upload, buffer, parts: 0, sending, failed: None }
    }

    /// The number of bytes written so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        u64::from(self.parts) * PART_BYTES as u64 + self.buffer.len() as u64
    }

    /// Publishes the output under this owner's fence, and returns its length in bytes. Replaces a former
    /// output of the name. While the store does not answer, this waits.
    ///
    /// # Errors
    /// [`Superseded`](crate::ErrorKind::Superseded) when the job has a newer owner: return the error, the job
    /// is cancelled anyway. [`Conflict`](crate::ErrorKind::Conflict) when another write of the same name has
    /// discarded the parts, which happens in Azure if two owners or jobs write one name at the same
    /// time: write it again. A temporary error only when the job should yield. The error of an earlier
    /// write. The store's other errors.
    ///
    /// # Cancel safety
    /// A dropped call may have published the output, and otherwise changes nothing.
    pub async fn finish(mut self) -> Result<u64> {
        let length = self.length();
        if self.parts == 0 {
            self.check()?;
            let (name, bytes) = (&self.name, Vec::from(std::mem::take(&mut self.buffer)));
            let put = |store: Arc<dyn BlobStore>, writer| {
                let bytes = bytes.clone();
                async move { store.put(name, bytes, Some(&writer)).await }
            };
            return self.cx.fenced(WRITE, put).await.map(|()| length);
        }
        if !self.buffer.is_empty() {
            poll_fn(|cx| self.poll_send(cx)).await?;
        }
        poll_fn(|cx| self.poll_sent(cx, 0)).await?;
        let (name, upload) = (&self.name, &self.upload);
        let publish = |store: Arc<dyn BlobStore>, writer| async move {
            store.put_parts(name, upload, length, Some(&writer)).await
        };
        self.cx.fenced(WRITE, publish).await.map(|()| length)
    }

    /// The error that ended the stream.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.again()))
    }

    fn fail(&mut self, error: Error) -> Error {
        let again = error.again();
        self.failed = Some(error);
        // Those that are left would be sent in vain.
        self.sending.clear();
        again
    }

    /// Waits until at most `left` parts are being sent.
    fn poll_sent(&mut self, cx: &mut Context<'_>, left: usize) -> Poll<Result<()>> {
        self.check()?;
        while self.sending.len() > left {
            let Some(first) = self.sending.front_mut() else { break };
            let sent = ready!(Pin::new(first).poll(cx)).unwrap_or_else(|_| Err(stopped(WRITE)));
            self.sending.pop_front();
            sent.map_err(|error| self.fail(error))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Begins to send the part in the buffer, when fewer than the most are being sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_sent(cx, AT_ONCE - 1))?;
        Upload::parts(self.length()).map_err(|error| self.fail(error))?;
        let bytes = std::mem::take(&mut self.buffer).freeze();
        let (cx, name, upload, number) =
            (self.cx.of_task(), self.name.clone(), self.upload.clone(), self.parts);
        self.parts += 1;
        let sending = async move {
            let send = |store: Arc<dyn BlobStore>, _| {
                let (name, upload, bytes) = (&name, &upload, bytes.clone());
                async move { store.put_part(name, upload, number, bytes).await }
            };
            cx.fenced(WRITE, send).await
        };
        self.sending.push_back(transfer(&self.cx, sending));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OutputStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check().map_err(to_io)?;
        if this.buffer.len() == PART_BYTES && !buf.is_empty() {
            ready!(this.poll_send(cx)).map_err(to_io)?;
        }
        let bytes = buf.len().min(PART_BYTES - this.buffer.len());
        if this.parts > 0 {
            // The output is large: without this, the buffer would be copied as it grows.
            this.buffer.reserve(PART_BYTES - this.buffer.len());
        }
        this.buffer.extend_from_slice(&buf[..bytes]);
        Poll::Ready(Ok(bytes))
    }

    /// Waits for the parts that are being sent. A part that is not full stays.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx, 0).map_err(to_io)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputStream")
            .field("name", &self.name)
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}
