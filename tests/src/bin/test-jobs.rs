//! A worker with jobs for all the behaviour that tests need. Each job writes its steps to a
//! journal.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use reprieve::dependency::{Dependency, Signal};
use reprieve::{Job, JobContext, JobError, Step, async_trait};
use reprieve_tests::{Journal, Measured, Walked, peak_kib};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

fn main() -> ExitCode {
    reprieve::run(|worker| {
        let worker = worker.job(Walk).job(Spin).job(Fail).job(PanicOnce).job(Killer);
        let worker = worker.job(Bulky).job(Attacher).job(Copier).job(Hungry);
        match std::env::var_os("TEST_BLOCKS_CONTROL") {
            Some(path) => worker.dependency("blocker", Arc::new(Blocker(path.into()))),
            None => worker,
        }
    })
}

/// Blocks the control thread for ever once this file exists.
#[derive(Debug)]
struct Blocker(PathBuf);

#[async_trait]
impl Dependency for Blocker {
    async fn probe(&self) -> Result<(), String> {
        Ok(())
    }

    async fn next_signal(&self) -> Signal {
        while !self.0.exists() {
            sleep(Duration::from_millis(20)).await;
        }
        loop {
            std::thread::park();
        }
    }
}

/// Takes `steps` steps. Each writes to the journal as it begins, waits, and writes an output with
/// its process id.
struct Walk;

#[derive(Deserialize)]
struct WalkArgs {
    steps: u64,
    each_ms: u64,
    journal: PathBuf,
    /// Whether the job estimates its remaining time. It reports its progress in any case.
    #[serde(default)]
    tells: bool,
}

#[derive(Serialize, Deserialize)]
struct WalkAt {
    next: u64,
    /// A digest of the numbers of all steps so far: wrong if a step was left out or counted twice.
    sum: u64,
}

#[async_trait]
impl Job for Walk {
    const KIND: &'static str = "walk";
    type Args = WalkArgs;
    type Checkpoint = WalkAt;
    type Output = Walked;

    fn begin(&self, _: &WalkArgs) -> WalkAt {
        WalkAt { next: 0, sum: 0 }
    }

    fn remaining(&self, args: &WalkArgs, at: &WalkAt) -> Option<Duration> {
        args.tells.then(|| Duration::from_millis((args.steps - at.next) * args.each_ms))
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &WalkArgs,
        at: WalkAt,
    ) -> Result<Step<WalkAt, Walked>, JobError> {
        cx.progress(at.next, args.steps);
        if at.next == args.steps {
            return Ok(Step::Done(Walked { sum: at.sum, delivery: cx.delivery(), pid: std::process::id() }));
        }
        Journal::new(&args.journal).note(cx.job().as_str(), at.next).map_err(JobError::fatal)?;
        sleep(Duration::from_millis(args.each_ms)).await;
        let output = format!("step {} by {}", at.next, std::process::id());
        cx.put_output(&format!("/walks/{}/{}", cx.job(), at.next), output.into_bytes()).await?;
        Ok(Step::Continue(WalkAt { next: at.next + 1, sum: at.sum + at.next }))
    }
}

/// Keeps a core busy without ever awaiting, `each_ms` at a time. The job estimates no remaining
/// time.
struct Spin;

#[derive(Deserialize)]
struct SpinArgs {
    steps: u64,
    each_ms: u64,
}

#[derive(Serialize)]
struct Spun {
    delivery: u32,
    pid: u32,
}

#[async_trait]
impl Job for Spin {
    const KIND: &'static str = "spin";
    type Args = SpinArgs;
    type Checkpoint = u64;
    type Output = Spun;

    fn begin(&self, _: &SpinArgs) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, args: &SpinArgs, at: u64) -> Result<Step<u64, Spun>, JobError> {
        if at == args.steps {
            return Ok(Step::Done(Spun { delivery: cx.delivery(), pid: std::process::id() }));
        }
        let until = Instant::now() + Duration::from_millis(args.each_ms);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok(Step::Continue(at + 1))
    }
}

/// Takes memory in the course of half of its time, and keeps it for the rest. Returns its delivery.
struct Hungry;

#[derive(Deserialize)]
struct HungryArgs {
    mib: usize,
    lasts_ms: u64,
}

#[async_trait]
impl Job for Hungry {
    const KIND: &'static str = "hungry";
    type Args = HungryArgs;
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, _: &HungryArgs) {}

    async fn step(&self, cx: &JobContext, args: &HungryArgs, (): ()) -> Result<Step<(), u32>, JobError> {
        let mut taken = Vec::new();
        for number in 0..args.mib {
            // Not zero, so that the kernel must give the pages.
            taken.push(vec![u8::try_from(number % 200).unwrap_or(0) + 1; 1 << 20]);
            sleep(Duration::from_millis(args.lasts_ms / 2 / args.mib as u64)).await;
        }
        sleep(Duration::from_millis(args.lasts_ms / 2)).await;
        drop(std::hint::black_box(taken));
        Ok(Step::Done(cx.delivery()))
    }
}

