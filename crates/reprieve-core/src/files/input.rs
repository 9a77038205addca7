//! Reading an input as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::io::{self, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::task::AbortOnDropHandle;

use super::blob_reader::whole_part;
use super::{READ, stopped, to_io, transfer, unusable};
use crate::context::JobContext;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::BlobName;
use crate::ports::{BlobRange, PART_BYTES, Version};

/// How many parts are fetched ahead of the one that is being read.
const AHEAD: usize = 2;

/// An input blob that is read from its beginning, or from any [seek](tokio::io::AsyncSeekExt::seek).
///
/// It holds at most three parts of 4 MiB: the one that is being read, and two that are fetched
/// meanwhile, also while the step computes. All its bytes are of one write of the blob, the one that
/// was the newest when it was opened. When the blob is replaced or removed, the next part that is not
/// held yet is an error ([`Conflict`](ErrorKind::Conflict)), never bytes of another write: return the
/// error, or open the stream again.
///
/// While the store does not answer, a read waits, as [`JobContext::input`] does. After an error that is
/// temporary, which there is only when the job should yield, another read continues at the same place.
/// The errors of `AsyncRead` have the store's [`Error`](struct@Error) as their source;
/// [`JobError::retry`](crate::JobError::retry) is right for all of them.
///
/// # Example: count the lines of a large file
/// ```
/// # use reprieve_core::{JobContext, JobError};
/// use tokio::io::AsyncBufReadExt;
///
/// # async fn step(cx: &JobContext) -> Result<u64, JobError> {
/// let mut lines = cx.input_stream("logs/2026-11.jsonl").await?.lines();
/// let mut count = 0;
/// while lines.next_line().await.map_err(JobError::retry)?.is_some() {
///     count += 1;
/// }
/// # Ok(count) }
/// ```
///
/// # Example: continue where the checkpoint says
/// ```
/// # use reprieve_core::{JobContext, JobError};
/// use std::io::SeekFrom;
/// use tokio::io::{AsyncReadExt, AsyncSeekExt};
/// # async fn step(cx: &JobContext, offset: u64) -> Result<u64, JobError> {
/// let mut film = cx.input_stream("films/12.mov").await?;
/// film.seek(SeekFrom::Start(offset)).await.map_err(JobError::retry)?;
/// let mut block = vec![0; 1 << 20];
/// let read = film.read(&mut block).await.map_err(JobError::retry)?;
/// # Ok(offset + read as u64) }
/// ```
pub struct InputStream {
    cx: JobContext,
    name: BlobName,
    version: Version,
    /// The length of the whole blob.
    length: u64,
    /// Where the stream ends.
    end: u64,
    /// The place of the next byte.
    position: u64,
    /// The bytes from there on that are here.
    current: Bytes,
    /// The parts after them, in order.
    ahead: VecDeque<AbortOnDropHandle<Result<Bytes>>>,
    /// Where the part after those begins.
    next: u64,
}

impl InputStream {
    /// Opens the range of an input, and reads its first part.
    pub(super) async fn open(cx: &JobContext, name: BlobName, range: Range<u64>) -> Result<Self> {
        let end = range.end.min(range.start.saturating_add(PART_BYTES as u64));
        let first = fetch(cx, &name, range.start..end, None).await?;
        let BlobRange { bytes, length, version } = first
            .ok_or_else(|| Error::new(ErrorKind::NotFound, READ, format!("there is no blob named {name}")))?;
        let (position, end) = (range.start, range.end.min(length));
        let next = position + bytes.len() as u64;
        let ahead = VecDeque::with_capacity(AHEAD);
        let mut stream =
            Self { cx: cx.of_task(), name, version, length, end, position, current: bytes, ahead, next };
        stream.fetch_ahead();
        Ok(stream)
    }

    /// The length of the blob in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The place of the next byte.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The version of the write that is read. Opaque; a checkpoint that keeps it beside a position can
    /// tell later whether the input was replaced.
    #[must_use]
    pub fn version(&self) -> &str {
        self.version.as_str()
    }

