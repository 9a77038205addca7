//! Whole healers, with a disk that fails and takes writes again: one repair of a VM in an hour, whatever ends in between.

use std::sync::{Arc, Mutex};

use reprieve_core::clock;
use reprieve_core::memory::{self, Fault as StoreFault, Faults};
use reprieve_core::worker::{Stopped, Stopper, Worker, stopping};
use reprieve_core::{BlobName, ErrorKind};
use rustix::io::Errno;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::tests::{Nothing, on_one_clock};
use super::*;

pub(super) const DOWN: StoreFault = StoreFault::Fail(ErrorKind::Unavailable);

/// A disk: how its writes fail.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Option<Errno>>>);

impl Disk {
    pub(super) fn fails(&self) {
        *self.0.lock().unwrap() = Some(Errno::IO);
    }

    pub(super) fn works(&self) {
        *self.0.lock().unwrap() = None;
    }
}

/// A worker with its whole healer.
pub(super) struct Vm {
    pub(super) health: Health,
    stopper: Stopper,
    worker: JoinHandle<Stopped>,
    healer: JoinHandle<()>,
}

pub(super) fn vm(store: &Store, name: &str, disk: &Disk) -> Vm {
    vm_at(store, (name, &format!("boot of {name}")), ("/var/lib/w", disk))
}

pub(super) fn vm_at(store: &Store, (name, boot): (&str, &str), (place, disk): (&str, &Disk)) -> Vm {
    on_one_clock();
    let (drains, health) = (DrainSource::default(), Health::new(None));
    let worker = Worker::builder(store.clone())
        .job(Nothing)
        .vm(name)
        .boot(boot)
        .interruptions(Arc::new(drains.clone()))
        .build()
        .unwrap();
    let (monitor, (stopper, stopping)) = (worker.monitor(), stopping());
    let worker = tokio::spawn(worker.run(stopping));
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
    let disk = disk.clone();
    let probe =
        Probe::by([place.into()], move |_| disk.0.lock().unwrap().map_or(Ok(()), |it| Err(it.into())));
    let started = monitor.clone();
    let healer = tokio::spawn(async move {
        started.reached(Stage::Start).await;
        Healer::new(parts).run(probe).await;
    });
    Vm { health, stopper, worker, healer }
}

impl Vm {
    /// Ends at once, as by SIGKILL.
    pub(super) fn kill(self) {
        self.healer.abort();
        self.worker.abort();
    }

    /// Ends as by SIGTERM.
    pub(super) async fn end(self) {
        self.stopper.stop();
        self.worker.await.unwrap();
        self.healer.abort();
    }

    /// Completes when it is reported, and returns whether it is within this time.
    pub(super) async fn is_reported_within(&self, limit: Duration) -> bool {
        self.is_reported_before(Instant::now() + limit).await
    }

