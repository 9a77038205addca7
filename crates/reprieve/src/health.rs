//! The `/healthz`, `/livez`, `/readyz` and `/metrics` endpoints.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reprieve_azure::scheduled_events::{ApiVersion, Stats, Watcher};
use reprieve_core::interruption::Stage;
use reprieve_core::telemetry::{ByReason, ByVersion, Telemetry};
use reprieve_core::worker::Monitor;
use reprieve_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// How long the control loop may go without a beat. It iterates once a second, so 10 s is no
/// hiccup.
const BEAT_AGE_MAX: Duration = Duration::from_secs(10);

/// The content type of the metrics encoder's output.
/// <https://prometheus.io/docs/specs/om/open_metrics_spec/#overall-structure>
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The sources of the endpoints' answers.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    /// Set when the worker has started.
    monitor: Arc<OnceLock<Monitor>>,
    watcher: Option<Arc<Watcher>>,
    /// Whether this worker answers, and not another one of this VM.
    is_serving: Arc<AtomicBool>,
    /// Whether this VM should be replaced.
    is_unhealthy: Arc<AtomicBool>,
}

/// How often a worker tries to take over the endpoints of another one.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(1);

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    // Port 0 takes a free port; the log line shows which.
    tracing::info!(address = %listener.local_addr()?, "listening for health checks");
    Ok(listener)
}

/// Binds the address at the start, so that a worker that could not be monitored fails then. Returns
/// `None` if another worker of this VM, with which this one shares a directory, answers there.
pub(crate) async fn listen(address: SocketAddr, is_shared: bool) -> Result<Option<TcpListener>> {
    let bound = match bind(address).await {
        Err(error) if is_shared && error.kind() == io::ErrorKind::AddrInUse => {
            tracing::info!(%address, "another worker answers health checks; taking over when it ends");
            return Ok(None);
        }
        bound => bound.map(Some),
    };
    bound.map_err(|error| {
        let message = format!("can't listen on {address}: {error}; choose another address for --listen");
        Error::new(ErrorKind::Unavailable, "serve the health endpoints", message).with_source(error)
    })
}

impl Health {
    /// The health of a worker that starts.
    pub(crate) fn new(watcher: Option<Arc<Watcher>>) -> Self {
        Self { monitor: Arc::default(), watcher, is_serving: Arc::default(), is_unhealthy: Arc::default() }
    }

    /// Notes that the worker has started.
    pub(crate) fn started(&self, monitor: Monitor) {
        // It starts once.
        drop(self.monitor.set(monitor));
    }

    /// Whether the control loop runs. A worker that waits for its store is alive.
    pub(crate) fn is_alive(&self) -> bool {
        self.silence() < BEAT_AGE_MAX
    }

    /// How long ago the control loop last ran.
    fn silence(&self) -> Duration {
        self.monitor.get().map(|monitor| monitor.last_beat().elapsed()).unwrap_or_default()
    }

    /// Whether the worker can run no job, because all its slots are stuck.
    fn is_stuck(&self) -> bool {
        self.monitor.get().is_some_and(Monitor::is_stuck)
    }

    /// Whether this worker answers health checks, and not another one of this VM.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Answers from now on whether this VM should be replaced.
    #[cfg(target_os = "linux")]
    pub(crate) fn report_unhealthy(&self, is_unhealthy: bool) {
        self.is_unhealthy.store(is_unhealthy, Ordering::Relaxed);
    }

    /// Whether this VM should be replaced.
    pub(crate) fn is_unhealthy(&self) -> bool {
        self.is_unhealthy.load(Ordering::Relaxed)
    }

    /// Answers health checks, as far as a test is concerned.
    #[cfg(test)]
    pub(crate) fn serve_in_a_test(&self) {
        self.is_serving.store(true, Ordering::Relaxed);
    }

    /// The worker's stage.
    pub(crate) fn stage(&self) -> Stage {
        self.monitor.get().map_or(Stage::Recover, Monitor::stage)
    }

    /// Serves the endpoints until the process ends; without a listener, as soon as the worker that
    /// answers there has ended.
    pub(crate) async fn serve(self, address: SocketAddr, listener: Option<TcpListener>) {
        let mut listener = listener;
        let listener = loop {
            match listener {
                Some(listener) => break listener,
                None => sleep(TAKE_OVER_EVERY).await,
            }
            listener = bind(address).await.ok();
        };
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone());
        self.is_serving.store(true, Ordering::Relaxed);
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the health endpoints have failed");
        }
    }
}

/// Returns what the Application Health extension reads: whether the VM should be replaced. It takes
/// any other answer, also an error status, for "Unknown", and automatic repairs then replace the VM.
/// So this answers the same in a drain, and when a restart of the process would help. `Unhealthy`, too, has the status
/// 200: with any other one it would be `Unknown`.
/// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-health-extension#rich-health-states>
async fn healthz(State(health): State<Health>) -> impl IntoResponse {
    let state = if health.is_unhealthy() {
        r#"{"ApplicationHealthState":"Unhealthy"}"#
    } else {
        r#"{"ApplicationHealthState":"Healthy"}"#
    };
    ([(header::CONTENT_TYPE, "application/json")], state)
}

/// Returns 200 while the control loop runs, else 503: the process should be restarted.
async fn livez(State(health): State<Health>) -> impl IntoResponse {
    if health.is_alive() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let silence_s = health.silence().as_secs();
        (StatusCode::SERVICE_UNAVAILABLE, format!("the control loop last ran {silence_s} s ago\n"))
    }
}

/// Returns 200 in the stage Start, else 503: until the metadata service and the store have
/// answered, during a drain, and after it while its notice is active. 503 also while every slot is
/// occupied by a job that was given up and does not end.
async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let stage = health.stage();
    if health.is_stuck() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stuck\n".to_owned());
    }
    let status = if stage == Stage::Start { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", stage.as_str()))
}

/// Returns the metrics; 503 before the worker has started.
async fn metrics(State(health): State<Health>) -> Response {
    let Some(monitor) = health.monitor.get() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let telemetry = monitor.telemetry();
    if let Some(watcher) = &health.watcher {
        report_metadata_stats(telemetry, &watcher.stats());
    }
    ([(header::CONTENT_TYPE, OPEN_METRICS)], telemetry.encode()).into_response()
}

/// Copies the watcher's counters to the metrics.
fn report_metadata_stats(telemetry: &Telemetry, stats: &Stats) {
    // Before the first answer nothing is known, which is as bad as an answer that is infinitely
    // old.
    telemetry.metadata_staleness.set(stats.answer_age.map_or(f64::INFINITY, |age| age.as_secs_f64()));
    for (kind, times) in stats.failures.iter() {
        let reason = ByReason { reason: kind.as_str() };
        telemetry.metadata_errors.get_or_create(&reason).inner().store(times, Ordering::Relaxed);
    }
    for version in ApiVersion::ALL {
        let is_in_use = stats.answer_age.is_some() && version == stats.version;
        let version = ByVersion { version: version.as_str() };
        telemetry.metadata_version.get_or_create(&version).set(is_in_use.into());
    }
}