/// Always fails.
struct Fail;

#[derive(Deserialize)]
struct FailArgs {
    fatal: bool,
    journal: PathBuf,
    /// The length of a line that it logs.
    #[serde(default)]
    logs_bytes: usize,
}

#[async_trait]
impl Job for Fail {
    const KIND: &'static str = "fail";
    type Args = FailArgs;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &FailArgs) {}

    async fn step(&self, cx: &JobContext, args: &FailArgs, (): ()) -> Result<Step<(), ()>, JobError> {
        Journal::new(&args.journal).note(cx.job().as_str(), 0).map_err(JobError::fatal)?;
        if args.logs_bytes > 0 {
            tracing::warn!(text = "x".repeat(args.logs_bytes), "a long line");
        }
        if args.fatal {
            Err(JobError::fatal("this can't be done"))
        } else {
            Err(JobError::retry("not yet").after(Duration::from_millis(20)))
        }
    }
}

/// Panics on its first delivery.
struct PanicOnce;

#[async_trait]
impl Job for PanicOnce {
    const KIND: &'static str = "panic-once";
    type Args = ();
    type Checkpoint = ();
    type Output = u32;

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), u32>, JobError> {
        assert!(cx.delivery() > 1, "panicking as asked");
        Ok(Step::Done(cx.delivery()))
    }
}

/// Aborts its process, as a crash in native code or a lack of memory does.
struct Killer;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KillsAt {
    /// While its arguments are parsed.
    Args,
    Begin,
    /// Two seconds after the start of its first step.
    Step,
    /// At its hundredth step of 20 ms.
    Hundredth,
    /// While a state of 20 MB is loaded.
    State,
}

struct KillerArgs(KillsAt);

impl<'de> Deserialize<'de> for KillerArgs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let at = KillsAt::deserialize(from)?;
        if at == KillsAt::Args {
            std::process::abort();
        }
        Ok(Self(at))
    }
}

#[derive(Serialize)]
struct KillerAt {
    step: u32,
    ballast: String,
}

impl<'de> Deserialize<'de> for KillerAt {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Plain {
            step: u32,
            ballast: String,
        }
        let Plain { step, ballast } = Plain::deserialize(from)?;
        if !ballast.is_empty() {
            std::process::abort();
        }
        Ok(Self { step, ballast })
    }
}

#[async_trait]
impl Job for Killer {
    const KIND: &'static str = "killer";
    type Args = KillerArgs;
    type Checkpoint = KillerAt;
    type Output = ();

    fn begin(&self, args: &KillerArgs) -> KillerAt {
        if args.0 == KillsAt::Begin {
            std::process::abort();
        }
        KillerAt { step: 0, ballast: String::new() }
    }

    async fn step(
        &self,
        _: &JobContext,
        args: &KillerArgs,
        at: KillerAt,
    ) -> Result<Step<KillerAt, ()>, JobError> {
        let step = at.step + 1;
        match args.0 {
            KillsAt::Step => {
                sleep(Duration::from_secs(2)).await;
                std::process::abort();
            }
            KillsAt::Hundredth if step == 100 => std::process::abort(),
            KillsAt::State if step == 2 => std::process::abort(),
            KillsAt::State => Ok(Step::Continue(KillerAt { step, ballast: "x".repeat(20 << 20) })),
            KillsAt::Args | KillsAt::Begin | KillsAt::Hundredth => {
                sleep(Duration::from_millis(20)).await;
                Ok(Step::Continue(KillerAt { step, ballast: at.ballast }))
            }
        }
    }
}

/// Carries a large state through its steps.
struct Bulky;

#[derive(Deserialize)]
struct BulkyArgs {
    floats: usize,
    steps: u64,
    /// Whether each step saves for itself.
    saves: bool,
}

#[derive(Serialize, Deserialize)]
struct BulkyAt {
    step: u64,
    floats: Vec<f64>,
}

#[async_trait]
impl Job for Bulky {
    const KIND: &'static str = "bulky";
    type Args = BulkyArgs;
    type Checkpoint = BulkyAt;
    type Output = Measured;

