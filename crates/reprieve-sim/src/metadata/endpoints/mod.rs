//! Answers `/metadata/…` by the rules of the real service. Documented facts have a link; a comment
//! marks what is undocumented.
//!
//! Rules for all endpoints:
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>.

mod events;
mod identity;
mod instance;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router, routing};
use futures_util::{StreamExt, stream};
use reprieve_azure::scheduled_events::{ApiVersion, NotBefore};
use reprieve_core::clock::wall_now;
use serde_json::json;
use uuid::Uuid;

use super::app::App;
use super::faults::{Endpoint, Fault};
use super::world::Vm;
use crate::connection::Reset;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/metadata/{*path}", routing::any(answer))
        .route("/vm/{vm}/metadata/{*path}", routing::any(answer))
}

/// The VM of a listener that serves only one VM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own(pub(super) Option<Uuid>);

/// The parts of a request on which the answer depends.
pub(super) struct VmRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) query: BTreeMap<String, String>,
    pub(super) body: &'a [u8],
    pub(super) vm: Vm,
}

async fn answer(
    State(app): State<Arc<App>>,
    Extension(own): Extension<Own>,
    Path(params): Path<HashMap<String, String>>,
    Query(query): Query<Vec<(String, String)>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path: Vec<&str> = params.get("path").map_or("", String::as_str).split('/').collect();
    let query = match rules(&headers, query, &path) {
        Ok(query) => query,
        Err(broken) if path.first() == Some(&"identity") => return identity::broken_rule(broken),
        Err(broken) => return (StatusCode::BAD_REQUEST, broken).into_response(),
    };
    let Some(vm) = asking(&app, own, params.get("vm").map(String::as_str)) else {
        return (StatusCode::NOT_FOUND, "Not Found: the mock has no such VM").into_response();
    };
    let request = VmRequest { method: &method, query, body: &body, vm };
    // Written when the service begins to answer, whatever happens to the answer then.
    let date = NotBefore::write(app.shown(wall_now()));
    let mut answer = match path[..] {
        ["versions"] => instance::versions(&request),
        ["scheduledevents"] => {
            let fault =
                app.fault(Endpoint::ScheduledEvents, &request.vm.name, events::requested_version(&request));
            // A poll counts whatever the answer; an approval that a fault refuses approves nothing.
            let is_done = request.method != Method::POST || !fault.refuses();
            let answer = if is_done { events::answer(&app, &request) } else { Response::default() };
            app.until_enabled().await;
            apply_fault(fault, answer).await
        }
        ["instance", ref rest @ ..] => {
            apply_fault(
                app.fault(Endpoint::Instance, &request.vm.name, None),
                instance::answer(&app, &request, rest),
            )
            .await
        }
        ["identity", "oauth2", "token"] => {
            apply_fault(
                app.fault(Endpoint::Identity, &request.vm.name, None),
                identity::answer(&app, &request),
            )
            .await
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    };
    if let Some(date) = date.and_then(|date| date.parse().ok()) {
        answer.headers_mut().insert(header::DATE, date);
    }
    answer
}

/// Returns the VM that sends the request: the one in the path, else the listener's, else the first.
fn asking(app: &App, own: Own, name: Option<&str>) -> Option<Vm> {
    let (world, _) = app.world();
    match (name, own) {
        (None, Own(Some(id))) => world.vm_with_id(id),
        (name, _) => world.vm(name),
    }
    .cloned()
}

/// Checks the rules for all requests.
fn rules(
    headers: &HeaderMap,
    query: Vec<(String, String)>,
    path: &[&str],
) -> Result<BTreeMap<String, String>, &'static str> {
    let is_preview =
        |(name, value): &(String, String)| name == "api-version" && value == ApiVersion::V2017_03_01.as_str();
    // The first version of events did not require the header.
    let header_matters = !(path == ["scheduledevents"] && query.iter().any(is_preview));
    if header_matters && headers.get("metadata").is_none_or(|value| value != "true") {
        return Err("Bad Request, Required metadata header not specified");
    }
    // The refusal is documented; its wording is not.
    if headers.contains_key("x-forwarded-for") {
        return Err("Bad Request, X-Forwarded-For header is not allowed");
    }
    let count = query.len();
    let query: BTreeMap<_, _> = query.into_iter().collect();
    if query.len() < count {
        return Err("Bad Request, Duplicate query parameter");
    }
    Ok(query)
}

/// Refuses a request that names none of `versions`, newest first. The status is not documented.
pub(super) fn wrong_version<'a>(versions: impl Iterator<Item = &'a str>) -> Response {
    let body = json!({
        "error": "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
        "newest-versions": versions.take(3).collect::<Vec<_>>(),
    });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// Applies a fault to an answer.
async fn apply_fault(fault: Fault, answer: Response) -> Response {
    match fault {
        Fault::None => answer,
        Fault::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let reason = status.canonical_reason().unwrap_or("Unknown");
            (status, Json(json!({ "error": reason }))).into_response()
        }
        Fault::Late(after) => {
            tokio::time::sleep(after).await;
            answer
        }
        Fault::Hang => std::future::pending().await,
        Fault::Empty => ([(header::CONTENT_TYPE, "application/json")], "").into_response(),
        Fault::Garbage(words) => words.into_response(),
        Fault::BreakOff => break_off(),
        Fault::Reset => Extension(Reset).into_response(),
    }
}

/// Returns an answer that breaks off in the middle; then the connection is closed.
fn break_off() -> Response {
    let begins = stream::iter([Ok(Bytes::from_static(b"{\"DocumentIncarnation\":1,"))]);
    let ends = stream::once(async {
        // Leaves time to send the beginning, which the close would otherwise drop.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(std::io::Error::other("broken off on demand"))
    });
    Body::from_stream(begins.chain(ends)).into_response()
}
