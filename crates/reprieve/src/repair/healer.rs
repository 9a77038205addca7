//! The healer of one worker: from a proven fault to a machine that is reported, and back.

use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::clock::unix_millis;
use reprieve_core::healing::{
    Action, Evidence, Fault, Fleet, HealingAction, Layer, Outcome, Refusal, Verdict, decide, refuse_to_follow,
};
use reprieve_core::interruption::Stage;
use reprieve_core::ports::Store;
use reprieve_core::retry::bounded;
use reprieve_core::worker::{Claim, Claims, Monitor};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::diagnosis::Diagnosis;
use super::drain_source::DrainSource;
use super::fleet;
use super::history::{History, TRY, into_error};
use super::probe::Probe;
use super::since_boot::since_boot;
use crate::health::Health;
use crate::logging::Recent;

/// How often the disks are probed. Three writes must fail alike, so a fault is proven after 20 to 30 s.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// How long the healer waits for a probe. It looks again at the next one's time.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// How far apart two looks at the fleet in a row are at most, where disks and the store are slow.
const IN_A_ROW: Duration = PROBE_EVERY.saturating_mul(3);

/// How often the store is asked for what earlier workers of the VM had written, at each probe; and how long it is not asked
/// then. A fleet may have been given a volume for reading, and each answer is one request for each worker of a day.
const ASKED_OFTEN: u32 = 18;
const ASKED_AGAIN: Duration = Duration::from_mins(10);

/// How long a VM is reported as unhealthy at most: the longest period of grace of automatic repairs, 90 minutes,
/// and half an hour for the repair. Repairs are not enabled, or are suspended, if it still lives then.
/// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-automatic-instance-repairs>
const REPORTED_MAX: Duration = Duration::from_hours(2);

/// A follower that sees the claim go so shortly before gives up as well: its look is not at the other's time.
const REPORTED_SLACK: Duration = Duration::from_mins(1);

/// How long a claim of this VM counts that the store does not show: another VM may have it then.
const CLAIM_SHOWN_WITHIN: Duration = Duration::from_mins(10);

/// How long the drain may take beyond its budget until its end is known.
const DRAIN_SLACK: Duration = Duration::from_secs(5);

/// Watches the disks of this VM.
pub(super) struct Healer {
    store: Store,
    monitor: Monitor,
    health: Health,
    drains: DrainSource,
    log: Recent,
    vm: String,
    boot: String,
    budget: Duration,
    claims: Claims,
    /// When the store last showed the fleet, and how it was.
    seen: Option<(Instant, Fleet)>,
    /// When it last looked at the fleet, and how it was.
    looked: Option<(Instant, Fleet)>,
    /// When it read how long ago an earlier worker of this VM had reported, and how long that was.
    before: Option<(Instant, Option<Duration>)>,
    /// Why the VM was kept although it has a fault.
    refused: Option<Refusal>,
    /// How long after the last sound write its fault was proven.
    found_after: Option<Duration>,
    history: History,
    repair: Repair,
    /// A claim was given up, and the store may still show what is left of it.
    may_have_left_claim: bool,
}

/// What is done about a fault.
#[derive(Debug)]
enum Repair {
    /// Nothing.
    None,
    /// Another worker of this VM holds its claim. This one has released everything, and answers `Unhealthy`, too, if
    /// it answers health checks.
    Followed { since: Instant, seen: Instant },
    /// This worker answers `Unhealthy`.
    Reported { since: Instant, claim: Claim },
    /// Nobody replaced the VM. It works on, as well as it can.
    GivenUp,
}

/// What is known from earlier workers of this boot.
#[derive(Debug, Default)]
struct Earlier {
    /// The diagnosis that one of them may have left is read.
    is_read: bool,
    /// The place of its fault, until it is seen to be sound.
    open: Option<String>,
    /// How often the store has said to which places they had written.
    asked: u32,
    /// When it was asked last.
    asked_at: Option<Instant>,
}

impl Earlier {
    /// Whether to ask to which places they have written: an earlier worker must be gone for a minute, so for a few minutes
    /// the answer changes.
    fn is_to_be_asked(&self) -> bool {
        self.asked < ASKED_OFTEN || self.asked_at.is_none_or(|at| at.elapsed() >= ASKED_AGAIN)
    }
}

/// What the healer is made of.
pub(super) struct Parts {
    pub(super) store: Store,
    pub(super) monitor: Monitor,
    pub(super) health: Health,
    pub(super) drains: DrainSource,
    pub(super) log: Recent,
    pub(super) vm: String,
    pub(super) boot: String,
    pub(super) budget: Duration,
}