    async fn is_reported_before(&self, end: Instant) -> bool {
        while !self.health.is_unhealthy() && Instant::now() < end {
            sleep(Duration::from_secs(1)).await;
        }
        self.health.is_unhealthy()
    }
}

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn diagnosis(store: &Store, name: &str) -> Diagnosis {
    let name = BlobName::parse(format!("diagnoses/{name}.json")).unwrap();
    serde_json::from_slice(&store.blobs.get(&name).await.unwrap().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_while_its_vm_is_reported_leaves_no_second_repair_of_a_disk_that_is_sound_meanwhile()
 {
    for is_killed in [true, false] {
        let (store, disk) = (memory::store(), Disk::default());
        let _well = vm(&store, "b", &Disk::default());
        let mut reported = 0;
        for _ in 0..8 {
            let ill = vm(&store, "a", &disk);
            sleep(secs(90)).await;
            disk.fails();
            reported += u64::from(ill.is_reported_within(secs(120)).await);
            if is_killed {
                ill.kill();
            } else {
                ill.end().await;
            }
            disk.works();
            sleep(secs(120)).await;
        }
        assert_eq!(reported, 1, "in half an hour, killed: {is_killed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_lasts_is_reported_by_the_next_worker_as_the_same_repair() {
    let (store, disk) = (memory::store(), Disk::default());
    let _well = vm(&store, "b", &Disk::default());
    let ill = vm(&store, "a", &disk);
    sleep(secs(90)).await;
    disk.fails();
    assert!(ill.is_reported_within(secs(40)).await);
    ill.end().await;
    // A worker whose directory is another one knows nothing of that disk.
    let other = vm_at(&store, ("a", "boot of a"), ("/var/lib/other", &Disk::default()));
    sleep(secs(90)).await;
    assert!(!diagnosis(&store, "a").await.healed);
    other.end().await;
    let again = vm(&store, "a", &disk);
    assert!(again.is_reported_within(secs(90)).await);
}

#[tokio::test(start_paused = true)]
async fn a_repair_whose_claim_was_lost_counts_for_an_hour_when_its_fault_is_gone() {
    let (store, faults) = Faults::wrap(memory::store());
    let disk = Disk::default();
    let (ill, _well) = (vm(&store, "a", &disk), vm(&store, "b", &Disk::default()));
    sleep(secs(90)).await;
    disk.fails();
    assert!(ill.is_reported_within(secs(40)).await);
    let first = Instant::now();
    sleep(secs(60)).await;
    faults.everything(DOWN);
    sleep(secs(640)).await;
    assert!(!ill.health.is_unhealthy(), "another VM may have its claim");
    disk.works();
    sleep(secs(100)).await;
    faults.clear_all();
    sleep(secs(20)).await;
    assert!(diagnosis(&store, "a").await.healed);
    disk.fails();
    assert!(!ill.is_reported_before(first + secs(3_590)).await);
    assert!(ill.is_reported_within(secs(30)).await, "its fault is real");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_fault_in_an_outage_is_written_down_after_it() {
    let (store, faults) = Faults::wrap(memory::store());
    let disk = Disk::default();
    let (ill, _well) = (vm(&store, "a", &disk), vm(&store, "b", &Disk::default()));
    sleep(secs(90)).await;
    disk.fails();
    assert!(ill.is_reported_within(secs(40)).await);
    disk.works();
    sleep(secs(30)).await;
    faults.everything(DOWN);
    sleep(secs(60)).await;
    assert!(!ill.health.is_unhealthy());
    faults.clear_all();
    sleep(secs(30)).await;
    assert!(diagnosis(&store, "a").await.healed);
    ill.end().await;
    let again = vm(&store, "a", &disk);
    sleep(secs(90)).await;
    disk.fails();
    assert!(!again.is_reported_within(secs(600)).await);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_jump_neither_repeat_a_repair_within_the_hour_nor_prevent_one_after_it() {
    for (hours, restarts) in [(3, false), (3, true), (-3, false), (-3, true)] {
        let (store, disk) = (memory::store(), Disk::default());
        let _well = vm(&store, "b", &Disk::default());
        let mut ill = vm(&store, "a", &disk);
        sleep(secs(90)).await;
        disk.fails();
        assert!(ill.is_reported_within(secs(40)).await);
        let first = Instant::now();
        disk.works();
        sleep(secs(400)).await;
        let (now, jump) = (clock::wall_now(), secs(3 * 3_600));
        clock::simulate(if hours > 0 { now + jump } else { now - jump });
        if restarts {
            let before = std::mem::replace(&mut ill, vm(&store, "a", &disk));
            before.end().await;
        }
        sleep(secs(120)).await;
        disk.fails();
        assert!(!ill.is_reported_before(first + secs(3_590)).await, "{hours} h, {restarts}");
        assert!(ill.is_reported_within(secs(30)).await, "{hours} h, {restarts}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_diagnosis_of_another_boot_from_the_future_counts_for_an_hour_of_the_worker_s_own_time() {
    let (store, disk) = (memory::store(), Disk::default());
    let _well = vm(&store, "b", &Disk::default());
    let ill = vm(&store, "a", &disk);
    sleep(secs(90)).await;
    disk.fails();
    assert!(ill.is_reported_within(secs(40)).await);
    ill.end().await;
    disk.works();
    clock::simulate(clock::wall_now() - secs(3 * 3_600));
    let rebooted = vm_at(&store, ("a", "another boot"), ("/var/lib/w", &disk));
    sleep(secs(90)).await;
    disk.fails();
    assert!(!rebooted.is_reported_within(secs(3_600 - 120)).await);
    assert!(rebooted.is_reported_within(secs(90)).await);
}