    fn begin(&self, args: &BulkyArgs) -> BulkyAt {
        let mut number = 0.1_f64;
        let chaos = std::iter::repeat_with(|| {
            number = 3.99 * number * (1.0 - number);
            number
        });
        BulkyAt { step: 0, floats: chaos.take(args.floats).collect() }
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &BulkyArgs,
        mut at: BulkyAt,
    ) -> Result<Step<BulkyAt, Measured>, JobError> {
        if at.step == args.steps {
            let digest =
                at.floats.iter().fold(0, |digest: u64, number| digest.rotate_left(5) ^ number.to_bits());
            return Ok(Step::Done(Measured { digest, delivery: cx.delivery(), peak_kib: peak_kib() }));
        }
        sleep(Duration::from_millis(300)).await;
        for number in &mut at.floats {
            *number = 3.99 * *number * (1.0 - *number);
        }
        at.step += 1;
        if args.saves {
            cx.save::<Self>(&at).await?;
        }
        Ok(Step::Continue(at))
    }
}

/// Attaches a large content, changes a part of it in every step, and reads it at the first step of
/// each delivery.
struct Attacher;

#[derive(Deserialize)]
struct AttacherArgs {
    bytes: u64,
    steps: u64,
}

/// Writes a large output, copies it as a stream, and reads the copy.
struct Copier;

#[derive(Deserialize)]
struct CopierArgs {
    bytes: u64,
    copies: u64,
}

#[async_trait]
impl Job for Copier {
    const KIND: &'static str = "copier";
    type Args = CopierArgs;
    type Checkpoint = u64;
    type Output = Measured;

    fn begin(&self, _: &CopierArgs) -> u64 {
        0
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &CopierArgs,
        at: u64,
    ) -> Result<Step<u64, Measured>, JobError> {
        let pattern = || Pattern { step: 1, at: 0, bytes: args.bytes };
        if at == 0 {
            cx.write_output("0", pattern()).await?;
        } else if at <= args.copies {
            let mut from = cx.input_stream(&cx.output_name(&(at - 1).to_string())?).await?;
            let mut to = cx.output_stream(&at.to_string())?;
            tokio::io::copy(&mut from, &mut to).await.map_err(JobError::retry)?;
            to.finish().await?;
            if at > 1 {
                // The one before is needed if this step runs again.
                cx.delete_output(&(at - 2).to_string()).await?;
            }
        } else {
            let length = cx.read_input(&cx.output_name(&args.copies.to_string())?, pattern()).await?;
            return Ok(Step::Done(Measured {
                digest: length,
                delivery: cx.delivery(),
                peak_kib: peak_kib(),
            }));
        }
        Ok(Step::Continue(at + 1))
    }
}

/// The length of a part of the content. Part number n of step s consists of a byte that only n and
/// the last step that changed it determine.
const PART: u64 = 4 << 20;

fn part(step: u64, number: u64, parts: u64) -> u8 {
    // In step s, part s % parts changes.
    let changed = if step > number { (step - 1 - number) / parts + 1 } else { 0 };
    ((number * 31 + changed * 7) % 251) as u8
}

/// The content at a step: read from it, or compare what is written with it.
struct Pattern {
    step: u64,
    at: u64,
    bytes: u64,
}

impl Pattern {
    /// Returns the byte at the present position, and how many of it follow.
    fn next(&self) -> (u8, u64) {
        let byte = part(self.step, self.at / PART, self.bytes.div_ceil(PART));
        (byte, (PART - self.at % PART).min(self.bytes - self.at))
    }
}

impl AsyncRead for Pattern {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (byte, run) = self.next();
        let now = buf.remaining().min(usize::try_from(run).unwrap_or(usize::MAX));
        buf.initialize_unfilled_to(now).fill(byte);
        buf.advance(now);
        self.at += now as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pattern {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (byte, run) = self.next();
        let now = bytes.len().min(usize::try_from(run).unwrap_or(usize::MAX));
        if bytes[..now] != vec![byte; now] {
            let message = format!("another content than at step {}, near byte {}", self.step, self.at);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        self.at += now as u64;
        Poll::Ready(Ok(now))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Job for Attacher {
    const KIND: &'static str = "attacher";
    type Args = AttacherArgs;
    type Checkpoint = u64;
    type Output = Measured;

    fn begin(&self, _: &AttacherArgs) -> u64 {
        0
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &AttacherArgs,
        at: u64,
    ) -> Result<Step<u64, Measured>, JobError> {
        let pattern = |step| Pattern { step, at: 0, bytes: args.bytes };
        if cx.steps() == 0 && at > 0 && cx.attach("content").read(pattern(at)).await? != Some(args.bytes) {
            return Err(JobError::fatal(format!("nothing is attached at step {at}")));
        }
        if at == args.steps {
            return Ok(Step::Done(Measured { digest: at, delivery: cx.delivery(), peak_kib: peak_kib() }));
        }
        cx.attach("content").write(pattern(at + 1)).await?;
        Ok(Step::Continue(at + 1))
    }
}
