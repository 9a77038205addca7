//! Whole fleets after an outage of the store and their disks, which comes to an end for one machine first.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use reprieve_core::memory::{self, Fault as StoreFault, Faults, Op};
use tokio::time::sleep;

use super::repeat_tests::{DOWN, Disk, Vm, secs, vm};
use super::restart_tests::faults;
use super::*;

/// A machine with its own way to the store of all.
pub(super) struct Machine {
    pub(super) vm: Vm,
    name: String,
    store: Store,
    pub(super) disk: Disk,
    pub(super) faults: Faults,
}

impl Machine {
    fn new(store: &Store, name: String) -> Self {
        let ((store, faults), disk) = (Faults::wrap(store.clone()), Disk::default());
        Self { vm: vm(&store, &name, &disk), name, store, disk, faults }
    }

    /// Its worker is killed, and started again.
    pub(super) fn restart(&mut self) {
        let began = vm(&self.store, &self.name, &self.disk);
        std::mem::replace(&mut self.vm, began).kill();
    }
}

pub(super) struct Machines(pub(super) Vec<Machine>);

impl Machines {
    pub(super) async fn new(count: usize) -> Self {
        let store = memory::store();
        let all = Self((0..count).map(|number| Machine::new(&store, format!("vm-{number}"))).collect());
        sleep(secs(120)).await;
        all
    }

    pub(super) fn begin_outage(&self) {
        self.0.iter().for_each(|it| it.faults.everything(DOWN));
    }

    pub(super) fn end_outage(&self) {
        self.0.iter().for_each(|it| it.faults.clear_all());
    }

    pub(super) fn disks_fail(&self) {
        self.0.iter().for_each(|it| it.disk.fails());
    }

    /// Neither the store nor a disk answers any machine for so long.
    pub(super) async fn outage(&self, long: Duration) {
        self.begin_outage();
        self.disks_fail();
        sleep(long).await;
    }

