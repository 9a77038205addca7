//! Enqueueing jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::value::RawValue;
use tokio::io::AsyncRead;

use crate::codec;
use crate::envelope::{Data, Envelope, INLINE_ARGS_BYTES_MAX, Trace};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{next_part, unusable};
use crate::hash::ContentHash;
use crate::ids::JobId;
use crate::job::Job;
use crate::names::{args_blob, check_own, input_blob, what_but_a_job};
use crate::ports::{LEASE_MAX, NewMessage, PART_BYTES, RecordWrite, Store, Upload};
use crate::record::{Record, Status};

/// How many jobs of a batch are prepared at a time.
const AT_ONCE: usize = 32;

/// A job to be enqueued, by the name of its kind.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The kind.
    pub kind: String,
    /// The arguments.
    pub args: Box<RawValue>,
    /// How long the message stays invisible; zero for none.
    pub delay: Duration,
    /// An id of the caller's own; `None` for a unique one. See [`with_id`](Self::with_id).
    pub id: Option<JobId>,
}

impl NewJob {
    /// A job of type `J`, to be run as soon as possible.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the arguments have no JSON form, such as NaN.
    pub fn of<J: Job>(args: &J::Args) -> Result<Self>
    where
        J::Args: serde::Serialize,
    {
        let invalid = |why| Error::new(ErrorKind::Invalid, "enqueue a job", format!("the arguments: {why}"));
        let args = codec::encode_json(args).map_err(invalid)?;
        Ok(Self::new(J::KIND, args))
    }

    /// A job of this kind, to be run as soon as possible.
    #[must_use]
    pub fn new(kind: impl Into<String>, args: Box<RawValue>) -> Self {
        Self { kind: kind.into(), args, delay: Duration::ZERO, id: None }
    }

    /// Gives the job an id of the caller's own, such as `import-2026-11-24`, which names one job:
    /// enqueued again, by whomever, it is the same job, which is not run a second time.
    ///
    /// The id is remembered while the job waits or runs, and after its end as long as results are
    /// kept, but at least 30 days. It costs a write when the job is enqueued, and a read and a write
    /// when it begins.
    #[must_use]
    pub fn with_id(mut self, id: JobId) -> Self {
        self.id = Some(id);
        self
    }

    /// Delays the job's first delivery, by at most seven days.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// Enqueues jobs.
#[derive(Debug, Clone)]
pub struct Producer {
    store: Store,
    trace: Option<Trace>,
}

impl Producer {
    /// A producer for the store's queue.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, trace: None }
    }

