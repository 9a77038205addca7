//! The VMs: worker processes that are started, evicted, killed and replaced, and never outlive the
//! demo.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use reprieve::clock::unix_millis;
use reprieve::{Error, ErrorKind, Result};
use reprieve_sim::metadata::{Config, MetadataServer};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::directory::{self, DemoDirectory};
use crate::store::DemoStore;

/// The frames that a VM renders at once.
pub(crate) const CONCURRENCY: usize = 2;

/// The workers' `--checkpoint-every`.
pub(crate) const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// The longest wait for an idle worker to exit.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// All VMs, in as many slots as there are at a time.
#[derive(Debug)]
pub(crate) struct Fleet {
    program: PathBuf,
    directory: PathBuf,
    logs: PathBuf,
    home: DemoStore,
    notice: Duration,
    metadata: MetadataServer,
    slots: Vec<Vm>,
    gone: Vec<Lifetime>,
    /// The number of VMs that were started.
    begun: usize,
}

#[derive(Debug)]
struct Vm {
    number: usize,
    name: String,
    process: Child,
    began_unix_ms: i64,
    /// The time of an eviction's announcement, and of the eviction.
    evicted: Option<(i64, Instant)>,
}

/// The lifetime of a VM that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lifetime {
    number: usize,
    pub(crate) vm: String,
    pub(crate) began_unix_ms: i64,
    pub(crate) ended_unix_ms: i64,
    pub(crate) end: End,
}

#[cfg(test)]
impl Lifetime {
    pub(crate) fn new(vm: &str, began_unix_ms: i64, ended_unix_ms: i64, end: End) -> Self {
        Self { number: 0, vm: vm.to_owned(), began_unix_ms, ended_unix_ms, end }
    }
}

/// The end of a VM, as far as the fleet knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Evicted { announced_unix_ms: i64 },
    Killed,
}

/// A VM that has ended, and its replacement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) gone: String,
    pub(crate) by: String,
}

