//! Recorded fleets with every fault once, and the healer of this crate on each machine: what the ledger's report says
//! is what the simulation did.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use reprieve_core::ports::Store;
use reprieve_core::worker::{Monitor, WorkerBuilder};
use reprieve_sim::replay::{self, Care, Caring, Plan, Trace, Vm};
use rustix::io::Errno;
use tokio::time::interval;

use super::drain_source::DrainSource;
use super::healer::{Healer, Parts};
use super::probe::Probe;
use crate::health::Health;
use crate::logging::Recent;

/// The healers of the fleet.
struct Healers;

/// The healer of one worker, before it starts.
struct Prepared {
    vm: Arc<Vm>,
    store: Store,
    drains: DrainSource,
}

impl Care for Healers {
    fn of(&self, vm: &Arc<Vm>, store: &Store) -> Box<dyn Caring> {
        Box::new(Prepared { vm: Arc::clone(vm), store: store.clone(), drains: DrainSource::default() })
    }
}

impl Caring for Prepared {
    fn drains(&self, worker: WorkerBuilder) -> WorkerBuilder {
        worker.interruptions(Arc::new(self.drains.clone()))
    }

    fn begin(self: Box<Self>, monitor: Monitor) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let Self { vm, store, drains } = *self;
        let health = Health::new(None);
        health.serve_in_a_test();
        let disk = Arc::clone(&vm);
        let probe = Probe::by(["/var/lib/worker".into()], move |_| {
            if disk.is_read_only.load(Relaxed) { Err(Errno::ROFS.into()) } else { Ok(()) }
        });
        let parts = Parts {
            store,
            monitor,
            health: health.clone(),
            drains,
            log: Recent::empty(),
            vm: vm.name.clone(),
            boot: vm.boot.clone(),
            budget: Duration::from_secs(10),
        };
        let answers = async move {
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                vm.is_unhealthy.store(health.is_unhealthy(), Relaxed);
            }
        };
        Box::pin(async move {
            tokio::join!(Healer::new(parts).run(probe), answers);
        })
    }
}

fn check(trace: Trace) {
    let replay = replay::run(&Plan::of(trace), &Healers).expect("its jobs end");
    assert_eq!([replay.broken(), replay.differences()].concat(), Vec::<String>::new());
}

#[test]
fn the_report_of_a_recorded_fleet_with_every_fault_says_what_happened() {
    check(Trace::G4dn);
}

#[test]
fn the_report_of_another_recorded_fleet_whose_disk_fails_in_an_outage_says_what_happened() {
    check(Trace::P3);
}
