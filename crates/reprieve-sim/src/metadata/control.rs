//! Answers `/control/…`: how another process makes things happen in the mock. The client's side is [`crate::control`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use reprieve_core::ErrorKind;
use serde::{Deserialize, Serialize};

use super::server::App;
use super::state::{Evicted, State, Which};
use super::world::Refusal;

/// What to evict.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Evict {
    pub(crate) vm: String,
    /// Azure's documented minimum unless given.
    #[serde(default = "thirty_seconds")]
    pub(crate) notice_ms: u64,
}

const fn thirty_seconds() -> u64 {
    30_000
}

/// Which events were withdrawn.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Withdrawn {
    pub(crate) event_ids: Vec<String>,
}

/// Which VM to add.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NewVm {
    pub(crate) name: String,
}

/// Why not, in one sentence.
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

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/control/state", routing::get(state))
        .route("/control/evict", routing::post(evict))
        .route("/control/withdraw", routing::post(withdraw))
        .route("/control/vms", routing::post(add_vm))
        .route("/control/vms/{name}", routing::delete(remove_vm))
}

async fn state(Shared(app): Shared<Arc<App>>) -> Json<State> {
    Json(app.world().state())
}

async fn evict(Shared(app): Shared<Arc<App>>, Json(what): Json<Evict>) -> Result<Json<Evicted>, Refusal> {
    app.evict(&what.vm, Duration::from_millis(what.notice_ms)).map(Json)
}

async fn withdraw(
    Shared(app): Shared<Arc<App>>,
    Json(which): Json<Which>,
) -> Result<Json<Withdrawn>, Refusal> {
    app.world().withdraw(&which).map(|event_ids| Json(Withdrawn { event_ids }))
}

async fn add_vm(Shared(app): Shared<Arc<App>>, Json(vm): Json<NewVm>) -> Result<StatusCode, Refusal> {
    app.world().add_vm(&vm.name).map(|()| StatusCode::CREATED)
}

async fn remove_vm(Shared(app): Shared<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    app.world().remove_vm(&name).map(|()| StatusCode::NO_CONTENT)
}
