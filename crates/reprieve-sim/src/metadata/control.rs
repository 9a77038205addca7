//! Answers `/control/…`, with which other processes control the mock. The client is
//! [`crate::control`].

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Path, Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use reprieve_azure::scheduled_events::document::Event;
use reprieve_core::ErrorKind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::faults::{FaultRule, FaultState};
use super::plan::EventPlan;
use super::refusal::{Refusal, refuse};
use super::scenario::Scenario;
use super::span::Span;
use super::state::{Evicted, ScenarioState, State, Which};

/// The VM to evict.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evict {
    pub(crate) vm: String,
    /// Default: Azure's documented minimum, 30 s.
    #[serde(default = "thirty_seconds")]
    pub(crate) notice: Span,
}

const fn thirty_seconds() -> Span {
    Span(std::time::Duration::from_secs(30))
}

/// The events that were changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) event_ids: Vec<String>,
}

/// The VM to add.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewVm {
    pub(crate) name: String,
}

/// The VM for which to run a scenario, or for which it runs.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunFor {
    pub(crate) target: Option<String>,
}

/// The original file of a scenario.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    pub(crate) text: String,
}

/// The number of a fault.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) id: u64,
}

/// The speed factor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Speed {
    pub(crate) speed: NonZeroU32,
}

/// A refusal, with its reason in one sentence.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) error: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (status_of(self.kind), Json(Problem { error: self.message })).into_response()
    }
}

const fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// A JSON body; an invalid one is refused like any other mistake. The content type must be JSON, so
/// that a page of another site cannot send one without a preflight request.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => {
                let rejection: JsonRejection = rejection;
                Err(Refusal { kind: ErrorKind::Invalid, message: rejection.body_text() })
            }
        }
    }
}

type Answer<T> = Result<Json<T>, Refusal>;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/control/state", routing::get(state))
        .route("/control/announce", routing::post(announce))
        .route("/control/evict", routing::post(evict))
        .route("/control/start", routing::post(start))
        .route("/control/complete", routing::post(complete))
        .route("/control/withdraw", routing::post(withdraw))
        .route("/control/vms", routing::post(add_vm))
        .route("/control/vms/{name}", routing::delete(remove_vm))
        .route("/control/scenarios", routing::get(scenarios).post(add_scenario))
        .route("/control/scenarios/{name}", routing::get(scenario))
        .route("/control/scenarios/{name}/run", routing::post(run))
        .route("/control/faults", routing::get(faults).post(add_fault).delete(clear_faults))
        .route("/control/faults/{id}", routing::delete(remove_fault))
        .route("/control/restart", routing::post(restart))
        .route("/control/speed", routing::put(speed))
}

async fn state(Shared(app): Shared<Arc<App>>) -> Json<State> {
    Json(app.state())
}

async fn announce(Shared(app): Shared<Arc<App>>, Body(plan): Body<EventPlan>) -> Answer<Event> {
    let (mut world, now) = app.world();
    world.announce_plan(&plan, None, now).map(Json)
}

async fn evict(Shared(app): Shared<Arc<App>>, Body(what): Body<Evict>) -> Answer<Evicted> {
    app.evict(&what.vm, what.notice.0).map(Json)
}

async fn start(Shared(app): Shared<Arc<App>>, Body(which): Body<Which>) -> Answer<Changed> {
    let (mut world, now) = app.world();
    world.start(&which, now).map(|event_ids| Json(Changed { event_ids }))
}

async fn complete(Shared(app): Shared<Arc<App>>, Body(which): Body<Which>) -> Answer<Changed> {
    let (mut world, now) = app.world();
    world.complete(&which, now).map(|event_ids| Json(Changed { event_ids }))
}

async fn withdraw(Shared(app): Shared<Arc<App>>, Body(which): Body<Which>) -> Answer<Changed> {
    let (mut world, now) = app.world();
    world.withdraw(&which, now).map(|event_ids| Json(Changed { event_ids }))
}

async fn add_vm(Shared(app): Shared<Arc<App>>, Body(vm): Body<NewVm>) -> Result<StatusCode, Refusal> {
    let (mut world, now) = app.world();
    world.add_vm(&vm.name, now).map(|_id| StatusCode::CREATED)
}

async fn remove_vm(Shared(app): Shared<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let (mut world, now) = app.world();
    world.remove_vm(&name, now).map(|()| StatusCode::NO_CONTENT)
}

async fn scenarios(Shared(app): Shared<Arc<App>>) -> Json<Vec<ScenarioState>> {
    Json(app.world().0.scenarios())
}

async fn scenario(Shared(app): Shared<Arc<App>>, Path(name): Path<String>) -> Answer<ScenarioFile> {
    let (world, _) = app.world();
    let text = world.scenario(&name)?.text().to_owned();
    Ok(Json(ScenarioFile { text }))
}

async fn add_scenario(
    Shared(app): Shared<Arc<App>>,
    Body(file): Body<ScenarioFile>,
) -> Result<(StatusCode, Json<ScenarioState>), Refusal> {
    let scenario = Scenario::read(&file.text)?;
    let state = scenario.state();
    app.world().0.add_scenario(scenario);
    Ok((StatusCode::CREATED, Json(state)))
}

async fn run(
    Shared(app): Shared<Arc<App>>,
    Path(name): Path<String>,
    Body(RunFor { target }): Body<RunFor>,
) -> Answer<RunFor> {
    let (mut world, now) = app.world();
    world.run(&name, target.as_deref(), now).map(|target| Json(RunFor { target: Some(target) }))
}

async fn faults(Shared(app): Shared<Arc<App>>) -> Json<Vec<FaultState>> {
    let (mut world, now) = app.world();
    Json(world.faults().list(now))
}

async fn add_fault(Shared(app): Shared<Arc<App>>, Body(rule): Body<FaultRule>) -> Answer<Added> {
    let (mut world, now) = app.world();
    world.add_fault(&rule, now).map(|id| Json(Added { id }))
}

async fn clear_faults(Shared(app): Shared<Arc<App>>) -> StatusCode {
    app.world().0.faults().clear();
    StatusCode::NO_CONTENT
}

async fn remove_fault(Shared(app): Shared<Arc<App>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let Ok(id) = id.parse() else {
        return refuse(ErrorKind::Invalid, format!("{id:?} is not a fault's number"));
    };
    app.world().0.faults().remove(id).map(|()| StatusCode::NO_CONTENT)
}

async fn restart(Shared(app): Shared<Arc<App>>, Body(()): Body<()>) -> StatusCode {
    let (mut world, now) = app.world();
    world.restart(now);
    StatusCode::NO_CONTENT
}

async fn speed(Shared(app): Shared<Arc<App>>, Body(Speed { speed }): Body<Speed>) -> Json<Speed> {
    app.world().0.set_speed(speed);
    Json(Speed { speed })
}
