//! A service that prices items, in place of a real one: it fails one time in five, and refuses calls over
//! its rate.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// Each of as many calls fails.
const FAILS_EVERY: u64 = 5;

/// It has no price for the last of as many items.
const UNKNOWN_EVERY: u32 = 1_000;

/// How long it takes to publish a sum.
const PUBLISHING: Duration = Duration::from_millis(500);

/// What the service has seen.
#[derive(Debug, Clone, Default, Serialize)]
struct Seen {
    calls: u64,
    failed: u64,
    over_the_rate: u64,
    /// Sums that came while another was being published.
    refused: u64,
    /// The sums of the catalogues.
    totals: BTreeMap<String, u64>,
}

/// The service.
#[derive(Debug)]
pub(crate) struct Service {
    per_second: u32,
    state: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    seen: Seen,
    is_publishing: bool,
    /// The second that is counted, and its calls so far.
    second: (Instant, u32),
}

impl Service {
    /// A service that answers so many calls in a second.
    pub(crate) fn new(per_second: u32) -> Self {
        let known = Known { seen: Seen::default(), is_publishing: false, second: (Instant::now(), 0) };
        Self { per_second, state: Mutex::new(known) }
    }

    /// Serves until the listener fails.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let routes = Router::new()
            .route("/prices/{item}", get(price))
            .route("/totals/{catalogue}", put(publish))
            .route("/seen", get(seen));
        axum::serve(listener, routes.with_state(self)).await
    }

    /// Returns the sums of the catalogues, and forgets them.
    #[cfg(test)]
    pub(crate) fn take_totals(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.state().seen.totals)
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn price(State(service): State<Arc<Service>>, Path(item): Path<u32>) -> Result<Json<u64>, StatusCode> {
    let mut state = service.state();
    state.seen.calls += 1;
    if state.second.0.elapsed() >= Duration::from_secs(1) {
        state.second = (Instant::now(), 0);
    }
    state.second.1 += 1;
    if state.second.1 > service.per_second {
        state.seen.over_the_rate += 1;
        return Err(StatusCode::TOO_MANY_REQUESTS);
    }
    if state.seen.calls.is_multiple_of(FAILS_EVERY) {
        state.seen.failed += 1;
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    price_of(item).map(Json).ok_or(StatusCode::NOT_FOUND)
}

/// The price of an item; `None` when it has none.
pub(crate) fn price_of(item: u32) -> Option<u64> {
    let is_known = item % UNKNOWN_EVERY != UNKNOWN_EVERY - 1;
    is_known.then(|| u64::from(item) * 7_919 % 1_000)
}

async fn publish(
    State(service): State<Arc<Service>>,
    Path(catalogue): Path<String>,
    Json(sum): Json<u64>,
) -> StatusCode {
    if std::mem::replace(&mut service.state().is_publishing, true) {
        service.state().seen.refused += 1;
        return StatusCode::CONFLICT;
    }
    let published = Publishing(Arc::clone(&service));
    sleep(PUBLISHING).await;
    service.state().seen.totals.insert(catalogue, sum);
    drop(published);
    StatusCode::NO_CONTENT
}

/// A sum is being published, or its caller has gone.
struct Publishing(Arc<Service>);

impl Drop for Publishing {
    fn drop(&mut self) {
        self.0.state().is_publishing = false;
    }
}

async fn seen(State(service): State<Arc<Service>>) -> Json<Seen> {
    Json(service.state().seen.clone())
}