    /// A buffer's capacity for the rest, if that is short.
    pub(super) fn capacity(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX).min(4 * PART_BYTES)
    }

    /// Writes the rest to `to`, and returns its length.
    pub(super) async fn read_to(&mut self, to: impl AsyncWrite + Send + Unpin) -> Result<u64> {
        let (mut to, began) = (to, self.position);
        loop {
            poll_fn(|cx| self.poll_part(cx)).await?;
            if self.current.is_empty() {
                to.flush().await.map_err(|error| unusable(READ, error))?;
                return Ok(self.position - began);
            }
            let bytes = self.current.clone();
            self.skip(bytes.len());
            to.write_all(&bytes).await.map_err(|error| unusable(READ, error))?;
        }
    }

    /// Waits for bytes at the position, unless the stream has ended.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.current.is_empty() && self.position < self.end {
            self.fetch_ahead();
            let Some(first) = self.ahead.front_mut() else { break };
            let fetched = ready!(Pin::new(first).poll(cx)).unwrap_or_else(|_| Err(stopped(READ)));
            match fetched {
                Ok(bytes) => {
                    self.ahead.pop_front();
                    self.current = bytes;
                }
                Err(error) => {
                    // The next read tries again.
                    self.go_to(self.position);
                    return Poll::Ready(Err(error));
                }
            }
        }
        self.fetch_ahead();
        Poll::Ready(Ok(()))
    }

    fn fetch_ahead(&mut self) {
        while self.ahead.len() < AHEAD && self.next < self.end {
            let range = self.next..self.end.min(self.next.saturating_add(PART_BYTES as u64));
            self.next = range.end;
            let (cx, name, version) = (self.cx.of_task(), self.name.clone(), self.version.clone());
            let fetching = async move { part(&cx, &name, range, &version).await };
            self.ahead.push_back(transfer(&self.cx, fetching));
        }
    }

    /// Continues at another place.
    fn go_to(&mut self, position: u64) {
        self.ahead.clear();
        self.current = Bytes::new();
        (self.position, self.next) = (position, position);
    }

    /// Leaves out bytes that are here.
    fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.current.len());
        self.current.advance(bytes);
        self.position += bytes as u64;
    }
}

/// Reads a range of this version, or of any.
async fn fetch(
    cx: &JobContext,
    name: &BlobName,
    range: Range<u64>,
    version: Option<&Version>,
) -> Result<Option<BlobRange>> {
    cx.outlast(READ, || cx.blobs().get_range(name, range.clone(), version)).await
}

/// Reads a range that the blob has in this version.
async fn part(cx: &JobContext, name: &BlobName, range: Range<u64>, version: &Version) -> Result<Bytes> {
    let read = fetch(cx, name, range.clone(), Some(version)).await;
    whole_part(READ, name, &range, read)
}

impl AsyncBufRead for InputStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_part(cx)).map_err(to_io)?;
        Poll::Ready(Ok(&this.current))
    }

    fn consume(self: Pin<&mut Self>, bytes: usize) {
        self.get_mut().skip(bytes);
    }
}

impl AsyncRead for InputStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_part(cx)).map_err(to_io)?;
        let bytes = this.current.len().min(buf.remaining());
        buf.put_slice(&this.current[..bytes]);
        this.skip(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for InputStream {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => this.position.checked_add_signed(by),
            SeekFrom::End(by) => this.length.checked_add_signed(by),
        };
        let to = to.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the place is before the input's beginning")
        })?;
        match to.checked_sub(this.position).and_then(|by| usize::try_from(by).ok()) {
            Some(by) if by < this.current.len() => this.skip(by),
            _ => this.go_to(to),
        }
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

impl fmt::Debug for InputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputStream")
            .field("name", &self.name)
            .field("position", &self.position)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
