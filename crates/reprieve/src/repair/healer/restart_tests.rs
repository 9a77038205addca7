//! Whole healers, of workers that are started again while their disk fails.

use reprieve_core::memory;
use tokio::time::sleep;

use super::outage_tests::{Machine, Machines};
use super::repeat_tests::{Disk, secs, vm, vm_at};
use super::*;

pub(super) async fn faults(store: &Store) -> Vec<String> {
    let reports = store.roster.reports(secs(30)).await.unwrap();
    reports.into_iter().filter_map(|report| report.fault).collect()
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_started_again_while_their_disks_fail_make_no_sound_machines() {
    for (count, restarted, lead) in [(2, 1, 0), (2, 1, 100), (3, 2, 0), (20, 10, 100), (20, 19, 0)] {
        let mut machines = Machines::new(count).await;
        machines.outage(secs(600)).await;
        machines.0[1..=restarted].iter_mut().for_each(Machine::restart);
        sleep(secs(60)).await;
        machines.0[0].faults.clear_all();
        assert_eq!(machines.reported_within(secs(lead)).await, 0, "{count} machines, {restarted} new ones");
        machines.end_outage();
        assert_eq!(machines.reported_within(secs(300)).await, 0, "{count} machines, {restarted} new ones");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_started_again_just_after_its_disk_failed_has_the_proof_of_the_one_before() {
    for (after, restarts) in [(3, 1), (15, 1), (15, 4)] {
        let mut machines = Machines::new(3).await;
        machines.0[0].disk.fails();
        sleep(secs(after)).await;
        for _ in 0..restarts {
            machines.0[0].restart();
            assert_eq!(machines.reported_within(secs(20)).await, 0);
        }
        assert!(
            machines.0[0].vm.is_reported_within(secs(80)).await,
            "{restarts} restarts, {after} s after it"
        );
    }
}

/// It had taken leave of the roster, so that nobody knows whether its directory ever took a write.
#[tokio::test(start_paused = true)]
async fn a_disk_that_no_worker_is_known_to_have_written_is_shown_and_its_machine_is_ill_and_kept() {
    let (store, disk, other_disk) = (memory::store(), Disk::default(), Disk::default());
    let (ill, other) = (vm(&store, "a", &disk), vm(&store, "b", &other_disk));
    sleep(secs(120)).await;
    ill.end().await;
    disk.fails();
    let ill = vm(&store, "a", &disk);
    assert!(!ill.is_reported_within(secs(4_000)).await);
    assert_eq!(faults(&store).await, ["disk error at /var/lib/w since this worker began"]);
    other_disk.fails();
    assert!(!other.is_reported_within(secs(300)).await, "half of the others are ill");
    disk.works();
    assert!(other.is_reported_within(secs(100)).await, "a minute of sound writes, and a look");
}

#[tokio::test(start_paused = true)]
async fn a_directory_to_which_another_worker_of_the_vm_writes_now_has_no_fault_for_one_that_never_did() {
    let (store, sound, failed) = (memory::store(), Disk::default(), Disk::default());
    failed.fails();
    let _well = vm(&store, "b", &Disk::default());
    let (before, _second) = (vm(&store, "a", &sound), vm(&store, "a", &sound));
    sleep(secs(120)).await;
    before.kill();
    let barred = vm_at(&store, ("a", "boot of a"), ("/var/lib/w", &failed));
    assert!(!barred.is_reported_within(secs(1_000)).await);
    assert_eq!(faults(&store).await.len(), 1);
}
