//! Jobs with large data, which measure their own saves.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use reprieve::clock::unix_millis;
use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::note;

/// Has a state of floats, saves it several times within a step, writes to a journal that it has, and
/// waits to be interrupted. Its output is how long the saves took.
#[derive(Debug)]
pub struct Computes;

/// The arguments of [`Computes`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComputesArgs {
    /// The number of floats.
    pub floats: usize,
    /// The number of saves.
    pub saves: usize,
    /// The journal's path.
    pub journal: PathBuf,
    /// Whether it ends, and does not wait to be interrupted.
    pub ends: bool,
}

/// The state of [`Computes`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ComputesAt {
    begun: bool,
    floats: Vec<f64>,
}

/// Floats that use all their digits, from a chaotic sequence.
#[must_use]
pub fn floats(number: usize) -> Vec<f64> {
    let mut float = 0.1_f64;
    let next = || {
        float = next_float(float);
        float
    };
    std::iter::repeat_with(next).take(number).collect()
}

/// Changes every float.
pub fn change(floats: &mut [f64]) {
    for float in floats {
        *float = next_float(*float);
    }
}

pub(super) fn next_float(float: f64) -> f64 {
    3.99 * float * (1.0 - float)
}

#[async_trait]
impl Job for Computes {
    const KIND: &'static str = "computes";
    type Args = ComputesArgs;
    type Checkpoint = ComputesAt;
    type Output = Vec<f64>;

    fn begin(&self, args: &ComputesArgs) -> ComputesAt {
        ComputesAt { begun: false, floats: floats(args.floats) }
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &ComputesArgs,
        mut at: ComputesAt,
    ) -> Result<Step<ComputesAt, Vec<f64>>, JobError> {
        if !at.begun {
            return Ok(Step::Continue(ComputesAt { begun: true, ..at }));
        }
        let mut took_ms = Vec::new();
        for _ in 0..args.saves {
            change(&mut at.floats);
            let began = Instant::now();
            if !cx.save::<Self>(&at).await? {
                return Err(JobError::retry("a save failed"));
            }
            took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
        change(&mut at.floats);
        note(&args.journal, 0).map_err(JobError::retry)?;
        if args.ends {
            return Ok(Step::Done(took_ms));
        }
        cx.interrupted().await;
        Ok(Step::Continue(at))
    }
}

/// Attaches a content, changes a hundredth of it and attaches it again, and reads it. Its output is how
/// long each took.
#[derive(Debug)]
pub struct Attaches;

/// The arguments of [`Attaches`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttachesArgs {
    /// The length of the content.
    pub bytes: u64,
}

/// The output of [`Attaches`], in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttachesTook {
    /// The first time, with the save.
    pub first: f64,
    /// The second time, with one part in a hundred changed.
    pub again: f64,
    /// Reading.
    pub read: f64,
}

/// The length of the parts that change.
const PART: u64 = 1 << 20;

/// A content in which every part differs, and one in a hundred from that of another version.
struct Content {
    version: u64,
    at: u64,
    bytes: u64,
}

impl AsyncRead for Content {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let part = self.at / PART;
        // The parts that change are together, as where a simulation has changed a region.
        let changed = if part < self.bytes.div_ceil(PART).div_ceil(100) { self.version } else { 0 };
        let left = (PART - self.at % PART).min(self.bytes - self.at);
        let length = to.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut seed = (((part << 8) | changed) << 32) | (self.at % PART);
        for byte in to.initialize_unfilled_to(length) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (seed >> 56) as u8;
        }
        to.advance(length);
        self.at += length as u64;
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Job for Attaches {
    const KIND: &'static str = "attaches";
    type Args = AttachesArgs;
    type Checkpoint = i64;
    type Output = AttachesTook;

    fn begin(&self, _: &AttachesArgs) -> i64 {
        0
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &AttachesArgs,
        at: i64,
    ) -> Result<Step<i64, AttachesTook>, JobError> {
        if at == 0 {
            return Ok(Step::Continue(unix_millis()));
        }
        let mut took = [0.0; 2];
        for (version, took) in (1..).zip(&mut took) {
            let began = Instant::now();
            cx.attach("content").write(Content { version, at: 0, bytes: args.bytes }).await?;
            // The save needs a state that differs.
            if !cx.save::<Self>(&(at + i64::try_from(version).unwrap_or(0))).await? {
                return Err(JobError::retry("a save failed"));
            }
            *took = began.elapsed().as_secs_f64() * 1e3;
        }
        let began = Instant::now();
        let read = cx.attach("content").read(tokio::io::sink()).await?;
        if read != Some(args.bytes) {
            return Err(JobError::fatal("the content has another length"));
        }
        let [first, again] = took;
        Ok(Step::Done(AttachesTook { first, again, read: began.elapsed().as_secs_f64() * 1e3 }))
    }
}

/// Copies an input, which is its argument, to an output, as streams. Its output is how long it took, in
/// milliseconds.
#[derive(Debug)]
pub struct Copies;

#[async_trait]
impl Job for Copies {
    const KIND: &'static str = "copies";
    type Args = String;
    type Checkpoint = ();
    type Output = f64;

    fn begin(&self, _: &String) {}

    async fn step(&self, cx: &JobContext, input: &String, (): ()) -> Result<Step<(), f64>, JobError> {
        let began = Instant::now();
        let from = cx.input_stream(input).await?;
        cx.write_output("copy", from).await?;
        Ok(Step::Done(began.elapsed().as_secs_f64() * 1e3))
    }
}
