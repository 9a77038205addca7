//! The same job on Reprieve and on each peer. Its worker is killed (SIGKILL) or stopped (SIGTERM)
//! half way, with another worker idle: how long until the job runs again, how much is redone, is it
//! lost?
//!
//! The signal goes to all processes of the worker, as from a vanishing machine or a service
//! manager. All trials run at the same time, because they mostly wait. Their starts are staggered,
//! so that no trial starts processes while another kills some.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use reprieve_core::clock::unix_millis;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{Bench, say};
use crate::jobs::TicksArgs;
use crate::journal::{self, Tick};
use crate::measure::Kind;
use crate::peers::Peer;
use crate::place::{Durability, Place, job};
use crate::process::{self, Process};
use crate::wait::until;

const SECTION: &str = "failure";
/// The number of rounds: few, because one takes minutes.
const ROUNDS: usize = 2;
const TICKS: u64 = 40;
const TICK_MS: u64 = 500;

/// A job that has not resumed by then is lost: the slowest peer takes a minute.
const LOST: Duration = Duration::from_secs(150);

/// The time limit for a worker to begin the job.
const STARTING: Duration = Duration::from_secs(60);

/// The delay between the starts of two trials.
const STAGGER: Duration = Duration::from_millis(900);

const POLL: Duration = Duration::from_millis(20);

/// The killed system: Reprieve with this checkpoint interval, or a peer.
#[derive(Debug, Clone, Copy)]
enum Victim<'a> {
    Ours(&'static str),
    Peer(&'a Peer),
}

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    /// From the signal until another process did a tick; `None` when none did.
    again_seconds: Option<f64>,
    /// From the signal until the job's process had ended; `None` when it never ended.
    gone_seconds: Option<f64>,
    redone: usize,
    lost: bool,
}

/// A victim and its signal.
#[derive(Debug, Clone, Copy)]
struct Trial<'a> {
    victim: Victim<'a>,
    signal: Signal,
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let peers = Rc::clone(&bench.peers);
    let victims = ["auto", "0s"].map(Victim::Ours).into_iter().chain(peers.iter().map(Victim::Peer));
    let victims: Vec<_> = victims.collect();
    let each = |signal| victims.iter().map(move |victim| Trial { victim: *victim, signal });
    let trials: Vec<_> = each(Signal::KILL).chain(each(Signal::TERM)).collect();
    let all = trials.repeat(bench.rounds(ROUNDS));
    let faster = bench.amount(1, 5);
    say(&format!("failure: {} trials at the same time, for up to {:?} each", all.len(), LOST / faster));
    let outcomes = join_all((0..).zip(&all).map(async |(number, trial)| {
        sleep(STAGGER * number).await;
        say(&format!("failure: {}", trial.name()));
        trial.victim.trial(&bench.work, trial.signal, faster).await
    }));
    for (trial, outcome) in all.iter().zip(outcomes.await) {
        match outcome {
            Ok(outcome) => note(bench, trial, outcome),
            Err(error) => bench.missed(&format!("{SECTION}, {}", trial.name()), &error),
        }
    }
    Ok(())
}

fn note(bench: &mut Bench, trial: &Trial<'_>, outcome: Outcome) {
    let reference = matches!(trial.victim, Victim::Peer(_));
    let mut add = |what: &str, unit, value| {
        let name = format!("{}: {what}", trial.name());
        bench.add(Kind::lower(SECTION, name, unit).reference(reference), value);
    };
    if let Some(seconds) = outcome.again_seconds {
        add("until another worker goes on", "s", seconds);
    }
    // The time a killed process takes to die means nothing.
    if let (Some(seconds), Signal::TERM) = (outcome.gone_seconds, trial.signal) {
        add("until the worker has ended", "s", seconds);
    }
    #[expect(clippy::cast_precision_loss, reason = "few ticks")]
    let redone = outcome.redone as f64;
    add(&format!("steps redone, of {TICKS}"), "steps", redone);
    add("jobs lost, of 1", "jobs", f64::from(u8::from(outcome.lost)));
}

impl Trial<'_> {
    fn name(&self) -> String {
        let signal = if self.signal == Signal::KILL { "SIGKILL" } else { "SIGTERM" };
        format!("{signal}: {}", self.victim.name())
    }
}