    /// Lets this time pass, and returns how many are reported at any of its seconds.
    pub(super) async fn reported_within(&self, long: Duration) -> usize {
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < long {
            sleep(secs(1)).await;
            most = most.max(self.0.iter().filter(|it| it.vm.health.is_unhealthy()).count());
        }
        most
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_machine_whose_store_is_back_waits_for_more_than_half_of_the_fleet_before_the_outage() {
    for (count, outage) in [(2, 900), (3, 900), (3, 400), (20, 3_600)] {
        let machines = Machines::new(count).await;
        machines.outage(secs(outage)).await;
        machines.0[0].faults.clear_all();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, alone");
        // It is the same outage that goes on for a moment.
        machines.0[0].faults.everything(DOWN);
        sleep(secs(20)).await;
        machines.0[0].faults.clear_all();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, alone again");
        machines.end_outage();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, all");
        // The disks of all but the first are back: its fault is its own.
        machines.0.iter().skip(1).for_each(|it| it.disk.works());
        assert_eq!(machines.reported_within(secs(120)).await, 1, "{count} machines");
    }
}

#[tokio::test(start_paused = true)]
async fn no_machine_of_a_fleet_whose_disks_fail_together_is_reported_though_the_store_is_well() {
    for (count, apart_ms) in [(2, 0), (3, 0), (20, 0), (3, 3_000), (20, 400)] {
        let machines = Machines::new(count).await;
        for machine in &machines.0 {
            machine.disk.fails();
            sleep(Duration::from_millis(apart_ms)).await;
        }
        assert_eq!(machines.reported_within(secs(600)).await, 0, "{count} machines, {apart_ms} ms apart");
        machines.0[1..].iter().for_each(|it| it.disk.works());
        assert_eq!(machines.reported_within(secs(120)).await, 1, "{count} machines: one alone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_once_is_shown_for_a_minute_and_is_no_fault_of_the_machine() {
    let machines = Machines::new(2).await;
    let [first, second] = [&machines.0[0], &machines.0[1]];
    first.disk.fails();
    sleep(secs(12)).await;
    first.disk.works();
    for shown in [true, true, true, true, false] {
        let faults = faults(&first.store).await;
        let fault = "disk error at /var/lib/w within a minute, not proven";
        assert_eq!(faults, if shown { vec![fault] } else { Vec::new() });
        sleep(secs(15)).await;
    }
    second.disk.fails();
    assert_eq!(machines.reported_within(secs(60)).await, 1, "the other one is well again");
}

/// A volume that all of them share, and that fails a part of the writes.
#[tokio::test(start_paused = true)]
async fn no_machine_of_a_fleet_is_reported_whose_disks_all_fail_now_and_then() {
    for (count, of_ten) in [(2, 5), (3, 5), (5, 5), (2, 7), (3, 8), (2, 9), (5, 9)] {
        let machines = Machines::new(count).await;
        let seed = u64::try_from(count * 10 + of_ten).unwrap();
        let mut random = SmallRng::seed_from_u64(seed);
        for _ in 0..120 {
            for machine in &machines.0 {
                if random.random_range(0..10) < of_ten { machine.disk.fails() } else { machine.disk.works() }
            }
            let reported = machines.reported_within(secs(5)).await;
            assert_eq!(reported, 0, "{count} machines, {of_ten} of ten writes fail, seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_machine_of_a_fleet_that_an_outage_left_is_reported_when_its_store_has_answered_for_ten_minutes()
 {
    let mut machines = Machines::new(3).await;
    machines.outage(secs(900)).await;
    machines.0.drain(1..).for_each(|gone| gone.vm.kill());
    machines.0[0].faults.clear_all();
    assert_eq!(machines.reported_within(secs(590)).await, 0);
    assert_eq!(machines.reported_within(secs(40)).await, 1);
}

/// Its claim was given up while nobody could release it.
#[tokio::test(start_paused = true)]
async fn the_claim_of_a_machine_that_healed_in_an_outage_holds_up_no_other_after_it() {
    let machines = Machines::new(3).await;
    machines.0[1].disk.fails();
    assert!(machines.0[1].vm.is_reported_within(secs(60)).await);
    machines.begin_outage();
    sleep(secs(60)).await;
    machines.0[1].disk.works();
    sleep(secs(840)).await;
    machines.0[0].disk.fails();
    sleep(secs(60)).await;
    machines.end_outage();
    assert!(machines.0[0].vm.is_reported_within(secs(100)).await);
}

/// The platform pauses machines whose storage is away. Each then knows of no outage: no call of it has failed.
#[tokio::test(start_paused = true)]
async fn the_first_machine_of_a_frozen_fleet_that_goes_on_is_not_reported_for_a_fault_that_all_have() {
    for (count, frozen, lead) in [(2, 900, 80), (3, 900, 80), (3, 900, 0), (20, 400, 80), (20, 3_600, 45)] {
        let machines = Machines::new(count).await;
        machines.disks_fail();
        for other in &machines.0[1..] {
            other.faults.everything(StoreFault::Hang);
        }
        tokio::time::advance(secs(frozen)).await;
        assert_eq!(machines.reported_within(secs(lead)).await, 0, "{count} machines, alone");
        machines.end_outage();
        assert_eq!(machines.reported_within(secs(300)).await, 0, "{count} machines, all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_frozen_takes_no_decision_before_the_store_has_answered_its_reports_again() {
    for (count, late_ms) in [(2, 100), (3, 2_000), (20, 4_000)] {
        let machines = Machines::new(count).await;
        machines.0[1..].iter().for_each(|it| it.disk.fails());
        sleep(secs(60)).await;
        let first = &machines.0[0];
        first.disk.fails();
        assert!(!first.vm.is_reported_within(secs(60)).await, "{count} machines, all ill");
        for other in &machines.0[1..] {
            other.faults.everything(StoreFault::Hang);
        }
        let late = StoreFault::LateAnswer(Duration::from_millis(late_ms));
        first.faults.next_calls(Op::Publish, 1, late);
        tokio::time::advance(secs(900)).await;
        assert!(!first.vm.is_reported_within(secs(80)).await, "{count} machines, alone");
        machines.end_outage();
        assert!(!first.vm.is_reported_within(secs(100)).await, "{count} machines, all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_in_an_outage_waits_for_the_fleet_as_one_that_saw_its_beginning() {
    for (count, outage) in [(3, 900), (20, 900), (20, 3_600)] {
        let mut machines = Machines::new(count).await;
        machines.begin_outage();
        sleep(secs(outage - 60)).await;
        machines.0[0].restart();
        sleep(secs(60)).await;
        machines.0[0].faults.clear_all();
        assert_eq!(machines.reported_within(secs(15)).await, 0, "{count} machines, with sound disks");
        machines.disks_fail();
        assert_eq!(machines.reported_within(secs(85)).await, 0, "{count} machines, alone");
        machines.end_outage();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_in_an_outage_takes_a_few_machines_that_are_back_for_no_whole_fleet() {
    for (count, sound, early) in [(3, 1, false), (20, 3, true), (20, 8, false)] {
        let mut machines = Machines::new(count).await;
        machines.begin_outage();
        sleep(secs(1_700)).await;
        if !early {
            machines.0[0].restart();
        }
        sleep(secs(60)).await;
        machines.0[..=sound].iter().for_each(|it| it.faults.clear_all());
        if early {
            machines.0[0].restart();
        }
        assert_eq!(machines.reported_within(secs(15)).await, 0, "{count} machines, {sound} sound ones");
        let ill = || machines.0.iter().enumerate().filter(|(number, _)| *number == 0 || *number > sound);
        ill().for_each(|(_, it)| it.disk.fails());
        assert_eq!(machines.reported_within(secs(185)).await, 0, "{count} machines, {sound} are back");
        machines.end_outage();
        assert_eq!(machines.reported_within(secs(200)).await, 0, "{count} machines, all are back");
        ill().skip(1).for_each(|(_, it)| it.disk.works());
        assert_eq!(machines.reported_within(secs(120)).await, 1, "{count} machines, its fault is its own");
    }
}

/// Each hour another machine is killed and replaced: counted since an outage, the dead would be the fleet's half.
#[tokio::test(start_paused = true)]
async fn a_report_that_fails_now_and_then_is_no_outage_that_keeps_a_machine_with_a_fault() {
    let store = memory::store();
    let ill = Machine::new(&store, "ill".to_owned());
    let new = |number| Machine::new(&store, format!("other-{number}"));
    let mut others: std::collections::VecDeque<_> = (0..4).map(new).collect();
    let eight_minutes = async || {
        ill.faults.next_calls(Op::Publish, 1, DOWN);
        sleep(secs(480)).await;
    };
    for hour in 4..10 {
        for _ in 0..7 {
            eight_minutes().await;
        }
        others.pop_front().unwrap().vm.kill();
        others.push_back(new(hour));
    }
    eight_minutes().await;
    eight_minutes().await;
    ill.disk.fails();
    assert!(ill.vm.is_reported_within(secs(120)).await);
    assert!(others.iter().all(|it| !it.vm.health.is_unhealthy()));
}
