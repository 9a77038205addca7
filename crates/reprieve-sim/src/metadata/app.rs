//! The state that all requests share: the world, its clock, and the addresses of its VMs.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use jiff::SignedDuration;
use reprieve_azure::scheduled_events::ApiVersion;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::info;
use uuid::Uuid;

use super::config::Config;
use super::faults::{Endpoint, Fault};
use super::moment::Moment;
use super::refusal::Refusal;
use super::state::{Evicted, State};
use super::world::World;

/// After this time without a request for events, the service is disabled for them.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const DISABLED_AFTER: Duration = Duration::from_hours(24);

/// The service is enabled for events.
#[derive(Debug, Clone, Copy)]
struct Enabled {
    /// When it begins to answer.
    from: Instant,
    /// The last request.
    last: Instant,
}

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct App {
    world: Mutex<World>,
    /// The listeners that serve only one VM.
    addrs: Mutex<HashMap<Uuid, SocketAddr>>,
    /// The address of the first listener.
    addr: SocketAddr,
    requests_per_second: Option<NonZeroU32>,
    /// When the requests of each VM were answered in the last second, by its name.
    answered: Mutex<HashMap<String, VecDeque<Instant>>>,
    /// `None` before the first request for events.
    enabled: Mutex<Option<Enabled>>,
    first_answer_after: Duration,
    preview: bool,
    pub(super) eviction_policy: String,
    /// How far the service's clock is ahead of this machine's.
    pub(super) ahead: SignedDuration,
    /// The lifetime of a token.
    pub(super) token_lifetime: Duration,
    pub(super) stop: CancellationToken,
}

impl App {
    pub(super) fn new(world: World, addr: SocketAddr, config: &Config) -> Self {
        Self {
            world: Mutex::new(world),
            addrs: Mutex::default(),
            addr,
            requests_per_second: config.requests_per_second,
            answered: Mutex::default(),
            enabled: Mutex::default(),
            first_answer_after: config.first_answer_after,
            preview: config.preview,
            eviction_policy: config.eviction_policy.clone(),
            ahead: config.ahead,
            token_lifetime: config.token_lifetime,
            stop: CancellationToken::new(),
        }
    }

    /// Returns the world as of now, and the present moment.
    pub(super) fn world(&self) -> (MutexGuard<'_, World>, Moment) {
        let mut world = lock(&self.world);
        let now = Moment::now();
        world.settle(now);
        (world, now)
    }

    /// Returns the mock's whole state.
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

    /// Returns the address of the VM's own listener, if it has one.
    pub(super) fn addr_of(&self, vm: Uuid) -> Option<SocketAddr> {
        lock(&self.addrs).get(&vm).copied()
    }

    pub(super) fn evict(&self, vm: &str, notice: Duration) -> Result<Evicted, Refusal> {
        let (mut world, now) = self.world();
        let evicted = world.evict(vm, notice, now)?;
        info!(vm = evicted.vm, event.id = evicted.event_id, ?notice, "eviction announced");
        Ok(evicted)
    }

    /// Returns the fault for a request of the VM, for events in this version.
    pub(super) fn fault(&self, endpoint: Endpoint, vm: &str, version: Option<ApiVersion>) -> Fault {
        if endpoint != Endpoint::Identity && self.is_over_limit(vm, Instant::now()) {
            return Fault::Status(StatusCode::TOO_MANY_REQUESTS.as_u16());
        }
        let (mut world, now) = self.world();
        world.faults().take(endpoint, vm, version, now.at)
    }

    /// Whether the VM has had its answers of the last second. If not, this one counts.
    fn is_over_limit(&self, vm: &str, now: Instant) -> bool {
        let Some(limit) = self.requests_per_second else { return false };
        let mut answered = lock(&self.answered);
        let answered = answered.entry(vm.to_ascii_lowercase()).or_default();
        answered.retain(|at| now.duration_since(*at) < Duration::from_secs(1));
        let is_over = answered.len() >= limit.get() as usize;
        if !is_over {
            answered.push_back(now);
        }
        is_over
    }

    /// Returns the supported versions of events, newest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = ApiVersion> {
        let preview = self.preview;
        ApiVersion::ALL.into_iter().filter(move |version| preview || *version != ApiVersion::V2024_07_09)
    }

    /// Returns what the service's clock shows at `wall` of this machine's.
    pub(super) fn shown(&self, wall: SystemTime) -> SystemTime {
        let by = self.ahead.unsigned_abs();
        let shown = if self.ahead.is_negative() { wall.checked_sub(by) } else { wall.checked_add(by) };
        shown.unwrap_or(wall)
    }

    /// Waits until the service is enabled for events. The first request enables it, and so does the
    /// first one after [`DISABLED_AFTER`] without any.
    pub(super) async fn until_enabled(&self) {
        let now = Instant::now();
        let from = {
            let mut enabled = lock(&self.enabled);
            let known = enabled.filter(|known| now.duration_since(known.last) < DISABLED_AFTER);
            let from = known.map_or(now + self.first_answer_after, |known| known.from);
            *enabled = Some(Enabled { from, last: now });
            from
        };
        if from > now {
            sleep_until(from).await;
        }
    }
}

/// The lock can't be poisoned: no code panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