impl Fleet {
    /// Starts the metadata service and one worker for each slot, in `place`, on the store `home`.
    pub(crate) async fn start(
        directory: &DemoDirectory,
        home: &DemoStore,
        slots: usize,
        notice: Duration,
    ) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed("find this program", error))?;
        let mut fleet = Self {
            program,
            directory: directory.path().to_owned(),
            logs: directory.logs(),
            home: home.clone(),
            notice,
            metadata: MetadataServer::start(Config::default()).await?,
            slots: Vec::with_capacity(slots),
            gone: Vec::new(),
            begun: 0,
        };
        for _ in 0..slots {
            let vm = fleet.begin()?;
            fleet.slots.push(vm);
        }
        Ok(fleet)
    }

    /// The number of VMs at a time.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The VM in this slot, unless it is about to go.
    pub(crate) fn staying(&self, slot: usize) -> Option<&str> {
        let vm = self.slots.get(slot)?;
        vm.evicted.is_none().then_some(vm.name.as_str())
    }

    /// Announces that the VM in this slot will be taken back, and returns its name.
    pub(crate) fn evict(&mut self, slot: usize) -> Result<String> {
        let vm = &mut self.slots[slot];
        let announced_unix_ms = unix_millis();
        self.metadata.evict(&vm.name, self.notice)?;
        vm.evicted = Some((announced_unix_ms, Instant::now() + self.notice));
        Ok(vm.name.clone())
    }

    /// Kills the VM in this slot at once, and starts another in its place.
    pub(crate) async fn kill(&mut self, slot: usize) -> Result<Replaced> {
        let process = &mut self.slots[slot].process;
        let ended_unix_ms = unix_millis();
        process.start_kill().map_err(|error| failed("kill a VM", error))?;
        process.wait().await.map_err(|error| failed("kill a VM", error))?;
        let next = self.begin()?;
        let by = next.name.clone();
        let vm = std::mem::replace(&mut self.slots[slot], next);
        let gone = vm.name.clone();
        self.gone.push(vm.life(ended_unix_ms, End::Killed));
        self.metadata.remove_vm(&gone)?;
        Ok(Replaced { gone, by })
    }

    /// The time of the next eviction.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|vm| Some(vm.evicted?.1)).min()
    }

    /// Kills and replaces the next VM with an expired notice.
    pub(crate) async fn end_evicted(&mut self) -> Result<Option<Replaced>> {
        let over = |vm: &Vm| vm.evicted.is_some_and(|(_, at)| at <= Instant::now());
        match self.slots.iter().position(over) {
            Some(slot) => self.kill(slot).await.map(Some),
            None => Ok(None),
        }
    }

    /// The VMs with a notice that has not expired.
    pub(crate) fn going(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter(|vm| vm.evicted.is_some()).map(|vm| vm.name.as_str())
    }

    /// Fails when a worker has ended by itself, which none should.
    pub(crate) fn check(&mut self) -> Result<()> {
        for vm in &mut self.slots {
            if let Some(status) =
                vm.process.try_wait().map_err(|error| failed("check a VM's worker", error))?
            {
                let log = directory::log(&self.logs, &vm.name);
                let message =
                    format!("the worker on {} exited with {status}; see {}", vm.name, log.display());
                return Err(Error::new(ErrorKind::Internal, "run the demo", message));
            }
        }
        Ok(())
    }

    /// Ends all VMs, because the work is done, and returns the lifetime of each, in the order of
    /// their starts. A VM that is about to be evicted is killed.
    pub(crate) async fn finish(mut self) -> Result<Vec<Lifetime>> {
        let ended_unix_ms = unix_millis();
        for vm in &mut self.slots {
            // Waiting closes its standard input, upon which it ends.
            let ended = match vm.evicted {
                Some(_) => None,
                None => timeout(END_TIMEOUT, vm.process.wait()).await.ok(),
            };
            if ended.is_none() {
                end(&mut vm.process).await;
            }
        }
        self.gone.extend(self.slots.drain(..).map(|vm| vm.life(ended_unix_ms, End::Finished)));
        self.gone.sort_by_key(|life| life.number);
        self.metadata.stop().await;
        Ok(self.gone)
    }

    /// Kills all processes and waits for their end.
    pub(crate) async fn stop(mut self) {
        for vm in &mut self.slots {
            end(&mut vm.process).await;
        }
        self.metadata.stop().await;
    }

    /// Starts a worker on a VM that was not there before.
    fn begin(&mut self) -> Result<Vm> {
        self.begun += 1;
        let (number, name) = (self.begun, format!("vm-{}", self.begun));
        self.metadata.add_vm(&name)?;
        let began_unix_ms = unix_millis();
        let process = self.worker(&name).map_err(|error| failed("start a worker", error))?;
        Ok(Vm { number, name, process, began_unix_ms, evicted: None })
    }

    fn worker(&self, vm: &str) -> io::Result<Child> {
        let log = File::create(directory::log(&self.logs, vm))?;
        let mut command = Command::new(&self.program);
        // The caller's environment and settings file do not apply.
        command.env_clear().current_dir(&self.directory);
        if let Some(root) = std::env::var_os("SystemRoot") {
            // Without it nothing on Windows opens a socket.
            command.env("SystemRoot", root);
        }
        command
            .args(["demo-worker", "--journal", directory::JOURNAL, "--vm", vm, "--vm-name", vm])
            .args(["--metadata-url", &self.metadata.vm_url(vm)])
            .args(["--concurrency", &CONCURRENCY.to_string()])
            .args(["--checkpoint-every", &format!("{}ms", CHECKPOINT_EVERY.as_millis())])
            .args(["--log-format", "json", "--log", "info,reprieve_core=debug"]);
        self.home.configure(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn()
    }
}

impl Vm {
    /// Its life, which ended so unless an eviction was announced.
    fn life(self, ended_unix_ms: i64, end: End) -> Lifetime {
        let Self { number, name: vm, began_unix_ms, evicted, .. } = self;
        let end = evicted.map_or(end, |(announced_unix_ms, _)| End::Evicted { announced_unix_ms });
        Lifetime { number, vm, began_unix_ms, ended_unix_ms, end }
    }
}

/// Kills a process, if it has not ended, and waits until it is gone. Either only fails for one that
/// is.
async fn end(process: &mut Child) {
    let _gone = process.start_kill();
    let _gone = process.wait().await;
}

fn failed(operation: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, operation, error.to_string()).with_source(error)
}
