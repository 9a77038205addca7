//! `/metadata/scheduledevents`: the document in every version, and approvals.

use std::borrow::Cow;

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use reprieve_azure::scheduled_events::ApiVersion;
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus, Incarnation, NotBefore};
use serde::{Deserialize, Serialize};

use super::{VmRequest, wrong_version};
use crate::metadata::app::App;

/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>
pub(super) fn answer(app: &App, request: &VmRequest<'_>) -> Response {
    let version = match version(app, request) {
        Ok(version) => version,
        Err(refusal) => return *refusal,
    };
    match *request.method {
        Method::GET => {
            let (mut world, now) = app.world();
            world.count_poll(request.vm.id, now);
            Json(VersionedDocument::new(&world.document(), version, app)).into_response()
        }
        Method::POST => approve(app, request, version),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// Returns 404 for a version that exists but is not supported here, as clients have seen it;
/// anything else is a bad request.
fn version(app: &App, request: &VmRequest<'_>) -> Result<ApiVersion, Box<Response>> {
    let versions: Vec<_> = app.versions().collect();
    match requested_version(request) {
        Some(asked) if versions.contains(&asked) => Ok(asked),
        Some(_) => Err(Box::new(StatusCode::NOT_FOUND.into_response())),
        None => Err(Box::new(wrong_version(versions.iter().map(|version| version.as_str())))),
    }
}

/// The api-version of a request, if there is such a version.
pub(super) fn requested_version(request: &VmRequest<'_>) -> Option<ApiVersion> {
    request.query.get("api-version").and_then(|version| version.parse().ok())
}

/// The document in one version. Fields of later versions are left out, not null, as seen in
/// 2019-01-01.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct VersionedDocument<'a> {
    document_incarnation: &'a Incarnation,
    events: Vec<VersionedEvent<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct VersionedEvent<'a> {
    event_id: &'a str,
    event_status: &'a EventStatus,
    event_type: &'a str,
    resource_type: &'a str,
    resources: Vec<Cow<'a, str>>,
    not_before: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_in_seconds: Option<i64>,
}

impl<'a> VersionedDocument<'a> {
    fn new(document: &'a Document, version: ApiVersion, app: &App) -> Self {
        let events = document.events.iter().filter(|event| version.knows(&event.event_type));
        Self {
            document_incarnation: &document.document_incarnation,
            events: events.map(|event| VersionedEvent::new(event, version, app)).collect(),
        }
    }
}

impl<'a> VersionedEvent<'a> {
    fn new(event: &'a Event, version: ApiVersion, app: &App) -> Self {
        let name = |name: &'a String| {
            if version.underscores() { Cow::Owned(format!("_{name}")) } else { Cow::Borrowed(name.as_str()) }
        };
        Self {
            event_id: &event.event_id,
            event_status: &event.event_status,
            event_type: event.event_type.as_str(),
            resource_type: &event.resource_type,
            resources: event.resources.iter().map(name).collect(),
            not_before: on_the_services_clock(app, &event.not_before),
            description: version.has_description().then_some(&event.description),
            event_source: version.has_source().then_some(&event.event_source),
            duration_in_seconds: event.duration_in_seconds.filter(|_| version.has_duration()),
        }
    }
}

/// Returns the time as the service shows it.
fn on_the_services_clock<'a>(app: &App, not_before: &'a str) -> Cow<'a, str> {
    match NotBefore::read(not_before) {
        NotBefore::At(at) if !app.ahead.is_zero() => {
            NotBefore::write(app.shown(at)).map_or(Cow::Borrowed(not_before), Cow::Owned)
        }
        _ => Cow::Borrowed(not_before),
    }
}

/// An approval. Other members are ignored: older clients also send `DocumentIncarnation`. The
/// content type does not matter; Microsoft's own samples send that of a form, or none.
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

/// Answers 200 for active events, approved before or not, and 400 for a malformed request. No more
/// is documented; that the answer has no body, and that an event unknown to this version counts as
/// malformed, is assumed.
fn approve(app: &App, request: &VmRequest<'_>, version: ApiVersion) -> Response {
    let refused = |why: String| (StatusCode::BAD_REQUEST, format!("Bad Request, {why}")).into_response();
    let requests: StartRequests = match serde_json::from_slice(request.body) {
        Ok(requests) => requests,
        Err(error) => return refused(error.to_string()),
    };
    let ids: Vec<_> = requests.start_requests.into_iter().map(|request| request.event_id).collect();
    let (mut world, now) = app.world();
    match world.approve(&ids, &request.vm.name, version, now) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(refusal) => refused(refusal.message),
    }
}
