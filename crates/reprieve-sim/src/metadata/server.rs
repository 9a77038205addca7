//! The running mock: listens, owns what is so, and stops.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_azure::scheduled_events::document::Event;
use reprieve_core::clock::wall_now;
use reprieve_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, info};

use super::faults::{Endpoint, Fault, Faults};
use super::state::{Evicted, State, Which};
use super::world::{Refusal, World};
use super::{Announcement, answers, control};

/// How long a stop waits for connections to close.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What a mock starts with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; a port of 0 takes a free one. Default: a free port of this machine only. It has no access
    /// control, so it should not be reachable from elsewhere.
    pub addr: SocketAddr,
    /// The names of its VMs. Default: none.
    pub vms: Vec<String>,
    /// How long an event is still told after it started. Default: 10 s, so that whoever tries it out sees the end; in
    /// Azure it is ten minutes.
    pub started_for: Duration,
    /// How long after the first request for events all of them are kept waiting, as in Azure, where it may be two
    /// minutes. Default: none.
    pub first_answer_after: Duration,
}

impl Config {
    /// The defaults, with these VMs.
    pub fn with_vms(vms: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { vms: vms.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            vms: Vec::new(),
            started_for: Duration::from_secs(10),
            first_answer_after: Duration::ZERO,
        }
    }
}

/// A running mock. It stops when it is dropped; [`stop`](Self::stop) waits until it has.
#[derive(Debug)]
pub struct MetadataServer {
    app: Arc<App>,
    addr: SocketAddr,
    task: JoinHandle<()>,
    _stop: DropGuard,
}

impl MetadataServer {
    /// Starts a mock on the current runtime.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the address is taken, [`Invalid`](ErrorKind::Invalid) or
    /// [`Conflict`](ErrorKind::Conflict) for a name that can't be a VM's or is there twice.
    pub async fn start(config: Config) -> Result<Self> {
        const OPERATION: &str = "start the mock metadata service";
        let mut world = World::new(config.started_for);
        for name in &config.vms {
            world.add_vm(name).map_err(|refusal| refusal.during(OPERATION))?;
        }
        let bound = async {
            let listener = TcpListener::bind(config.addr).await?;
            let addr = listener.local_addr()?;
            Ok::<_, io::Error>((listener, addr))
        };
        let (listener, addr) = bound.await.map_err(|error| {
            let message = format!("can't listen on {}: {error}; choose another port", config.addr);
            Error::new(ErrorKind::Unavailable, OPERATION, message).with_source(error)
        })?;
        let app = Arc::new(App {
            world: Mutex::new(world),
            faults: Mutex::default(),
            enabled_at: Mutex::default(),
            first_answer_after: config.first_answer_after,
            stop: CancellationToken::new(),
        });
        let stop = app.stop.clone().drop_guard();
        let task = tokio::spawn(serve(listener, Arc::clone(&app)));
        info!(%addr, vms = ?config.vms, "mock metadata service listens");
        Ok(Self { app, addr, task, _stop: stop })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL of its first VM, which is also where [`crate::control`] finds it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The base URL of the VM called `name`.
    #[must_use]
    pub fn vm_url(&self, name: &str) -> String {
        format!("http://{}/vm/{name}", self.addr)
    }

    /// Announces that the VM will be taken back after `notice`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) without such a VM, [`Conflict`](ErrorKind::Conflict) when it is being evicted
    /// already.
    pub fn evict(&self, vm: &str, notice: Duration) -> Result<Evicted> {
        self.app.evict(vm, notice).map_err(|refusal| refusal.during("evict a VM"))
    }

    /// Announces any event and returns it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for one that starts after the year 9999.
    pub fn announce(&self, what: Announcement) -> Result<Event> {
        let announced = self.app.world().announce(what, Instant::now(), wall_now());
        announced.map_err(|refusal| refusal.during("announce an event"))
    }

    /// Withdraws events that have not started; returns their ids.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none, [`Conflict`](ErrorKind::Conflict) when all have started.
    pub fn withdraw(&self, which: &Which) -> Result<Vec<String>> {
        self.app.world().withdraw(which).map_err(|refusal| refusal.during("withdraw an event"))
    }

    /// Adds a VM to the set.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that can't be a VM's, [`Conflict`](ErrorKind::Conflict) for one that
    /// is taken.
    pub fn add_vm(&self, name: &str) -> Result<()> {
        self.app.world().add_vm(name).map_err(|refusal| refusal.during("add a VM"))
    }

    /// Removes a VM from the set: it is answered 404 from now on, as nothing answers a VM that is gone.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) without such a VM.
    pub fn remove_vm(&self, name: &str) -> Result<()> {
        self.app.world().remove_vm(name).map_err(|refusal| refusal.during("remove a VM"))
    }

    /// All there is to know of it now.
    #[must_use]
    pub fn state(&self) -> State {
        self.app.world().state()
    }

    /// Lets `fault` befall the next so many requests to `endpoint`, after those that others befall already.
    pub fn inject(&self, endpoint: Endpoint, fault: &Fault, requests: usize) {
        self.app.faults().add(endpoint, fault, requests);
    }

    /// Forgets the faults that have not befallen a request yet.
    pub fn clear_faults(&self) {
        self.app.faults().clear();
    }

    /// Stops it: no request is answered any more, and the port is free when this returns.
    pub async fn stop(self) {
        self.app.stop.cancel();
        let mut task = self.task;
        if timeout(STOP_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn serve(listener: TcpListener, app: Arc<App>) {
    let stop = app.stop.clone();
    let router = answers::router().merge(control::router()).with_state(app);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        error!(%error, "the mock metadata service failed");
    }
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct App {
    world: Mutex<World>,
    faults: Mutex<Faults>,
    /// When requests for events begin to be answered; set by the first of them.
    enabled_at: Mutex<Option<Instant>>,
    first_answer_after: Duration,
    stop: CancellationToken,
}

impl App {
    /// The world as it is now.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        let mut world = lock(&self.world);
        world.settle(Instant::now());
        world
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub(super) fn evict(&self, vm: &str, notice: Duration) -> Result<Evicted, Refusal> {
        let evicted = self.world().evict(vm, notice, Instant::now(), wall_now())?;
        info!(vm = evicted.vm, event.id = evicted.event_id, ?notice, "eviction announced");
        Ok(evicted)
    }

    /// Waits until the service is enabled for events, which the first request brings about.
    pub(super) async fn until_enabled(&self) {
        let at = *lock(&self.enabled_at).get_or_insert_with(|| Instant::now() + self.first_answer_after);
        if at > Instant::now() {
            self.unless_stopped(sleep_until(at)).await;
        }
    }

    /// Waits for `what`, but not longer than the mock runs.
    pub(super) async fn unless_stopped(&self, what: impl Future<Output = ()>) {
        tokio::select! {
            () = what => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
