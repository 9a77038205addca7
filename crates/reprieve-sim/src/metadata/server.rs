//! The running mock: its listeners and its shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use axum::{Extension, middleware};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use reprieve_azure::scheduled_events::document::Event;
use reprieve_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;
use tracing::info;
use uuid::Uuid;

use super::app::App;
use super::config::Config;
use super::endpoints::Own;
use super::faults::{Endpoint, Fault, FaultRule};
use super::moment::Moment;
use super::plan::EventPlan;
use super::refusal::Refusal;
use super::scenario::Scenario;
use super::state::{Evicted, State, Which};
use super::world::World;
use super::{Announcement, control, endpoints, page};
use crate::connection::{self, Answered, Reset, accept, closed};

/// A running mock. It stops when dropped; [`stop`](Self::stop) waits until it has stopped.
#[derive(Debug)]
pub struct MetadataServer {
    app: Arc<App>,
    addr: SocketAddr,
    tasks: TaskTracker,
    _stop: DropGuard,
}

impl MetadataServer {
    /// Starts a mock on the current runtime.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when an address is taken,
    /// [`Invalid`](ErrorKind::Invalid) for a VM name that is invalid or occurs twice.
    pub async fn start(config: Config) -> Result<Self> {
        let mut world = World::new(config.started_for, config.speed, config.scenarios.clone());
        let now = Moment::now();
        let mut ids = Vec::new();
        for name in &config.vms {
            // Whatever the refusal's kind, the configuration is invalid.
            let added = world.add_vm(name, now);
            ids.push(added.map_err(|refusal| Error::new(ErrorKind::Invalid, OPERATION, refusal.message))?);
        }
        let first = listen(config.addr).await?;
        let addr = first.1;
        let mut listeners = vec![(first, ids.first().copied().filter(|_| config.one_port_each))];
        if config.one_port_each {
            for (number, id) in (1..).zip(ids.into_iter().skip(1)) {
                listeners.push((listen(next(config.addr, number)?).await?, Some(id)));
            }
        }
        let app = Arc::new(App::new(world, addr, &config));
        let stop = app.stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        for ((listener, addr), vm) in listeners {
            if let Some(vm) = vm {
                app.listens_for(vm, addr);
            }
            tasks.spawn(serve(listener, vm, &app, &tasks));
        }
        tasks.close();
        info!(%addr, vms = ?config.vms, "mock metadata service listens");
        Ok(Self { app, addr, tasks, _stop: stop })
    }

    /// Returns its address; that of its first VM if each has a port of its own.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the base URL of its first VM, which is also its address for [`crate::control`].
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the base URL of the VM called `name`.
    #[must_use]
    pub fn vm_url(&self, name: &str) -> String {
        let id = self.app.world().0.vm(Some(name)).map(|vm| vm.id);
        match id.and_then(|id| self.app.addr_of(id)) {
            Some(own) => format!("http://{own}"),
            None => format!("http://{}/vm/{name}", self.addr),
        }
    }

    /// Announces the eviction of the VM after `notice`.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) without such a VM, [`Conflict`](ErrorKind::Conflict) when
    /// the VM is already being evicted.
    pub fn evict(&self, vm: &str, notice: Duration) -> Result<Evicted> {
        self.app.evict(vm, notice).map_err(|refusal| refusal.during("evict a VM"))
    }

    /// Announces any event and returns it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an event that starts after the year 9999,
    /// [`Conflict`](ErrorKind::Conflict) when an active event has its id.
    pub fn announce(&self, what: Announcement) -> Result<Event> {
        self.change("announce an event", |world, now| world.announce(what, now))
    }

    /// Announces an event in its written form and returns it.
    ///
    /// # Errors
    /// The errors of [`announce`](Self::announce), and [`Invalid`](ErrorKind::Invalid) for a plan
    /// that contradicts itself.
    pub fn announce_plan(&self, plan: &EventPlan) -> Result<Event> {
        self.change("announce an event", |world, now| world.announce_plan(plan, None, now))
    }

    /// Starts events before their time; returns their ids.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none, [`Conflict`](ErrorKind::Conflict) when
    /// all have begun.
    pub fn begin(&self, which: &Which) -> Result<Vec<String>> {
        self.change("start an event", |world, now| world.start(which, now))
    }

    /// Ends events that have begun before their time; returns their ids.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none, [`Conflict`](ErrorKind::Conflict) when
    /// none has begun.
    pub fn complete(&self, which: &Which) -> Result<Vec<String>> {
        self.change("complete an event", |world, now| world.complete(which, now))
    }