impl Victim<'_> {
    fn name(&self) -> String {
        match self {
            Self::Ours("auto") => "ours, defaults".to_owned(),
            Self::Ours(every) => format!("ours, saving every {every}"),
            Self::Peer(peer) => peer.id.clone(),
        }
    }

    async fn trial(&self, work: &Path, signal: Signal, faster: u32) -> Result<Outcome> {
        let place = Place::new(work, Durability::PowerLoss)?;
        let server = match self {
            Self::Peer(peer) if peer.has_server() => Some(peer.serve(place.directory()).await?),
            _ => None,
        };
        self.enqueue(&place, TICK_MS / u64::from(faster)).await?;
        let noted = place.path("journal");
        let ticks = || journal::read(&noted);

        let victim = self.work(&place, "first")?;
        let begun = || Ok((!ticks()?.is_empty()).then_some(()));
        let running = until("the job runs", STARTING, POLL, begun).await;
        running.with_context(|| victim.log_tail())?;
        let other = self.work(&place, "second")?;
        let half = || Ok((ticks()?.len() as u64 >= TICKS / 2).then_some(()));
        until("the job is half done", STARTING, POLL, half).await?;

        let before = ticks()?;
        let first = before.first().context("a job without ticks")?.pid;
        ensure!(before.iter().all(|tick| tick.pid == first), "another worker took the job before the signal");
        let (signalled, at_unix_ms) = (Instant::now(), unix_millis());
        victim.signal_all(signal)?;
        // Some workers finish the job before they end. Reaching the limit is no error: some trials
        // are about a process that never ends.
        let mut gone_seconds = None;
        while signalled.elapsed() < LOST / faster && !(is_done(&ticks()?) && gone_seconds.is_some()) {
            if gone_seconds.is_none() && !process::runs(first) {
                gone_seconds = Some(signalled.elapsed().as_secs_f64());
            }
            sleep(POLL).await;
        }
        let outcome = Outcome { gone_seconds, ..outcome(&ticks()?, first, at_unix_ms) };
        kill([Some(victim), Some(other), server]).await?;
        Ok(outcome)
    }

    async fn enqueue(&self, place: &Place, tick_ms: u64) -> Result<()> {
        match self {
            Self::Ours(_) => {
                let args = TicksArgs { ticks: TICKS, tick_ms, journal: place.path("journal") };
                place.enqueue(vec![job("ticks", &args)?]).await?;
                Ok(())
            }
            Self::Peer(peer) => peer.enqueue(place.directory(), TICKS, tick_ms).await,
        }
    }

    fn work(&self, place: &Place, which: &str) -> Result<Process> {
        match self {
            Self::Ours(every) => place.worker(&["--checkpoint-every", every]),
            Self::Peer(peer) => peer.work(place.directory(), &format!("{which}.log")),
        }
    }
}

fn is_done(ticks: &[Tick]) -> bool {
    journal::distinct(ticks) as u64 == TICKS
}

fn outcome(ticks: &[Tick], first: u32, signalled_unix_ms: i64) -> Outcome {
    let again = ticks.iter().find(|tick| tick.pid != first);
    #[expect(clippy::cast_precision_loss, reason = "some minutes in milliseconds")]
    let again_seconds = again.map(|tick| (tick.at_unix_ms - signalled_unix_ms) as f64 / 1e3);
    Outcome { again_seconds, gone_seconds: None, redone: journal::redone(ticks), lost: !is_done(ticks) }
}

/// Ends the processes that still run.
async fn kill(processes: impl IntoIterator<Item = Option<Process>>) -> Result<()> {
    for process in processes.into_iter().flatten() {
        process.kill().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(at_unix_ms: i64, pid: u32, number: u64) -> Tick {
        Tick { at_unix_ms, pid, number }
    }

    #[test]
    fn repeated_ticks_are_redone_and_missing_ticks_are_lost() {
        let before: Vec<_> = (0..10).map(|n| tick(i64::try_from(n).unwrap(), 7, n)).collect();
        let lost = Outcome { again_seconds: None, gone_seconds: None, redone: 0, lost: true };
        assert_eq!(outcome(&before, 7, 1_000), lost);
        let after = (8..TICKS).map(|n| tick(3_500, 8, n));
        let all: Vec<_> = before.into_iter().chain(after).collect();
        let survived = Outcome { again_seconds: Some(2.5), gone_seconds: None, redone: 2, lost: false };
        assert_eq!(outcome(&all, 7, 1_000), survived);
    }

    #[test]
    fn a_job_that_its_own_worker_finishes_did_not_run_again() {
        let all: Vec<_> = (0..TICKS).map(|n| tick(0, 7, n)).collect();
        let finished = Outcome { again_seconds: None, gone_seconds: None, redone: 0, lost: false };
        assert_eq!(outcome(&all, 7, 0), finished);
    }
}
