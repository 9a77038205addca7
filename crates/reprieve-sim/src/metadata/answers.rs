//! Answers `/metadata/…` by the rules of the real service. Facts that are documented have a link; what is not is said.
//!
//! Rules for all endpoints: <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>;
//! events: <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use futures_util::{StreamExt, stream};
use reprieve_azure::scheduled_events::SCHEDULED_EVENTS_API_VERSION;
use serde::Deserialize;
use serde_json::{Value, json};

use super::faults::{Endpoint, Fault};
use super::instance;
use super::server::App;
use super::world::Vm;

/// The api-versions of Scheduled Events that are answered. They are not those of the instance document.
const EVENT_VERSIONS: [&str; 1] = [SCHEDULED_EVENTS_API_VERSION];

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/metadata/{*path}", routing::any(answer))
        .route("/vm/{vm}/metadata/{*path}", routing::any(answer))
}

/// One request, as far as the answer depends on it.
struct Ask<'a> {
    method: &'a Method,
    query: BTreeMap<String, String>,
    body: &'a [u8],
    vm: Vm,
}

async fn answer(
    State(app): State<Arc<App>>,
    Path(params): Path<HashMap<String, String>>,
    Query(query): Query<Vec<(String, String)>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let query = match rules(&headers, query) {
        Ok(query) => query,
        Err(broken) => return (StatusCode::BAD_REQUEST, broken).into_response(),
    };
    let Some(vm) = app.world().vm(params.get("vm").map(String::as_str)).cloned() else {
        return (StatusCode::NOT_FOUND, "Not Found: the mock has no such VM").into_response();
    };
    let ask = Ask { method: &method, query, body: &body, vm };
    let path: Vec<&str> = params.get("path").map_or("", String::as_str).split('/').collect();
    match path[..] {
        ["versions"] => versions(&ask),
        ["scheduledevents"] => {
            let answer = scheduled_events(&app, &ask);
            app.until_enabled().await;
            with_fault(&app, Endpoint::ScheduledEvents, answer).await
        }
        ["instance", ref rest @ ..] => with_fault(&app, Endpoint::Instance, instance(&ask, rest)).await,
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Checks what every request must and must not have.
fn rules(
    headers: &HeaderMap,
    query: Vec<(String, String)>,
) -> Result<BTreeMap<String, String>, &'static str> {
    if headers.get("metadata").is_none_or(|value| value != "true") {
        return Err("Bad Request, Required metadata header not specified");
    }
    // That it is refused is documented; in which words is not.
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

/// `GET /metadata/versions`, the only endpoint without a version of its own.
fn versions(ask: &Ask<'_>) -> Response {
    if ask.method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let oldest_first: Vec<_> = instance::VERSIONS.into_iter().rev().collect();
    Json(json!({ "apiVersions": oldest_first })).into_response()
}

/// The refusal of a request that names none of `versions`, newest first. Its status is not documented; clients have seen
/// 404 for a version that Scheduled Events does not have yet.
fn wrong_version(ask: &Ask<'_>, versions: &[&str]) -> Option<Response> {
    let asked = ask.query.get("api-version").map(String::as_str);
    if asked.is_some_and(|asked| versions.contains(&asked)) {
        return None;
    }
    let body = json!({
        "error": "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds",
        "newest-versions": versions.iter().take(3).collect::<Vec<_>>(),
    });
    Some((StatusCode::BAD_REQUEST, Json(body)).into_response())
}

fn scheduled_events(app: &App, ask: &Ask<'_>) -> Response {
    if let Some(refusal) = wrong_version(ask, &EVENT_VERSIONS) {
        return refusal;
    }
    match *ask.method {
        Method::GET => {
            let mut world = app.world();
            world.count_poll(ask.vm.id);
            Json(world.document()).into_response()
        }
        Method::POST => approve(app, ask.body),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// An approval. Other members are ignored: older clients also send `DocumentIncarnation`. Its content type does not
/// matter; Microsoft's own samples send a form's, or none.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequests {
    start_requests: Vec<StartRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequest {
    event_id: String,
}

/// 200 for events that stand, approved before or not; 400 for what is malformed. Documented is no more; that the answer
/// has no body, and that an unknown event counts as malformed, is assumed.
fn approve(app: &App, body: &[u8]) -> Response {
    let requests: StartRequests = match serde_json::from_slice(body) {
        Ok(requests) => requests,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("Bad Request, {error}")).into_response(),
    };
    let ids: Vec<_> = requests.start_requests.into_iter().map(|request| request.event_id).collect();
    match app.world().approve(&ids, tokio::time::Instant::now()) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(refusal) => {
            (StatusCode::BAD_REQUEST, format!("Bad Request, {}", refusal.message)).into_response()
        }
    }
}

/// `GET /metadata/instance/…`: JSON for objects and lists, and text for single values only, each on demand.
fn instance(ask: &Ask<'_>, path: &[&str]) -> Response {
    if ask.method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if let Some(refusal) = wrong_version(ask, &instance::VERSIONS) {
        return refusal;
    }
    let document = instance::document(&ask.vm);
    let Some(part) = instance::walk(&document, path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match (part, ask.query.get("format").map_or("json", String::as_str)) {
        (Value::String(text), "text") => text.clone().into_response(),
        (Value::Object(_) | Value::Array(_), "json") => Json(part).into_response(),
        (Value::String(_), _) => bad_format("a single value needs format=text"),
        _ => bad_format("this mock answers with format=json only, except for single values"),
    }
}

fn bad_format(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": format!("Bad request. {why}") }))).into_response()
}

/// Lets the next fault for `endpoint`, if there is one, befall `answer`.
async fn with_fault(app: &App, endpoint: Endpoint, answer: Response) -> Response {
    let fault = app.faults().take(endpoint);
    match fault {
        Fault::None => answer,
        Fault::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let reason = status.canonical_reason().unwrap_or("Unknown");
            (status, Json(json!({ "error": reason }))).into_response()
        }
        Fault::Late(after) => {
            app.unless_stopped(tokio::time::sleep(after)).await;
            answer
        }
        Fault::Hang => {
            app.unless_stopped(std::future::pending()).await;
            break_off()
        }
        Fault::Empty => ([(header::CONTENT_TYPE, "application/json")], "").into_response(),
        Fault::Garbage(words) => words.into_response(),
        Fault::BreakOff => break_off(),
    }
}

/// An answer that begins well; then the connection is closed.
fn break_off() -> Response {
    let begins = stream::iter([Ok(Bytes::from_static(b"{\"DocumentIncarnation\":1,"))]);
    let ends = stream::once(async {
        // Leaves time to send what comes before, which would otherwise be dropped with the connection.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(std::io::Error::other("broken off on demand"))
    });
    Body::from_stream(begins.chain(ends)).into_response()
}
