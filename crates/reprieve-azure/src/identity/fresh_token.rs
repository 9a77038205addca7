//! A token that is refreshed in advance: a task fetches the next one at half the life of the last.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use azure_core::credentials::AccessToken;
use rand::Rng as _;
use reprieve_core::clock;
use reqwest::header::HeaderValue;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::NoIdentity;
use super::chain::Chain;

/// The shortest wait before the next fetch: some sources return the same token until shortly before
/// its end.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest wait between two failed tries while the present token is valid.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The longest wait between two failed tries while requests wait for a token.
const RETRY_MAX_WITHOUT: Duration = Duration::from_secs(5);

/// How long a caller that only wants a token waits for a new failure while an old one is known: within the second that
/// a connection to a cache waits for its token.
const KNOWN_AFTER: Duration = Duration::from_millis(800);

/// The minimum age at which a token that the service refused is fetched again: if a new token was
/// refused, another one would be as well.
const SUSPECT_AGE_MIN: Duration = Duration::from_secs(30);

/// Provides the `authorization` header of requests, from memory while the token is valid.
pub(crate) struct FreshToken {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    chain: Chain,
    state: watch::Sender<State>,
    /// Requests a new token now.
    hurry: Notify,
}

#[derive(Default)]
struct State {
    token: Option<CachedToken>,
    /// How many fetches have failed, and why the last one did.
    failures: u64,
    failure: Option<NoIdentity>,
}

/// The present token.
struct CachedToken {
    token: AccessToken,
    header: HeaderValue,
    since: Instant,
    /// Its end on both clocks: the monotonic one stops while a VM is frozen, the other one can be
    /// set.
    until: Instant,
    until_wall: SystemTime,
}

impl FreshToken {
    pub(crate) fn new(chain: Chain) -> Self {
        let shared = Shared { chain, state: watch::Sender::default(), hurry: Notify::new() };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Returns the header: at once while the present token is valid, else when the next one
    /// arrives.
    ///
    /// The fetch continues if this is cancelled, so a caller may give up and try again.
    ///
    /// # Errors
    /// [`NoIdentity`], when there is no valid token and the next try to fetch one failed. Each try
    /// has a time limit.
    pub(crate) async fn header(&self) -> azure_core::Result<HeaderValue> {
        self.get(|token| token.header.clone()).await.map_err(NoIdentity::into_sdk)
    }

    /// Returns the token itself, as [`header`](Self::header) does. Where a try has failed and the next one takes long,
    /// it returns the known failure rather than to keep the reason from a caller with less patience.
    pub(super) async fn token(&self) -> Result<AccessToken, NoIdentity> {
        let known = self.shared.state.borrow().failure.clone();
        let token = self.get(|token| token.token.clone());
        match known {
            None => token.await,
            Some(known) => timeout(KNOWN_AFTER, token).await.unwrap_or(Err(known)),
        }
    }

    async fn get<T>(&self, part: impl FnOnce(&CachedToken) -> T) -> Result<T, NoIdentity> {
        self.keep_fetching();
        let mut state = self.shared.state.subscribe();
        let failures = state.borrow().failures;
        let now = |state: &State| state.good().is_some() || state.failures > failures;
        match state.wait_for(now).await {
            Ok(state) => match (state.good(), &state.failure) {
                (Some(token), _) => Ok(part(token)),
                (None, Some(failure)) => Err(failure.clone()),
                (None, None) => Err(NoIdentity::new("no token was fetched", true)),
            },
            Err(_) => Err(NoIdentity::new("tokens are no longer fetched", true)),
        }
    }

    /// The identity of the present token and its end; `None` without a valid token.
    pub(crate) fn at_hand(&self) -> Option<(&'static str, SystemTime)> {
        let state = self.shared.state.borrow();
        state.good().map(|token| (self.shared.chain.kept(), token.until_wall))
    }

    /// Notes that the service refused the token, and requests another. The present token stays in
    /// use: the refusal may be the service's mistake.
    pub(crate) fn suspect(&self) {
        let state = self.shared.state.borrow();
        if state.token.as_ref().is_some_and(|token| token.since.elapsed() >= SUSPECT_AGE_MIN) {
            self.shared.hurry.notify_one();
        }
    }

    /// Starts the task that fetches, unless it runs. The runtime that it ran on may have ended.
    fn keep_fetching(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(Arc::clone(&self.shared).fetch()));
        }
    }
}

impl Drop for FreshToken {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl fmt::Debug for FreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreshToken").finish_non_exhaustive()
    }
}

impl Shared {
    /// Fetches a token, and the next at half its life, without end.
    async fn fetch(self: Arc<Self>) {
        let mut failures_in_a_row = 0;
        loop {
            let fetched = self.chain.token().await.and_then(|token| CachedToken::new(&token));
            let pause = match fetched {
                Ok(token) => {
                    failures_in_a_row = 0;
                    let pause = token.until.saturating_duration_since(Instant::now()) / 2;
                    self.state.send_modify(|state| state.token = Some(token));
                    jittered(pause).max(PAUSE_MIN)
                }
                Err(failure) => {
                    failures_in_a_row += 1;
                    self.failed(failure, failures_in_a_row)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    /// Notes a failure and returns how long to wait.
    fn failed(&self, failure: NoIdentity, in_a_row: u32) -> Duration {
        let left =
            self.state.borrow().good().map(|token| token.until.saturating_duration_since(Instant::now()));
        let longest = if let Some(left) = left {
            tracing::warn!(error = %failure, good_for = ?left, "failed to fetch the next token; the present one is still used");
            RETRY_MAX.min(left / 2)
        } else {
            tracing::debug!(error = %failure, "failed to fetch a token; trying again");
            RETRY_MAX_WITHOUT
        };
        self.state.send_modify(|state| {
            state.failures += 1;
            state.failure = Some(failure);
        });
        let pause = Duration::from_secs(1) * 2_u32.saturating_pow(in_a_row - 1);
        jittered(pause.min(longest)).max(Duration::from_millis(100))
    }
}

impl State {
    fn good(&self) -> Option<&CachedToken> {
        self.token
            .as_ref()
            .filter(|token| Instant::now() < token.until && clock::wall_now() < token.until_wall)
    }
}

impl CachedToken {
    fn new(token: &AccessToken) -> Result<Self, NoIdentity> {
        let until_wall = SystemTime::from(token.expires_on);
        if until_wall <= clock::wall_now() {
            let message = "the token has already expired; set this machine's clock (chrony/NTP)";
            return Err(NoIdentity::new(message, false));
        }
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.token.secret())).map_err(|_| {
            NoIdentity::new("the token has characters that no HTTP header can contain", false)
        })?;
        header.set_sensitive(true);
        Ok(Self {
            token: token.clone(),
            header,
            since: Instant::now(),
            until: clock::instant_at(until_wall),
            until_wall,
        })
    }
}

/// Varies the wait by up to a tenth, so that workers that started together do not fetch together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.9..1.1))
}

#[cfg(test)]
mod tests;
