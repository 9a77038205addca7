//! Whole fleets after an outage of the store and their disks, which comes to an end for one machine first.

use reprieve_core::ErrorKind;
use reprieve_core::memory::{self, Fault as StoreFault, Faults};
use tokio::time::sleep;

use super::repeat_tests::{Disk, Vm, secs, vm};
use super::*;

/// Machines, each with its own way to one store.
struct Machines(Vec<(Vm, Disk, Faults)>);

impl Machines {
    async fn new(count: usize) -> Self {
        let store = memory::store();
        let all = (0..count).map(|number| {
            let ((store, faults), disk) = (Faults::wrap(store.clone()), Disk::default());
            (vm(&store, &format!("vm-{number}"), &disk), disk, faults)
        });
        let all = Self(all.collect());
        sleep(secs(120)).await;
        all
    }

    /// Neither the store nor a disk answers any machine for so long.
    async fn outage(&self, long: Duration) {
        for (_, disk, faults) in &self.0 {
            faults.everything(StoreFault::Fail(ErrorKind::Unavailable));
            disk.fails();
        }
        sleep(long).await;
    }

    /// Lets this time pass, and returns how many are reported at any of its seconds.
    async fn reported_within(&self, long: Duration) -> usize {
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < long {
            sleep(secs(1)).await;
            most = most.max(self.0.iter().filter(|(vm, ..)| vm.health.is_unhealthy()).count());
        }
        most
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_machine_whose_store_is_back_waits_for_more_than_half_of_the_fleet_before_the_outage() {
    for (count, outage) in [(2, 900), (3, 900), (3, 400), (20, 3_600)] {
        let machines = Machines::new(count).await;
        machines.outage(secs(outage)).await;
        machines.0[0].2.clear_all();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, alone");
        // It is the same outage that goes on for a moment.
        machines.0[0].2.everything(StoreFault::Fail(ErrorKind::Unavailable));
        sleep(secs(20)).await;
        machines.0[0].2.clear_all();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, alone again");
        for (_, _, faults) in &machines.0 {
            faults.clear_all();
        }
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, all");
        // The disks of all but the first are back: its fault is its own.
        for (_, disk, _) in machines.0.iter().skip(1) {
            disk.works();
        }
        assert_eq!(machines.reported_within(secs(120)).await, 1, "{count} machines");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_machine_of_a_fleet_that_an_outage_left_is_reported_when_its_store_has_answered_for_ten_minutes()
 {
    let mut machines = Machines::new(3).await;
    machines.outage(secs(900)).await;
    machines.0.drain(1..).for_each(|(gone, ..)| gone.kill());
    machines.0[0].2.clear_all();
    assert_eq!(machines.reported_within(secs(590)).await, 0);
    assert_eq!(machines.reported_within(secs(40)).await, 1);
}