    /// Enqueues jobs as parts of this trace.
    pub(crate) fn with_trace(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    /// Enqueues jobs and returns their ids in the same order. A job under an id of its own that was
    /// enqueued before is not enqueued again, whatever became of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when a delay is over seven days, the longest that a Storage
    /// queue allows. [`Conflict`](ErrorKind::Conflict) when an id of the caller's own belongs to a
    /// job of another kind or with other arguments. The store's errors; where the store sends all
    /// messages or none, no job is enqueued then. After any error, enqueueing jobs with ids of their
    /// own again enqueues those that are missing.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not enqueue the jobs.
    pub async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<JobId>> {
        for NewJob { delay, .. } in &jobs {
            if *delay > LEASE_MAX {
                let message = format!("a delay of {delay:?} is over seven days; enqueue the job later");
                return Err(Error::new(ErrorKind::Invalid, "enqueue a job", message));
            }
        }
        let prepared = jobs.into_iter().map(|job| self.prepare(job));
        let prepared: Vec<_> = stream::iter(prepared).buffered(AT_ONCE).try_collect().await?;
        let (ids, messages): (Vec<_>, Vec<_>) = prepared.into_iter().unzip();
        let messages: Vec<_> = messages.into_iter().flatten().collect();
        if !messages.is_empty() {
            self.store.queue.send(messages).await?;
        }
        Ok(ids)
    }

    /// Stores what must be there before the job's message, and returns the message; none for a job
    /// that was enqueued before.
    async fn prepare(&self, NewJob { kind, args, delay, id }: NewJob) -> Result<(JobId, Option<NewMessage>)> {
        let envelope = match id {
            None => {
                let id = JobId::unique();
                let data = self.place(&id, args).await?;
                Envelope::make(id, &kind, data, None, self.trace.as_ref())
            }
            Some(id) => {
                if let Some(what) = what_but_a_job(id.as_str()) {
                    let message = format!("{id} is the id of {what}, and of no job; use another id");
                    return Err(Error::new(ErrorKind::Invalid, "enqueue a job", message));
                }
                let hash = hash_args(&args)?;
                let Some(since) = self.begin(&id, &kind, hash).await? else { return Ok((id, None)) };
                let data = self.place(&id, args).await?;
                Envelope::make(id, &kind, data, Some((hash, since)), self.trace.as_ref())
            }
        };
        let body = envelope.to_body();
        Ok((envelope.job, Some(NewMessage { body, delay })))
    }

    /// Records that the job was enqueued, and returns when, in milliseconds since the Unix epoch; `None` if it
    /// has been before, so that it has a message or is over.
    ///
    /// A producer that died between this record and the message leaves a job that no worker
    /// has received, like one that still waits. A second message of the latter is harmless: the first to
    /// be received claims the job, and the other is deleted when the job is over.
    async fn begin(&self, id: &JobId, kind: &str, args_sha256: ContentHash) -> Result<Option<i64>> {
        const OPERATION: &str = "enqueue a job";
        let record = Record::enqueued(id.clone(), kind, args_sha256);
        let write = RecordWrite::of(&record, None);
        let mut expected = None;
        loop {
            match self.store.records.put(id, expected.as_ref(), write.clone()).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                written => return written.map(|_| Some(record.enqueued_unix_ms)),
            }
            // Removed since, by retention.
            let Some((found, version)) = self.store.versioned_record(id).await? else {
                expected = None;
                continue;
            };
            let refused = |other: &str| {
                let message = format!("the id {id} is that of a job {other}; give this one another id");
                Err(Error::new(ErrorKind::Conflict, OPERATION, message))
            };
            match found.args_sha256 {
                // Cancelled before it was enqueued.
                None if found.kind.is_empty() && found.status == Status::Cancelled => return Ok(None),
                _ if found.kind != kind => return refused(&format!("of kind {:?}", found.kind)),
                None => return refused("that was enqueued without an id of its own"),
                Some(theirs) if theirs != args_sha256 => return refused("with other arguments"),
                // Written again, so that its age is that of the message to come. A job that was redriven has
                // its message.
                Some(_) if found.status == Status::Enqueued && found.generation == 0 => {
                    expected = Some(version);
                }
                Some(_) => return Ok(None),
            }
        }
    }

    /// Stores an input blob for jobs to read, named from the root, with or without `/`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name, also one that begins with `results/`,
    /// `args/`, `drains/`, `ready/` or `cancelled/`, `cleaning.json` and `cancelled.json`; the store's own.
    pub async fn put_input(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let name = input_blob(name)?;
        check_own("write an input", &name)?;
        self.store.blobs.put(&name, bytes, None).await
    }