    /// Withdraws events that have not started; returns their ids.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when there is none, [`Conflict`](ErrorKind::Conflict) when
    /// all have started.
    pub fn withdraw(&self, which: &Which) -> Result<Vec<String>> {
        self.change("withdraw an event", |world, now| world.withdraw(which, now))
    }

    /// Runs the scenario called `name` for the VM `target`, or for the first VM; returns the VM's
    /// name.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) without such a scenario or VM.
    pub fn run(&self, name: &str, target: Option<&str>) -> Result<String> {
        self.change("run a scenario", |world, now| world.run(name, target, now))
    }

    /// Adds a scenario, and replaces one of the same name.
    pub fn add_scenario(&self, scenario: Scenario) {
        self.app.world().0.add_scenario(scenario);
    }

    /// Restarts the document incarnation at 1, as the service does when it is restarted. Events
    /// stay active.
    pub fn restart(&self) {
        let (mut world, now) = self.app.world();
        world.restart(now);
    }

    /// Adds a VM to the set. It is served on the first port; see [`vm_url`](Self::vm_url).
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an invalid VM name, [`Conflict`](ErrorKind::Conflict)
    /// for a name that is taken.
    pub fn add_vm(&self, name: &str) -> Result<()> {
        self.change("add a VM", |world, now| world.add_vm(name, now).map(|_id| ()))
    }

    /// Removes a VM from the set. Its requests are answered 404 from now on; in Azure a VM that is
    /// gone sends none.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) without such a VM.
    pub fn remove_vm(&self, name: &str) -> Result<()> {
        self.change("remove a VM", |world, now| world.remove_vm(name, now))
    }

    /// Returns the mock's whole state.
    #[must_use]
    pub fn state(&self) -> State {
        self.app.state()
    }

    /// Applies `fault` to the next `requests` requests to `endpoint`, after the active faults.
    pub fn inject(&self, endpoint: Endpoint, fault: &Fault, requests: usize) {
        self.app.world().0.inject(endpoint, fault.clone(), requests as u64);
    }

    /// Adds a fault by a rule, after the active ones; returns its number.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an invalid rule, [`NotFound`](ErrorKind::NotFound)
    /// without such a VM.
    pub fn add_fault(&self, rule: &FaultRule) -> Result<u64> {
        self.change("add a fault", |world, now| world.add_fault(rule, now))
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.app.world().0.faults().clear();
    }

    /// Stops the mock: it answers no more requests, and its ports are free when this returns.
    pub async fn stop(self) {
        self.app.stop.cancel();
        closed(&self.tasks, "the mock metadata service").await;
    }

    fn change<T>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut World, Moment) -> Result<T, Refusal>,
    ) -> Result<T> {
        let (mut world, now) = self.app.world();
        change(&mut world, now).map_err(|refusal| refusal.during(operation))
    }
}

const OPERATION: &str = "start the mock metadata service";

async fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    connection::listen(addr).await.map_err(|error| {
        let cure = match error.kind() {
            io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
            io::ErrorKind::PermissionDenied => {
                "choose a port from 1024 on, or a network namespace of your own"
            }
            _ => "choose another port",
        };
        let message = format!("can't listen on {addr}: {error}; {cure}");
        Error::new(ErrorKind::Unavailable, OPERATION, message).with_source(error)
    })
}

/// Returns the address of the VM with this number.
fn next(first: SocketAddr, number: u16) -> Result<SocketAddr> {
    let port = match first.port() {
        0 => Some(0),
        port => port.checked_add(number),
    };
    port.map(|port| SocketAddr::new(first.ip(), port)).ok_or_else(|| {
        let message = format!("there are not enough ports after {first} for each VM; choose a lower one");
        Error::new(ErrorKind::Invalid, OPERATION, message)
    })
}

fn serve(
    listener: TcpListener,
    vm: Option<Uuid>,
    app: &Arc<App>,
    tasks: &TaskTracker,
) -> impl Future<Output = ()> + use<> {
    let control = control::router().route_layer(middleware::from_fn(page::refuse_other_sites));
    let router = endpoints::router().merge(control).merge(page::router()).with_state(Arc::clone(app));
    let router = TowerToHyperService::new(router.layer(Extension(Own(vm))));
    let answer = move |request| -> Answered {
        let answer = router.call(request);
        Box::pin(async { unless_reset(answer.await) })
    };
    accept(listener, answer, app.stop.clone(), tasks.clone())
}

/// Resets the connection if a fault marked the answer with the [`Reset`] extension.
fn unless_reset(
    answer: std::result::Result<Response<Body>, Infallible>,
) -> std::result::Result<Response<Body>, Reset> {
    match answer {
        Ok(answer) => answer.extensions().get::<Reset>().copied().map_or(Ok(answer), Err),
        Err(never) => match never {},
    }
}
