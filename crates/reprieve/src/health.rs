//! `/healthz`, `/readyz` and `/metrics`, for whoever supervises the worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use reprieve_azure::scheduled_events::{ApiVersion, Stats, Watcher};
use reprieve_core::lifecycle::Stage;
use reprieve_core::telemetry::{ByReason, ByVersion, Telemetry};
use reprieve_core::worker::Monitor;
use reprieve_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;

/// How long the control loop may be silent. It goes round once a second, so this is no hiccup.
const BEAT_AGE_MAX: Duration = Duration::from_secs(10);

/// As the encoder of the metrics writes it.
/// <https://prometheus.io/docs/specs/om/open_metrics_spec/#overall-structure>
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the answers are made of.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    pub(crate) monitor: Monitor,
    pub(crate) watcher: Option<Arc<Watcher>>,
}

/// Takes the address, so that a worker which could never be supervised fails at its start.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        // Port 0 takes a free one, and this is how to learn which.
        tracing::info!(address = %listener.local_addr()?, "health endpoints listen");
        Ok::<_, std::io::Error>(listener)
    };
    bound.await.map_err(|error| {
        let message = format!("{address} can't be listened on: {error}; choose another for --listen");
        Error::new(ErrorKind::Unavailable, "serve the health endpoints", message).with_source(error)
    })
}

impl Health {
    /// Answers for ever.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the health endpoints have failed");
        }
    }
}

/// Whether the process does its work, or should be replaced.
async fn healthz(State(health): State<Health>) -> impl IntoResponse {
    let age = health.monitor.last_beat().elapsed();
    if age < BEAT_AGE_MAX {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the control loop last went round {} s ago\n", age.as_secs()),
        )
    }
}

/// Whether it takes jobs. It does not before the metadata service has answered, nor while a notice stands.
async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let stage = health.monitor.stage();
    let status = if stage == Stage::Start { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", stage.as_str()))
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let telemetry = health.monitor.telemetry();
    if let Some(watcher) = &health.watcher {
        tell_of_metadata(telemetry, &watcher.stats());
    }
    ([(header::CONTENT_TYPE, OPEN_METRICS)], telemetry.encode())
}

/// Writes what the watch counts to the metrics.
fn tell_of_metadata(telemetry: &Telemetry, stats: &Stats) {
    // Before the first answer nothing is known, which is as bad as an answer that is infinitely old.
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