    /// Stores everything that `content` yields, such as a file, as an input blob, whole or not at all, and
    /// returns its length in bytes. Holds two parts of 4 MiB.
    ///
    /// # Errors
    /// As of [`put_input`](Self::put_input). [`Internal`](ErrorKind::Internal) when `content` can't be
    /// read. [`Conflict`](ErrorKind::Conflict) when another program writes the same name at the same time.
    ///
    /// # Cancel safety
    /// A dropped call may have stored the input, and otherwise changes nothing.
    pub async fn write_input(&self, name: &str, content: impl AsyncRead + Send + Unpin) -> Result<u64> {
        const OPERATION: &str = "write an input";
        let (name, mut content, blobs) = (input_blob(name)?, content, &self.store.blobs);
        check_own(OPERATION, &name)?;
        let unreadable = |error| unusable(OPERATION, error);
        let mut part = next_part(&mut content, PART_BYTES).await.map_err(unreadable)?;
        if part.len() < PART_BYTES {
            let length = part.len() as u64;
            return blobs.put(&name, part.into(), None).await.map(|()| length);
        }
        let (upload, mut length, mut number) = (Upload::new(), 0, 0);
        while !part.is_empty() {
            length += part.len() as u64;
            Upload::parts(length)?;
            // A file that grows meanwhile is read to where it ended.
            let is_last = part.len() < PART_BYTES;
            let next = next_part(&mut content, if is_last { 0 } else { PART_BYTES });
            let (sent, next) = tokio::join!(blobs.put_part(&name, &upload, number, part), next);
            sent?;
            part = next.map_err(unreadable)?;
            number += 1;
        }
        blobs.put_parts(&name, &upload, length, None).await.map(|()| length)
    }

    /// Stores long arguments in a blob, before the message that names it exists.
    async fn place(&self, job: &JobId, args: Box<RawValue>) -> Result<Data> {
        if args.get().len() <= INLINE_ARGS_BYTES_MAX {
            return Ok(Data::Inline(args));
        }
        let name = args_blob(job)?;
        self.store.blobs.put(&name, args.get().as_bytes().to_vec(), None).await?;
        Ok(Data::Blob(name))
    }
}

/// The hash of the arguments in one form.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) when they are no JSON.
pub(crate) fn hash_args(args: &RawValue) -> Result<ContentHash> {
    Ok(ContentHash::of(canonical(args.get())?.as_bytes()))
}

/// The arguments in one form for every order of their objects' members, any spaces, and any way to write
/// a number that a computer reads as the same one. Numbers of over 64 bits stay as they are written.
fn canonical(json: &str) -> Result<String> {
    let invalid = |error: serde_json::Error| {
        Error::new(ErrorKind::Invalid, "enqueue a job", format!("the arguments: {error}"))
    };
    let json = json.trim();
    Ok(match json.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).map_err(invalid)?;
            let members = members.into_iter().map(|(name, value)| {
                Ok(format!("{}:{}", serde_json::Value::from(name), canonical(value.get())?))
            });
            format!("{{{}}}", members.collect::<Result<Vec<_>>>()?.join(","))
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).map_err(invalid)?;
            let elements = elements.into_iter().map(|element| canonical(element.get()));
            format!("[{}]", elements.collect::<Result<Vec<_>>>()?.join(","))
        }
        Some(b'"') => serde_json::from_str::<serde_json::Value>(json).map_err(invalid)?.to_string(),
        _ => match json.parse::<f64>() {
            Ok(number) if number.is_finite() && json.contains(['.', 'e', 'E']) => number.to_string(),
            _ => json.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_arguments_have_one_form_and_others_another() {
        let same = [r#"{"b": 1.50, "a": [1, "\u00e4"]}"#, "{\"a\":[1,\"ä\"],\n\"b\":15e-1}"];
        assert_eq!(canonical(same[0]).unwrap(), canonical(same[1]).unwrap());
        let all = [
            "340282366920938463463374607431768211455",
            "340282366920938463463374607431768211454",
            "340282366920938463463374607431768211455.0",
            "1e400",
            "-1e400",
            "1",
            "1.5",
            "true",
            "null",
            "\"1\"",
            "[1]",
            "[1,1]",
            "{}",
            "{\"1\":1}",
        ];
        let forms: std::collections::BTreeSet<_> = all.iter().map(|json| canonical(json).unwrap()).collect();
        assert_eq!(forms.len(), all.len(), "{forms:?}");
        let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
        assert_eq!(canonical(&deep).unwrap(), deep);
    }
}
