//! Attachments: contents of any size that belong to a job's checkpoints and are stored in chunks.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::sleep;

use crate::context::JobContext;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{next_part, unusable};
use crate::ids::PayloadName;
use crate::ports::Payload;
use crate::record::{CHUNK_BYTES, Chunk, Content, ContentHash, Handle, Pinned};
use crate::saving::LOOK_EVERY;

/// How many chunks are sent or fetched at once. With the one that is being read, an attachment of
/// any size takes five chunks of memory, 20 MiB.
const AT_ONCE: usize = 4;

/// The longest name of an attachment, in bytes.
pub const ATTACHMENT_NAME_BYTES_MAX: usize = 240;

/// An attachment of a job's checkpoints, by its name: a file or a buffer of any size that the job
/// needs to continue, and that is too large to be saved again as a whole each time.
///
/// [`write`](Self::write) stores a content, and the next save makes it part of the job's progress,
/// together with the state: what [`read`](Self::read) returns after an eviction is what was
/// attached when the state was saved. So attach whatever a state relies on before the step returns
/// it, or before [`JobContext::save`]. A content is stored in chunks of 4 MiB, and a chunk that a
/// checkpoint already has is not sent again. A chunk is removed when neither of the job's last two
/// checkpoints has it.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    cx: &'a JobContext,
    name: &'a str,
}

impl JobContext {
    /// Returns the attachment `name`, whether it exists or not.
    ///
    /// # Example: a large file that changes in places
    /// ```no_run
    /// # use reprieve_core::{Job, JobContext, JobError, Step};
    /// # struct Train;
    /// # async fn train_until_due(_: &JobContext, _: &std::path::Path) -> Result<u64, JobError> { Ok(1) }
    /// # #[async_trait::async_trait]
    /// # impl Job for Train {
    /// #     const KIND: &'static str = "train";
    /// #     type Args = ();
    /// #     type Checkpoint = u64;
    /// #     type Output = ();
    /// #     fn begin(&self, _: &()) -> u64 { 0 }
    /// async fn step(&self, cx: &JobContext, _: &(), epoch: u64) -> Result<Step<u64, ()>, JobError> {
    ///     let model = std::path::Path::new("/mnt/model.bin");
    ///     if cx.steps() == 0 {
    ///         // The file of this machine, if there is one, may be older than the checkpoint.
    ///         let mut file = tokio::fs::File::create(model).await.map_err(JobError::retry)?;
    ///         cx.attach("model").read(&mut file).await?;
    ///     }
    ///     let epochs = train_until_due(cx, model).await?;
    ///     let file = tokio::fs::File::open(model).await.map_err(JobError::retry)?;
    ///     cx.attach("model").write(file).await?;
    ///     Ok(Step::Continue(epoch + epochs))
    /// }
    /// # }
    /// ```
    #[must_use]
    pub const fn attach<'a>(&'a self, name: &'a str) -> Attachment<'a> {
        Attachment { cx: self, name }
    }
}

