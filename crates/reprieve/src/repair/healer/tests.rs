//! One VM and its fleet, on a paused clock: what is reported, and what never is.

use std::cell::Cell;
use std::sync::Arc;

use reprieve_core::healing::FaultKind;
use reprieve_core::ledger::Ledger;
use reprieve_core::memory::{self, Fault as StoreFault, Faults};
use reprieve_core::ports::WorkerReport;
use reprieve_core::telemetry::ByLayer;
use reprieve_core::worker::{Stopper, Worker, stopping};
use reprieve_core::{BlobName, ErrorKind, Job, JobContext, JobError, Step, WorkerId, clock};
use tokio::time::sleep;

use super::*;

/// After this time the machines of a fleet have reported, and for long enough.
const SETTLED: Duration = Duration::from_secs(75);

pub(super) struct Nothing;

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

/// Lets the wall clock of this test go with tokio's.
pub(super) fn on_one_clock() {
    if !ON_ONE_CLOCK.replace(true) {
        clock::simulate(clock::wall_now());
    }
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
    on_one_clock();
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
    let stored: Diagnosis = serde_json::from_slice(&blob(&store, "diagnoses/a.json").await.unwrap()).unwrap();
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
    assert_eq!([ill.done("diagnose"), ill.done("report_unhealthy"), ill.done("report_healthy")], [1, 1, 1]);
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
    // Its fault is real, and it is reported once they have, in two looks.
    sleep(SETTLED).await;
    ill.look(Some(&read_only())).await;
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

#[tokio::test(start_paused = true)]
async fn after_an_outage_neither_the_own_lost_claim_nor_that_of_another_worker_gets_a_vm_reported_at_once() {
    let (store, faults) = Faults::wrap(memory::store());
    let (mut first, mut second) = (vm(&store, "a").await, vm(&store, "a").await);
    let _well = vm(&store, "b").await;
    sleep(SETTLED).await;
    first.look(Some(&read_only())).await;
    assert!(first.health.is_unhealthy());
    second.look(Some(&read_only())).await;
    // The claim is renewed once more, which the other worker does not see.
    sleep(Duration::from_secs(210)).await;
    faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
    for _ in 0..40 {
        first.look(Some(&read_only())).await;
        second.look(Some(&read_only())).await;
    }
    assert!(!first.health.is_unhealthy() && !second.health.is_unhealthy());
    faults.clear_all();
    let back = Instant::now();
    while back.elapsed() < Duration::from_secs(50) {
        first.look(Some(&read_only())).await;
        second.look(Some(&read_only())).await;
        assert!(!first.health.is_unhealthy() && !second.health.is_unhealthy(), "{:?}", back.elapsed());
    }
    // The fault lasts, and all conditions hold again.
    for _ in 0..3 {
        first.look(Some(&read_only())).await;
        second.look(Some(&read_only())).await;
    }
    assert!(first.health.is_unhealthy() && second.health.is_unhealthy());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_started_again_follows_no_claim_of_its_predecessor_before_it_knows_the_fleet() {
    let store = memory::store();
    let (mut ill, _well) = (vm(&store, "a").await, vm(&store, "b").await);
    sleep(SETTLED).await;
    ill.look(Some(&read_only())).await;
    assert!(ill.health.is_unhealthy());
    let mut again = vm(&store, "a").await;
    for _ in 0..5 {
        again.look(Some(&read_only())).await;
        assert!(!again.health.is_unhealthy());
    }
    for _ in 0..3 {
        again.look(Some(&read_only())).await;
    }
    assert!(again.health.is_unhealthy());
}
