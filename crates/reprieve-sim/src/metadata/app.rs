//! What all requests share: the world, its clock, and where its VMs are.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_azure::scheduled_events::ApiVersion;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::info;
use uuid::Uuid;

use super::faults::{Endpoint, Fault};
use super::moment::Moment;
use super::refusal::Refusal;
use super::state::{Evicted, State};
use super::world::World;

/// What all requests share.
#[derive(Debug)]
pub(super) struct App {
    world: Mutex<World>,
    /// The listeners of VMs that have one of their own.
    addrs: Mutex<HashMap<Uuid, SocketAddr>>,
    /// Where the first listener is.
    addr: SocketAddr,
    /// When requests for events begin to be answered; set by the first of them.
    enabled_at: Mutex<Option<Instant>>,
    first_answer_after: Duration,
    preview: bool,
    /// How long a token is good.
    pub(super) token_lifetime: Duration,
    pub(super) stop: CancellationToken,
}

impl App {
    pub(super) fn new(
        world: World,
        addr: SocketAddr,
        first_answer_after: Duration,
        preview: bool,
        token_lifetime: Duration,
    ) -> Self {
        Self {
            world: Mutex::new(world),
            addrs: Mutex::default(),
            addr,
            enabled_at: Mutex::default(),
            first_answer_after,
            preview,
            token_lifetime,
            stop: CancellationToken::new(),
        }
    }

    /// The world as it is now, and when that is.
    pub(super) fn world(&self) -> (MutexGuard<'_, World>, Moment) {
        let mut world = lock(&self.world);
        let now = Moment::now();
        world.settle(now);
        (world, now)
    }

    /// All there is to know.
    pub(super) fn state(&self) -> State {
        let (world, now) = self.world();
        let mut state = world.state(now);
        let addrs = lock(&self.addrs);
        for vm in &mut state.vms {
            let own = vm.vm_id.parse().ok().and_then(|id: Uuid| addrs.get(&id));
            vm.url = match own {
                Some(own) => format!("http://{own}"),
                None => format!("http://{}{}", self.addr, vm.path),
            };
        }
        state
    }

    pub(super) fn listens_for(&self, vm: Uuid, addr: SocketAddr) {
        lock(&self.addrs).insert(vm, addr);
    }

    /// Where the VM has a listener of its own.
    pub(super) fn addr_of(&self, vm: Uuid) -> Option<SocketAddr> {
        lock(&self.addrs).get(&vm).copied()
    }

    pub(super) fn evict(&self, vm: &str, notice: Duration) -> Result<Evicted, Refusal> {
        let (mut world, now) = self.world();
        let evicted = world.evict(vm, notice, now)?;
        info!(vm = evicted.vm, event.id = evicted.event_id, ?notice, "eviction announced");
        Ok(evicted)
    }

    /// What befalls a request of the VM.
    pub(super) fn fault(&self, endpoint: Endpoint, vm: &str) -> Fault {
        let (mut world, now) = self.world();
        world.faults().take(endpoint, vm, now.at)
    }

    /// The versions of events that are answered, newest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = ApiVersion> {
        let preview = self.preview;
        ApiVersion::ALL.into_iter().filter(move |version| preview || *version != ApiVersion::V2024_07_09)
    }

    /// Waits until the service is enabled for events, which the first request brings about.
    pub(super) async fn until_enabled(&self) {
        let at = *lock(&self.enabled_at).get_or_insert_with(|| Instant::now() + self.first_answer_after);
        if at > Instant::now() {
            sleep_until(at).await;
        }
    }
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