fn look(mut probe: Probe) -> (Probe, Option<Fault>) {
    let fault = probe.look();
    (probe, fault)
}

impl Healer {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { store, monitor, health, drains, log, vm, boot, budget } = parts;
        let claims = Claims::new(&store, if boot.is_empty() { &vm } else { &boot }, monitor.worker());
        let history = History::new(store.clone(), vm.clone(), boot.clone());
        let (seen, looked, before, refused, found_after) = (None, None, None, None, None);
        Self {
            store,
            monitor,
            health,
            drains,
            log,
            vm,
            boot,
            budget,
            claims,
            seen,
            looked,
            before,
            refused,
            found_after,
            history,
            repair: Repair::None,
            may_have_left_claim: false,
        }
    }

    /// Probes the disks until the process ends.
    pub(super) async fn run(mut self, probe: Probe) {
        let (mut is_first, mut fault, mut still_fails, mut sound_at) = (true, None, false, None);
        let (mut idle, mut looking) = (Some(probe), None);
        let mut earlier = Earlier::default();
        let mut ticks = interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(probe) = idle.take() {
                looking = Some(spawn_blocking(move || look(probe)));
            }
            // A disk that hangs proves nothing, and holds up a thread of its own only.
            if let Some(look) = &mut looking
                && let Ok(looked) = timeout(PROBE_WITHIN, look).await
            {
                let Ok((mut probe, seen)) = looked else { return };
                self.show(&probe, seen.as_ref(), std::mem::take(&mut is_first));
                if probe.is_sound() {
                    sound_at = Some(Instant::now());
                }
                if fault.is_none() && seen.is_some() {
                    self.found_after = sound_at.map(|at: Instant| at.elapsed());
                }
                let open = &mut earlier.open;
                open.take_if(|place| seen.as_ref().is_some_and(|fault| fault.place == *place));
                if let Some(place) = open.take_if(|place| probe.is_sound_at(place)) {
                    self.history.note_sound(place);
                }
                self.learn(&mut probe, &mut earlier).await;
                still_fails = probe.still_fails();
                (idle, looking, fault) = (Some(probe), None, seen);
            }
            self.review(fault.clone(), still_fails).await;
        }
    }

    /// Shows in the worker's report what the probe has seen.
    fn show(&self, probe: &Probe, fault: Option<&Fault>, is_first: bool) {
        let directories = probe.directories();
        let suspected = probe.suspected();
        if is_first {
            tracing::info!(?directories, "watching the disks of this VM");
            if let Some(fault) = &suspected {
                tracing::warn!(
                    %fault,
                    "this VM may have a fault: it is kept unless an earlier worker of this boot has written there"
                );
            }
        }
        let suspected = suspected.map(|fault| format!("{fault} since this worker began"));
        let unproven = || probe.unproven().map(|fault| format!("{fault} within a minute, not proven"));
        self.monitor.show_fault(fault.map(ToString::to_string).or(suspected).or_else(unproven));
        self.monitor.show_written(directories.iter().map(|path| path.to_string_lossy()));
    }

    /// Learns from the store what earlier workers of this boot knew of the disks. Only after a look, which a store that
    /// does not answer must not delay: until then this VM would seem to be sound.
    async fn learn(&self, probe: &mut Probe, earlier: &mut Earlier) {
        if !earlier.is_read
            && let Ok(before) = self.history.of_this_boot().await
        {
            earlier.is_read = true;
            if let Some(Diagnosis { place, healed, .. }) = before {
                probe.trust(&place);
                earlier.open = (!healed).then_some(place);
            }
        }
        if !probe.wants_trust() || !earlier.is_to_be_asked() {
            return;
        }
        let written = fleet::written_before(&*self.store.roster, &self.boot);
        if let Ok(places) = bounded("read the roster", TRY, written).await {
            (earlier.asked, earlier.asked_at) = (earlier.asked.saturating_add(1), Some(Instant::now()));
            for place in &places {
                probe.trust(place);
            }
        }
    }

    /// Decides what a fault, or the end of one, asks for. A fault lasts until a minute of sound writes, but only one that
    /// `still_fails` has a repair begun.
    async fn review(&mut self, fault: Option<Fault>, still_fails: bool) {
        self.history.note(fault.as_ref());
        self.turn(fault, still_fails).await;
        self.release_what_is_left_of_a_claim().await;
        self.history.write_down().await;
    }

    /// A claim that was given up while the store was away stays in it, where it would hold up the repair of another VM.
    async fn release_what_is_left_of_a_claim(&mut self) {
        if self.may_have_left_claim && !matches!(self.repair, Repair::Reported { .. }) {
            let released = bounded("read the claims", TRY, self.claims.is_held_by_another_worker()).await;
            self.may_have_left_claim = released.is_err();
        }
    }

    async fn turn(&mut self, fault: Option<Fault>, still_fails: bool) {
        match (&self.repair, fault) {
            (Repair::GivenUp, Some(_)) | (Repair::None, None) => self.refused = None,
            (Repair::GivenUp, None) => {
                tracing::info!("the fault of this VM is gone, after nobody had replaced the VM");
                self.history.note_given_up();
                self.repair = Repair::None;
            }
            (Repair::Followed { .. } | Repair::Reported { .. }, None) => {
                self.take_back("the fault is gone", Outcome::Healed, Repair::None);
            }
            (Repair::Reported { claim, .. }, Some(_)) if claim.is_lost() => {
                self.take_back("the claim could not be renewed", Outcome::Failed, Repair::None);
            }
            (Repair::Followed { since, .. } | Repair::Reported { since, .. }, Some(_))
                if since.elapsed() > REPORTED_MAX =>
            {
                self.take_back("nobody has replaced this VM for two hours", Outcome::Failed, Repair::GivenUp);
            }
            (Repair::Followed { seen, .. }, Some(_)) if seen.elapsed() > CLAIM_SHOWN_WITHIN => {
                self.take_back(
                    "the store has not shown the claim of this VM for ten minutes",
                    Outcome::Failed,
                    Repair::None,
                );
            }
            (Repair::Reported { .. }, Some(_)) => {}
            // The platform takes this VM away already.
            (Repair::None, Some(_)) if self.monitor.stage() == Stage::Shutdown => {}
            (Repair::None, Some(_)) if !still_fails => {}
            (Repair::None | Repair::Followed { .. }, Some(fault)) => {
                if let Err(error) = self.consider(fault).await {
                    tracing::warn!(%error, "this VM has a fault, and the store can't be asked what to do about it");
                }
            }
        }
    }

    /// Decides what to do about a fault, and does it.
    async fn consider(&mut self, fault: Fault) -> Result<()> {
        if let Ok(fleet) = bounded("read the roster", TRY, self.look_at_fleet()).await {
            self.seen = Some((Instant::now(), fleet));
        }
        let is_claimed = bounded("read the claims", TRY, self.claims.is_held_by_another_worker()).await?;
        if let Repair::Followed { since, .. } = self.repair {
            if is_claimed {
                self.follow(&fault).await;
            } else {
                let is_over = since.elapsed() + REPORTED_SLACK > REPORTED_MAX;
                let repair = if is_over { Repair::GivenUp } else { Repair::None };
                self.take_back("no worker of this VM holds a claim any more", Outcome::Failed, repair);
            }
            return Ok(());
        }
        if !is_claimed && !self.health.is_serving() {
            return Ok(());
        }
        let evidence = self.evidence(fault).await?;
        let verdict = match refuse_to_follow(&evidence) {
            Some(why) if is_claimed => Verdict::Keep(why),
            _ if is_claimed => {
                if let Some(fault) = &evidence.fault {
                    self.follow(fault).await;
                }
                return Ok(());
            }
            _ => decide(&evidence),
        };
        match verdict {
            Verdict::Keep(why) => {
                if self.refused.replace(why) != Some(why) {
                    let fault = evidence.fault.map(|fault| fault.to_string());
                    tracing::error!(fault, why = why.as_str(), "this VM has a fault, and is kept");
                }
            }
            Verdict::Replace { fault, claims } => {
                let Some(claim) = self.claims.take(claims).await else {
                    tracing::info!(%fault, claims, "this VM has a fault; as many others are being replaced as may be");
                    return Ok(());
                };
                self.replace(&fault, claim).await?;
            }
        }
        Ok(())
    }

    /// Reads the fleet. After an outage, those that reported before it are a part of it until they had time to be back: also
    /// for a worker that was started in the outage, and knows of it only by the last report of an earlier one.
    async fn look_at_fleet(&mut self) -> Result<Fleet> {
        let (roster, vm, boot) = (&*self.store.roster, &self.vm, &self.boot);
        let is_new = self.monitor.first_reported().is_none_or(|ago| ago < fleet::RECENT);
        if is_new && self.before.is_none() {
            let ago = fleet::last_before(roster, vm, boot, self.monitor.worker()).await?;
            self.before = Some((Instant::now(), ago));
        }
        let before = self.before.filter(|_| is_new).and_then(|(read_at, ago)| Some(ago? + read_at.elapsed()));
        let away = self.monitor.store_was_away_since().max(before).unwrap_or_default();
        let fleet = fleet::look(roster, vm, boot, fleet::RECENT + away, is_new).await?;
        let before = self.looked.replace((Instant::now(), fleet)).filter(|(at, _)| at.elapsed() <= IN_A_ROW);
        let before = before.map_or(0, |(_, before)| before.healthy);
        // After an outage one that is just back may not have looked at its disks yet. The next look shows it.
        Ok(if away.is_zero() { fleet } else { Fleet { healthy: fleet.healthy.min(before), ..fleet } })
    }

    async fn evidence(&self, fault: Fault) -> Result<Evidence> {
        Ok(Evidence {
            fault: Some(fault),
            store_answered: self.seen.map(|(at, _)| at.elapsed()),
            store_answers_for: self.monitor.store_answers_for(),
            fleet: self.seen.map(|(_, fleet)| fleet).unwrap_or_default(),
            last_repair: self.history.last_repair().await?,
        })
    }

    /// Stores the diagnosis, releases everything, and then reports the VM.
    async fn replace(&mut self, fault: &Fault, claim: Claim) -> Result<()> {
        self.store_diagnosis(fault).await?;
        let found_after = self.found_after;
        self.monitor.note(&HealingAction { found_after, ..self.action(Action::Diagnose, fault.to_string()) });
        let took = self.release_everything().await;
        self.report_unhealthy(fault, took);
        self.history.note_asked();
        self.repair = Repair::Reported { since: Instant::now(), claim };
        Ok(())
    }

    /// Does what the worker of this VM does that holds its claim.
    async fn follow(&mut self, fault: &Fault) {
        let seen = Instant::now();
        let (since, took) = if let Repair::Followed { since, .. } = self.repair {
            (since, None)
        } else {
            self.history.note_asked();
            tracing::warn!(%fault, "another worker has asked for this VM's replacement; releasing everything");
            (seen, Some(self.release_everything().await))
        };
        self.repair = Repair::Followed { since, seen };
        // It may answer health checks only since the other one has ended.
        if self.health.is_serving() && !self.health.is_unhealthy() {
            self.report_unhealthy(fault, took.unwrap_or_default());
        }
    }

    /// Drains the worker, and returns how long that took.
    async fn release_everything(&self) -> Duration {
        let (before, began) = (self.monitor.last_drain(), Instant::now());
        self.drains.begin();
        let drained = async {
            while self.monitor.last_drain() == before {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(self.budget + DRAIN_SLACK, drained).await.is_err() {
            tracing::warn!("the drain of a VM with a fault has not ended in time");
        }
        began.elapsed()
    }

    fn report_unhealthy(&self, fault: &Fault, took: Duration) {
        let action = self.action(Action::ReportUnhealthy, fault.to_string());
        self.monitor.note(&HealingAction { found_after: self.found_after, took: Some(took), ..action });
        self.health.report_unhealthy(true);
    }

    fn take_back(&mut self, why: &str, outcome: Outcome, repair: Repair) {
        self.health.report_unhealthy(false);
        let took = match &self.repair {
            Repair::Reported { since, .. } | Repair::Followed { since, .. } => Some(since.elapsed()),
            Repair::None | Repair::GivenUp => None,
        };
        let action = self.action(Action::ReportHealthy, why.to_owned());
        self.monitor.note(&HealingAction { outcome, took, ..action });
        self.drains.end();
        self.may_have_left_claim |= matches!(self.repair, Repair::Reported { .. });
        self.repair = repair;
    }

    fn action(&self, action: Action, why: String) -> HealingAction {
        HealingAction::new(Layer::Vm, action, self.history.name(), why)
    }

    async fn store_diagnosis(&self, fault: &Fault) -> Result<()> {
        let reports = bounded("read the roster", TRY, self.store.roster.reports(fleet::RECENT)).await?;
        let report = reports.into_iter().find(|report| report.worker == *self.monitor.worker());
        let diagnosis = Diagnosis {
            boot: self.boot.clone(),
            vm: self.vm.clone(),
            worker: self.monitor.worker().to_string(),
            at_unix_ms: unix_millis(),
            since_boot_ms: u64::try_from(since_boot().as_millis()).ok(),
            fault: fault.kind.as_str().to_owned(),
            place: fault.place.clone(),
            report,
            ..Diagnosis::default()
        };
        let log = self.log.lines();
        let collected = spawn_blocking(move || serde_json::to_vec(&diagnosis.collect(log))).await;
        let json = collected.map_err(std::io::Error::from).and_then(|json| json.map_err(Into::into));
        self.history.put(json.map_err(into_error)?).await
    }
}

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod repeat_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
