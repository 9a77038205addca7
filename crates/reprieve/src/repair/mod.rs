//! Asks for this VM's replacement when it is proven that its disks don't work: the worker that answers health
//! checks stores a diagnosis, releases everything, and answers `Unhealthy` until the fault is gone.
//!
//! Whether that may be is decided by [`reprieve_core::healing`]. Here are the proof (`probe`), what is known of the
//! other machines (`fleet`), what is stored (`diagnosis`), when a repair was last asked for
//! (`history`, `since_boot`), how the worker is emptied (`drain_source`), and who does
//! it all (`healer`). Elsewhere than on Linux nothing is probed.

#[cfg(target_os = "linux")]
mod diagnosis;
#[cfg(target_os = "linux")]
mod drain_source;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg(target_os = "linux")]
mod healer;
#[cfg(target_os = "linux")]
mod history;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(all(test, target_os = "linux"))]
mod replay_tests;
#[cfg(target_os = "linux")]
mod since_boot;

#[cfg(target_os = "linux")]
pub(crate) use linux::Healing;
#[cfg(not(target_os = "linux"))]
pub(crate) use nowhere::Healing;

#[cfg(target_os = "linux")]
mod linux {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use reprieve_core::ports::Store;
    use reprieve_core::worker::{Monitor, WorkerBuilder};
    use tokio::task::JoinSet;

    use super::drain_source::DrainSource;
    use super::healer::{Healer, Parts};
    use super::probe::Probe;
    use crate::health::Health;
    use crate::logging::Recent;
    use crate::settings::WorkerSettings;
    use crate::stores::Address;

    /// The healing of a worker that starts: only where somebody listens to it, which is on a VM and with `--listen`.
    pub(crate) struct Healing(Option<Prepared>);

    struct Prepared {
        store: Store,
        log: Recent,
        vm: String,
        budget: std::time::Duration,
        drains: DrainSource,
        directories: Vec<PathBuf>,
    }

    impl Healing {
        pub(crate) fn of(settings: &WorkerSettings, log: Recent, vm: &str, store: &Store) -> Self {
            let directories = directories(settings);
            let is_heard = settings.listen.is_some() && settings.metadata.is_some();
            Self((is_heard && !directories.is_empty()).then(|| Prepared {
                store: store.clone(),
                log,
                vm: vm.to_owned(),
                budget: settings.worker.budget,
                drains: DrainSource::default(),
                directories,
            }))
        }

        /// Lets it empty the worker.
        pub(crate) fn drains(&self, worker: WorkerBuilder) -> WorkerBuilder {
            match &self.0 {
                Some(prepared) => worker.interruptions(Arc::new(prepared.drains.clone())),
                None => worker,
            }
        }

        /// Begins, now that the worker has started.
        pub(crate) fn begin(self, monitor: Monitor, health: Health, boot: String, tasks: &mut JoinSet<()>) {
            let Some(Prepared { store, log, vm, budget, drains, directories }) = self.0 else { return };
            let parts = Parts { store, monitor, health, drains, log, vm, boot, budget };
            tasks.spawn(Healer::new(parts).run(Probe::new(directories)));
        }
    }

    /// The directories to which the worker writes, or may: that of the receipts, that which systemd made for it, and
    /// that of an embedded store.
    fn directories(settings: &WorkerSettings) -> Vec<PathBuf> {
        let of_systemd = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
        let mut directories: Vec<_> = settings.state_dir.iter().cloned().collect();
        directories.extend(std::env::split_paths(&of_systemd).filter(|path| path.is_absolute()));
        if let Address::Local(address) = &settings.store.address {
            let parent = address.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            directories.push(parent.unwrap_or_else(|| Path::new(".")).to_owned());
        }
        directories.dedup();
        directories
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    use reprieve_core::ports::Store;
    use reprieve_core::worker::{Monitor, WorkerBuilder};
    use tokio::task::JoinSet;

    use crate::health::Health;
    use crate::logging::Recent;
    use crate::settings::WorkerSettings;

    /// Nothing: Azure's repairs are tested on Linux only.
    pub(crate) struct Healing;

    impl Healing {
        pub(crate) fn of(_: &WorkerSettings, _: Recent, _: &str, _: &Store) -> Self {
            Self
        }

        pub(crate) fn drains(&self, worker: WorkerBuilder) -> WorkerBuilder {
            worker
        }

        pub(crate) fn begin(self, _: Monitor, _: Health, _: String, _: &mut JoinSet<()>) {}
    }
}