impl Attachment<'_> {
    /// Stores everything that `content` yields, in place of the former content, and returns its
    /// length in bytes. Sends only chunks that no checkpoint has. While the store does not answer,
    /// this waits without limit.
    ///
    /// It becomes part of the job's progress with the next save. A save that is under way when the
    /// content is stored saves the former one, and this returns after it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name. [`Internal`](ErrorKind::Internal) when
    /// `content` can't be read. [`Superseded`](ErrorKind::Superseded) when the job has a newer
    /// owner. A temporary error only when the job should yield. The store's other errors. The
    /// former content stays.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing, and what it sent is removed later.
    pub async fn write(self, content: impl AsyncRead + Send + Unpin) -> Result<u64> {
        const OPERATION: &str = "write an attachment";
        self.check_name(OPERATION)?;
        let mut content = content;
        // A save in the meantime must not remove the chunks that no checkpoint names yet.
        let mut pinned = self.cx.run.record_in_step().await.attachments.pin();
        let (mut attached, mut sending) = (Content::default(), FuturesUnordered::new());
        // Its own chunks so far: it may have equal ones.
        let (mut own, mut reused) = (HashMap::new(), BTreeSet::new());
        loop {
            let bytes =
                next_part(&mut content, CHUNK_BYTES).await.map_err(|error| unusable(OPERATION, error))?;
            if bytes.is_empty() {
                break;
            }
            // A file that grows meanwhile is read to where it ended.
            let is_last = bytes.len() < CHUNK_BYTES;
            // A long content must not keep its thread from the other jobs.
            tokio::task::consume_budget().await;
            attached.bytes += bytes.len() as u64;
            let hash = ContentHash::of(&bytes);
            let (chunk, is_new) = match own.get(&hash) {
                Some(chunk) => (Chunk::clone(chunk), false),
                None => self.chunk(hash, &mut pinned).await,
            };
            if is_new {
                sending.push(self.send(OPERATION, chunk.payload.clone(), bytes));
            } else if !own.contains_key(&hash) {
                reused.insert(chunk.payload.clone());
            }
            own.insert(hash, chunk.clone());
            attached.chunks.push(chunk);
            while sending.len() >= AT_ONCE {
                sending.next().await.unwrap_or(Ok(()))?;
            }
            if is_last {
                break;
            }
        }
        while let Some(sent) = sending.next().await {
            sent?;
        }
        let length = attached.bytes;
        loop {
            self.copy_unnamed(OPERATION, &mut reused, &mut attached, &mut pinned).await?;
            // The save that this waits for may have left a chunk without a name.
            let set = self.change(|record| {
                let has_all = record.unnamed_of(&reused).is_empty();
                if has_all {
                    record.attachments.set(self.name, attached.clone());
                }
                has_all
            });
            if set.await {
                return Ok(length);
            }
        }
    }

    /// Writes the content to `to`, and returns its length in bytes; `None` when there is no
    /// attachment of this name. The bytes are checked before they are written. While the store does
    /// not answer, this waits without limit.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when a chunk is damaged or missing: return the error. The
    /// job then continues from the checkpoint before, which costs no attempt.
    /// [`Internal`](ErrorKind::Internal) when `to` can't be written. A temporary error only when
    /// the job should yield. The store's other errors.
    pub async fn read(self, to: impl AsyncWrite + Send + Unpin) -> Result<Option<u64>> {
        const OPERATION: &str = "read an attachment";
        self.check_name(OPERATION)?;
        // The content may be replaced and saved before it is read to its end.
        let (content, mut pinned) = {
            let record = self.cx.run.record_in_step().await;
            (record.attachments.get(self.name).cloned(), record.attachments.pin())
        };
        let Some(content) = content else { return Ok(None) };
        content.chunks.iter().for_each(|chunk| pinned.add(&chunk.payload));
        let mut to = to;
        let fetches: Vec<_> = content.chunks.iter().map(|chunk| self.fetch(OPERATION, chunk)).collect();
        let mut chunks = futures_util::stream::iter(fetches).buffered(AT_ONCE);
        while let Some(bytes) = chunks.next().await {
            to.write_all(&bytes?).await.map_err(|error| unusable(OPERATION, error))?;
        }
        to.flush().await.map_err(|error| unusable(OPERATION, error))?;
        Ok(Some(content.bytes))
    }

    /// Returns the length of the content in bytes; `None` when there is no attachment of this name.
    pub async fn size(self) -> Option<u64> {
        self.cx.run.record_in_step().await.attachments.get(self.name).map(|content| content.bytes)
    }

    /// Removes the attachment from the next save on; returns false when there is none of this name.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing.
    pub async fn remove(self) -> bool {
        self.change(|record| record.attachments.remove(self.name)).await
    }

    /// Changes the attachments when no save is requested or under way, so that a checkpoint has the
    /// contents that belong to its state.
    async fn change<T>(&self, change: impl Fn(&mut Handle) -> T) -> T {
        loop {
            let mut record = self.cx.run.record_in_step().await;
            if !self.cx.run.saves.is_pending() {
                return change(&mut record);
            }
            drop(record);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the chunk with this hash, and whether it is new and has to be sent.
    async fn chunk(&self, hash: ContentHash, pinned: &mut Pinned) -> (Chunk, bool) {
        let mut record = self.cx.run.record_in_step().await;
        let (chunk, is_new) = match record.attachments.find(hash) {
            Some(chunk) => (chunk, false),
            None => (Chunk::new(record.new_payload(), hash), true),
        };
        pinned.add(&chunk.payload);
        (chunk, is_new)
    }

    /// Copies the chunks that a checkpoint had when this write came to them, and that none has any
    /// more. Retention removes payloads that no record names, by their age, and they may be old.
    async fn copy_unnamed(
        &self,
        operation: &'static str,
        reused: &mut BTreeSet<PayloadName>,
        content: &mut Content,
        pinned: &mut Pinned,
    ) -> Result<()> {
        if reused.is_empty() {
            return Ok(());
        }
        let unnamed = self.cx.run.record_in_step().await.unnamed_of(reused);
        for old in unnamed {
            let Some(chunk) = content.chunks.iter().find(|chunk| chunk.payload == old) else { continue };
            let bytes = self.fetch(operation, chunk).await?;
            let copy = self.cx.run.record_in_step().await.new_payload();
            pinned.add(&copy);
            self.send(operation, copy.clone(), bytes).await?;
            for chunk in content.chunks.iter_mut().filter(|chunk| chunk.payload == old) {
                chunk.payload = copy.clone();
            }
            reused.remove(&old);
        }
        Ok(())
    }

    async fn send(&self, operation: &'static str, name: PayloadName, bytes: Bytes) -> Result<()> {
        let run = &self.cx.run;
        let payload = Payload { name, bytes };
        let sent = self.cx.outlast(operation, || async {
            run.may_write(operation).await?;
            let records = &run.store(self.cx.is_interrupted()).records;
            records.store_payload(&run.job, payload.clone()).await
        });
        let sent = sent.await;
        if let Err(error) = &sent {
            run.note_refusal(error);
        }
        sent
    }

    async fn fetch(&self, operation: &'static str, chunk: &Chunk) -> Result<Bytes> {
        let run = &self.cx.run;
        let fetch =
            || async { run.store(self.cx.is_interrupted()).records.payload(&run.job, &chunk.payload).await };
        let found = self.cx.outlast(operation, fetch).await?;
        let intact = found.filter(|bytes| chunk.fits(bytes));
        let Some(bytes) = intact else {
            run.record_in_step().await.attachments.forget(chunk);
            run.saves.note_damaged(chunk.payload.clone());
            let message = format!("a part of attachment {:?} is damaged or missing", self.name);
            return Err(Error::new(ErrorKind::Corrupt, operation, message));
        };
        Ok(bytes)
    }

    fn check_name(&self, operation: &'static str) -> Result<()> {
        if (1..=ATTACHMENT_NAME_BYTES_MAX).contains(&self.name.len()) {
            return Ok(());
        }
        let message = format!("the name of an attachment has 1 to {ATTACHMENT_NAME_BYTES_MAX} bytes");
        Err(Error::new(ErrorKind::Invalid, operation, message))
    }
}
