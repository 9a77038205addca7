//! The healer of one worker: from a proven fault to a machine that is reported, and back.

use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_core::healing::{
    Action, Evidence, Fault, Fleet, HealingAction, Layer, Outcome, Refusal, Verdict, decide,
};
use reprieve_core::interruption::Stage;
use reprieve_core::ports::Store;
use reprieve_core::retry::bounded;
use reprieve_core::worker::{Claim, Claims, Monitor};
use reprieve_core::{BlobName, Error, ErrorKind, Result};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::diagnosis::Diagnosis;
use super::drain_source::DrainSource;
use super::fleet;
use super::probe::Probe;
use crate::health::Health;
use crate::logging::Recent;

/// How often the disks are probed. Three writes must fail alike, so a fault is proven within half a minute.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// How long the healer waits for a probe. It looks again at the next one's time.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// The longest wait for one call of the store.
const TRY: Duration = Duration::from_secs(10);

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
    /// Why the VM was kept although it has a fault.
    refused: Option<Refusal>,
    /// How long after the last sound write its fault was proven.
    found_after: Option<Duration>,
    /// When the last fault was reported that went away by itself.
    healed: Option<Instant>,
    repair: Repair,
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
        let claims = Claims::new(&store, if boot.is_empty() { &vm } else { &boot });
        let (seen, refused, found_after, healed, repair) = (None, None, None, None, Repair::None);
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
            refused,
            found_after,
            healed,
            repair,
        }
    }

    /// Probes the disks until the process ends.
    pub(super) async fn run(mut self, mut probe: Probe) {
        if let Some((before, _)) = self.last_diagnosis().await.ok().flatten()
            && before.boot == self.boot
        {
            probe.trust(&before.place);
        }
        let (mut is_first, mut fault, mut still_fails, mut sound_at) = (true, None, false, None);
        let (mut idle, mut looking) = (Some(probe), None);
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
                let Ok((probe, seen)) = looked else { return };
                if std::mem::take(&mut is_first) {
                    tracing::info!(directories = ?probe.directories(), "watching the disks of this VM");
                }
                self.monitor.show_fault(seen.as_ref().map(ToString::to_string));
                if probe.is_sound() {
                    sound_at = Some(Instant::now());
                }
                if fault.is_none() && seen.is_some() {
                    self.found_after = sound_at.map(|at: Instant| at.elapsed());
                }
                still_fails = probe.still_fails();
                (idle, looking, fault) = (Some(probe), None, seen);
            }
            self.review(fault.clone(), still_fails).await;
        }
    }

    /// Decides what a fault, or the end of one, asks for. A fault lasts until a minute of sound writes, but only one that
    /// `still_fails` has a repair begun.
    async fn review(&mut self, fault: Option<Fault>, still_fails: bool) {
        match (&self.repair, fault) {
            (Repair::GivenUp, Some(_)) | (Repair::None, None) => self.refused = None,
            (Repair::GivenUp, None) => {
                tracing::info!("the fault of this VM is gone, after nobody had replaced the VM");
                (self.healed, self.repair) = (Some(Instant::now()), Repair::None);
            }
            (Repair::Followed { since, .. }, None) => {
                self.healed = Some(*since);
                self.take_back("the fault is gone", Outcome::Healed, Repair::None);
            }
            (Repair::Reported { since, .. }, None) => {
                self.healed = Some(*since);
                self.take_back("the fault is gone", Outcome::Healed, Repair::None);
                if let Err(error) = self.note_healed().await {
                    tracing::warn!(%error, "failed to write down that the fault of this VM is gone");
                }
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
        if let Ok(fleet) =
            bounded("read the roster", TRY, fleet::look(&*self.store.roster, &self.vm, &self.boot)).await
        {
            self.seen = Some((Instant::now(), fleet));
        }
        if bounded("read the claims", TRY, self.claims.is_machine_claimed()).await? {
            self.follow(&fault).await;
            return Ok(());
        }
        if let Repair::Followed { since, .. } = self.repair {
            let is_over = since.elapsed() + REPORTED_SLACK > REPORTED_MAX;
            let repair = if is_over { Repair::GivenUp } else { Repair::None };
            self.take_back("no worker of this VM holds a claim any more", Outcome::Failed, repair);
            return Ok(());
        }
        if !self.health.is_serving() {
            return Ok(());
        }
        // Asked for again in the same boot, it is the same repair, unless the fault was gone in between.
        let is_another = |before: &Diagnosis| before.boot != self.boot || before.healed;
        let before = self.last_diagnosis().await?.filter(|(before, _)| is_another(before));
        let healed = self.healed.map(|reported| reported.elapsed());
        let evidence = Evidence {
            fault: Some(fault),
            store_answered: self.seen.map(|(at, _)| at.elapsed()),
            store_answers_for: self.monitor.store_answers_for(),
            fleet: self.seen.map(|(_, fleet)| fleet).unwrap_or_default(),
            last_repair: before.map(|(_, ago)| ago).into_iter().chain(healed).min(),
        };
        match decide(&evidence) {
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

    /// Stores the diagnosis, releases everything, and then reports the VM.
    async fn replace(&mut self, fault: &Fault, claim: Claim) -> Result<()> {
        self.store_diagnosis(fault).await?;
        let found_after = self.found_after;
        self.monitor.note(&HealingAction { found_after, ..self.action(Action::Diagnose, fault.to_string()) });
        let took = self.release_everything().await;
        self.report_unhealthy(fault, took);
        self.repair = Repair::Reported { since: Instant::now(), claim };
        Ok(())
    }

    /// Does what the worker of this VM does that holds its claim.
    async fn follow(&mut self, fault: &Fault) {
        let seen = Instant::now();
        let (since, took) = if let Repair::Followed { since, .. } = self.repair {
            (since, None)
        } else {
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
        self.repair = repair;
    }

    fn action(&self, action: Action, why: String) -> HealingAction {
        HealingAction::new(Layer::Vm, action, self.name(), why)
    }

    /// The VM's name, or its boot while that is unknown.
    fn name(&self) -> &str {
        if self.vm.is_empty() { &self.boot } else { &self.vm }
    }

    /// The blob of the VM's last diagnosis: one for each VM, which the next one replaces.
    fn blob(&self) -> Result<BlobName> {
        BlobName::parse(format!("{}{}.json", reprieve_core::worker::DIAGNOSES, self.name()))
    }

    /// Returns the last diagnosis of this VM, and how old it is by the store's clock.
    async fn last_diagnosis(&self) -> Result<Option<(Diagnosis, Duration)>> {
        let name = self.blob()?;
        let page = bounded("list diagnoses", TRY, self.store.blobs.page(name.as_str(), None)).await?;
        let Some(listed) = page.entries.iter().find(|blob| blob.name == name) else { return Ok(None) };
        let ago = page.now_unix_ms.saturating_sub(listed.modified_unix_ms);
        let Some(json) = bounded("read a diagnosis", TRY, self.store.blobs.get(&name)).await? else {
            return Ok(None);
        };
        // One that can't be read was written by a newer version, on another boot for all that is known.
        let diagnosis = serde_json::from_slice(&json).unwrap_or_default();
        Ok(Some((diagnosis, Duration::from_millis(u64::try_from(ago).unwrap_or(0)))))
    }

    /// Writes down that the fault of the last diagnosis is gone, for this worker's successors in this boot.
    async fn note_healed(&self) -> Result<()> {
        let Some((before, _)) = self.last_diagnosis().await? else { return Ok(()) };
        if before.boot != self.boot {
            return Ok(());
        }
        let json = serde_json::to_vec(&Diagnosis { healed: true, ..before }).map_err(|error| {
            Error::new(ErrorKind::Internal, "write a diagnosis", error.to_string()).with_source(error)
        })?;
        bounded("write a diagnosis", TRY, self.store.blobs.put(&self.blob()?, json, None)).await
    }

    async fn store_diagnosis(&self, fault: &Fault) -> Result<()> {
        let reports = bounded("read the roster", TRY, self.store.roster.reports(fleet::RECENT)).await?;
        let report = reports.into_iter().find(|report| report.worker == *self.monitor.worker());
        let diagnosis = Diagnosis {
            boot: self.boot.clone(),
            vm: self.vm.clone(),
            worker: self.monitor.worker().to_string(),
            at_unix_ms: unix_millis(),
            fault: fault.kind.as_str().to_owned(),
            place: fault.place.clone(),
            report,
            ..Diagnosis::default()
        };
        let log = self.log.lines();
        let collected = spawn_blocking(move || serde_json::to_vec(&diagnosis.collect(log))).await;
        let json = collected.map_err(std::io::Error::from).and_then(|json| json.map_err(Into::into));
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Internal, "collect a diagnosis", error.to_string()).with_source(error)
        };
        let json = json.map_err(failed)?;
        bounded("store a diagnosis", TRY, self.store.blobs.put(&self.blob()?, json, None)).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use reprieve_core::healing::FaultKind;
    use reprieve_core::ledger::Ledger;
    use reprieve_core::memory::{self, Fault as StoreFault, Faults};
    use reprieve_core::ports::WorkerReport;
    use reprieve_core::telemetry::ByLayer;
    use reprieve_core::worker::{Stopper, Worker, stopping};
    use reprieve_core::{Job, JobContext, JobError, Step, WorkerId, clock};
    use tokio::time::sleep;

    use super::*;

    /// After this time the machines of a fleet have reported, and for long enough.
    const SETTLED: Duration = Duration::from_secs(75);

    struct Nothing;

    #[async_trait::async_trait]
    impl Job for Nothing {
        const KIND: &'static str = "nothing";
        type Args = ();
        type Checkpoint = ();
        type Output = ();

        fn begin(&self, (): &()) {}

        async fn step(&self, _: &JobContext, (): &(), (): ()) -> std::result::Result<Step<(), ()>, JobError> {
            Ok(Step::Done(()))
        }
    }

    thread_local! {
        static ON_ONE_CLOCK: Cell<bool> = const { Cell::new(false) };
    }

    /// The worker of a VM, with its healer.
    struct Vm {
        healer: Healer,
        monitor: Monitor,
        health: Health,
        _stopper: Stopper,
    }

    async fn vm(store: &Store, name: &str) -> Vm {
        vm_of_boot(store, name, &format!("boot of {name}")).await
    }

    async fn vm_of_boot(store: &Store, name: &str, boot: &str) -> Vm {
        if !ON_ONE_CLOCK.replace(true) {
            clock::simulate(clock::wall_now());
        }
        let (drains, health) = (DrainSource::default(), Health::new(None));
        let worker = Worker::builder(store.clone())
            .job(Nothing)
            .vm(name)
            .boot(boot)
            .interruptions(Arc::new(drains.clone()));
        let worker = worker.build().unwrap();
        let (monitor, (stopper, stopping)) = (worker.monitor(), stopping());
        tokio::spawn(worker.run(stopping));
        monitor.reached(Stage::Start).await;
        health.serve_in_a_test();
        let parts = Parts {
            store: store.clone(),
            monitor: monitor.clone(),
            health: health.clone(),
            drains,
            log: Recent::empty(),
            vm: name.to_owned(),
            boot: boot.to_owned(),
            budget: Duration::from_secs(10),
        };
        Vm { healer: Healer::new(parts), monitor, health, _stopper: stopper }
    }

    impl Vm {
        /// Looks once, as every ten seconds, with this fault proven.
        async fn look(&mut self, fault: Option<&Fault>) {
            self.monitor.show_fault(fault.map(ToString::to_string));
            self.look_while(fault, fault.is_some()).await;
        }

        /// Looks once with this fault, which the last writes show or only earlier ones.
        async fn look_while(&mut self, fault: Option<&Fault>, still_fails: bool) {
            self.healer.review(fault.cloned(), still_fails).await;
            sleep(PROBE_EVERY).await;
        }

        fn done(&self, action: &'static str) -> u64 {
            let labels = ByLayer { layer: "vm", action };
            self.monitor.telemetry().healing_actions.get_or_create(&labels).get()
        }
    }

    fn read_only() -> Fault {
        Fault { kind: FaultKind::ReadOnly, place: "/var/lib/w".to_owned() }
    }

    async fn blob(store: &Store, name: &str) -> Option<Vec<u8>> {
        store.blobs.get(&BlobName::parse(name).unwrap()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_with_a_fault_is_emptied_and_reported_and_works_again_when_the_fault_is_gone() {
        let store = memory::store();
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        ill.look(None).await;
        assert!(!ill.health.is_unhealthy());
        ill.look(Some(&read_only())).await;
        assert!(ill.health.is_unhealthy());
        assert_eq!(ill.monitor.stage(), Stage::Shutdown);
        let stored: Diagnosis =
            serde_json::from_slice(&blob(&store, "diagnoses/a.json").await.unwrap()).unwrap();
        assert_eq!(
            (stored.vm.as_str(), stored.place.as_str(), stored.report.is_some()),
            ("a", "/var/lib/w", true)
        );
        for _ in 0..60 {
            ill.look(Some(&read_only())).await;
            assert!(ill.health.is_unhealthy());
        }
        ill.look(None).await;
        ill.monitor.reached(Stage::Start).await;
        assert!(!ill.health.is_unhealthy());
        assert_eq!(
            [ill.done("diagnose"), ill.done("report_unhealthy"), ill.done("report_healthy")],
            [1, 1, 1]
        );
        sleep(Duration::from_secs(1)).await;
        let noted = Ledger::new(store.records.clone()).read(0).await.unwrap().healings;
        let ended = noted.iter().find(|it| it.action == "report_healthy").unwrap();
        assert_eq!(ended.outcome, "healed");
        assert!((600_000..=620_000).contains(&ended.took_ms.unwrap()), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_store_for_an_hour_repairs_nobody() {
        let (store, faults) = Faults::wrap(memory::store());
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
        for _ in 0..360 {
            ill.look(Some(&read_only())).await;
            assert!(!ill.health.is_unhealthy());
        }
        assert_eq!((ill.done("report_unhealthy"), ill.monitor.stage()), (0, Stage::Start));
        faults.clear_all();
        // The others have not reported yet: they may have the same fault.
        ill.look(Some(&read_only())).await;
        assert!(!ill.health.is_unhealthy());
        // Its fault is real, and it is reported once they have.
        sleep(SETTLED).await;
        ill.look(Some(&read_only())).await;
        assert!(ill.health.is_unhealthy());
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_in_which_all_disks_failed_no_vm_is_reported() {
        let (store, faults) = Faults::wrap(memory::store());
        let mut ill = Vec::new();
        for number in 0..5 {
            ill.push(vm(&store, &format!("ill-{number}")).await);
        }
        sleep(SETTLED).await;
        faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
        for round in 0..130 {
            if round == 66 {
                faults.clear_all();
            }
            let looks = ill.iter_mut().map(|vm| async move { vm.look(Some(&read_only())).await });
            futures_util::future::join_all(looks).await;
            assert_eq!(ill.iter().filter(|vm| vm.health.is_unhealthy()).count(), 0, "round {round}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_comes_and_goes_is_reported_once_an_hour() {
        let store = memory::store();
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        for _ in 0..50 {
            for fault in [Some(&read_only()), None] {
                for _ in 0..6 {
                    ill.look(fault).await;
                }
            }
        }
        // In 100 minutes.
        assert_eq!(ill.done("report_unhealthy"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn that_is_so_for_a_worker_that_is_started_again_in_between_too() {
        let store = memory::store();
        let _well = vm(&store, "b").await;
        let mut reported = 0;
        for _ in 0..20 {
            let mut ill = vm(&store, "a").await;
            sleep(SETTLED).await;
            for fault in [Some(&read_only()), None] {
                for _ in 0..6 {
                    ill.look(fault).await;
                }
            }
            reported += ill.done("report_unhealthy");
        }
        // In 65 minutes.
        assert_eq!(reported, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_repair_begins_while_the_disk_takes_writes_again_although_its_fault_is_not_gone_yet() {
        let store = memory::store();
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        for _ in 0..6 {
            ill.look_while(Some(&read_only()), false).await;
        }
        assert_eq!(ill.done("report_unhealthy"), 0);
        ill.look(Some(&read_only())).await;
        ill.look_while(Some(&read_only()), false).await;
        assert!(ill.health.is_unhealthy(), "one that has begun goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reported_vm_takes_it_back_in_an_outage_in_which_another_may_get_its_claim() {
        let (store, faults) = Faults::wrap(memory::store());
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        ill.look(Some(&read_only())).await;
        assert!(ill.health.is_unhealthy());
        faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
        for _ in 0..60 {
            ill.look(Some(&read_only())).await;
        }
        assert!(!ill.health.is_unhealthy(), "after ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn of_ten_vms_that_fail_at_once_at_most_one_is_reported() {
        // Before the others' reports show their faults, and after.
        for are_shown in [false, true] {
            let store = memory::store();
            let mut ill = Vec::new();
            for number in 0..10 {
                ill.push(vm(&store, &format!("ill-{number}")).await);
            }
            let _well = vm(&store, "well").await;
            sleep(SETTLED).await;
            if are_shown {
                for vm in &ill {
                    vm.monitor.show_fault(Some("read-only".to_owned()));
                }
                sleep(Duration::from_secs(2)).await;
            }
            for _ in 0..180 {
                let looks = ill.iter_mut().map(|vm| async move { vm.look(Some(&read_only())).await });
                futures_util::future::join_all(looks).await;
                let reported = ill.iter().filter(|vm| vm.health.is_unhealthy()).count();
                assert!(reported <= usize::from(!are_shown), "{reported} of ten");
            }
            let reported: u64 = ill.iter().map(|vm| vm.done("report_unhealthy")).sum();
            assert_eq!(reported, u64::from(!are_shown));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_is_repaired_once_an_hour_and_a_new_process_of_the_same_boot_continues_its_repair() {
        let store = memory::store();
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        ill.look(Some(&read_only())).await;
        assert!(ill.health.is_unhealthy());
        drop(ill);
        // The claim of the process before is released when it ends.
        let mut again = vm(&store, "a").await;
        sleep(SETTLED).await;
        again.look(Some(&read_only())).await;
        assert!(again.health.is_unhealthy());
        drop(again);
        // A restart did not mend the disk.
        let mut rebooted = vm_of_boot(&store, "a", "another boot").await;
        for _ in 0..300 {
            rebooted.look(Some(&read_only())).await;
            assert!(!rebooted.health.is_unhealthy());
        }
        for _ in 0..100 {
            rebooted.look(Some(&read_only())).await;
        }
        assert!(rebooted.health.is_unhealthy(), "after an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_does_not_answer_health_checks_follows_the_one_that_does() {
        let store = memory::store();
        let (mut first, mut second) = (vm(&store, "a").await, vm(&store, "a").await);
        let _well = vm(&store, "b").await;
        second.health = Health::new(None);
        second.healer.health = second.health.clone();
        sleep(SETTLED).await;
        second.look(Some(&read_only())).await;
        assert_eq!(second.monitor.stage(), Stage::Start, "nobody has decided");
        first.look(Some(&read_only())).await;
        second.look(Some(&read_only())).await;
        assert_eq!(second.monitor.stage(), Stage::Shutdown);
        assert!(!second.health.is_unhealthy());
        second.look(None).await;
        second.monitor.reached(Stage::Start).await;
    }

    #[tokio::test(start_paused = true)]
    async fn all_workers_of_a_vm_with_a_fault_are_emptied_and_report_it() {
        let store = memory::store();
        let (mut first, mut second) = (vm(&store, "a").await, vm(&store, "a").await);
        let mut other = vm(&store, "b").await;
        let _well = [vm(&store, "c").await, vm(&store, "d").await, vm(&store, "e").await];
        sleep(SETTLED).await;
        first.look(Some(&read_only())).await;
        for _ in 0..70 {
            first.look(Some(&read_only())).await;
            second.look(Some(&read_only())).await;
            other.look(Some(&read_only())).await;
            for vm in [&first, &second] {
                assert!(vm.health.is_unhealthy());
                assert_eq!(vm.monitor.stage(), Stage::Shutdown);
            }
            assert!(!other.health.is_unhealthy(), "the claim is not its own");
        }
        assert_eq!([first.done("diagnose"), second.done("diagnose")], [1, 0]);
        first.look(None).await;
        second.look(None).await;
        for vm in [&first, &second] {
            vm.monitor.reached(Stage::Start).await;
            assert!(!vm.health.is_unhealthy());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_follows_no_claim_that_its_vm_may_have_lost() {
        let (store, faults) = Faults::wrap(memory::store());
        let (mut first, mut second) = (vm(&store, "a").await, vm(&store, "a").await);
        let _well = vm(&store, "b").await;
        sleep(SETTLED).await;
        first.look(Some(&read_only())).await;
        second.look(Some(&read_only())).await;
        assert!(first.health.is_unhealthy() && second.health.is_unhealthy());
        faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
        for _ in 0..62 {
            second.look(Some(&read_only())).await;
        }
        assert!(!second.health.is_unhealthy(), "after ten minutes");
        faults.clear_all();
        second.monitor.reached(Stage::Start).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_works_again_with_the_worker_that_gives_up() {
        let store = memory::store();
        let (mut first, mut second) = (vm(&store, "a").await, vm(&store, "a").await);
        let _well = vm(&store, "b").await;
        sleep(SETTLED).await;
        for _ in 0..500 {
            first.look(Some(&read_only())).await;
            second.look(Some(&read_only())).await;
        }
        for vm in [&first, &second] {
            assert!(!vm.health.is_unhealthy());
            assert_eq!((vm.monitor.stage(), vm.done("report_unhealthy")), (Stage::Start, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_that_nobody_replaces_works_again_after_two_hours() {
        let store = memory::store();
        let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
        sleep(SETTLED).await;
        for _ in 0..725 {
            ill.look(Some(&read_only())).await;
        }
        ill.monitor.reached(Stage::Start).await;
        for _ in 0..400 {
            ill.look(Some(&read_only())).await;
            assert!(!ill.health.is_unhealthy());
        }
        assert_eq!(ill.done("report_unhealthy"), 1);
        // The disk was mended, and an hour later it fails again.
        for _ in 0..361 {
            ill.look(None).await;
        }
        ill.look(Some(&read_only())).await;
        assert!(ill.health.is_unhealthy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_that_is_mostly_silent_or_ill_is_not_repaired() {
        let store = memory::store();
        let mut ill = vm(&store, "a").await;
        let report = |name: &str| WorkerReport {
            vm: name.to_owned(),
            at_unix_ms: unix_millis(),
            fault: Some("disk error".to_owned()),
            ..WorkerReport::new(WorkerId::unique())
        };
        for name in ["b", "c"] {
            store.roster.publish(&report(name)).await.unwrap();
        }
        sleep(SETTLED).await;
        ill.look(Some(&read_only())).await;
        assert!(!ill.health.is_unhealthy());
        assert_eq!(ill.healer.refused, Some(Refusal::FleetIsIll));
    }
}
