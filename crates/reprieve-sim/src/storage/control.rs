//! Answers `/_control/…`, with which other processes set faults and read counts. The client is
//! [`super::client`].

use axum::body::Body;
use axum::http::Method;
use reprieve_core::{Error, ErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::app::App;

/// The prefix of control requests. No account can have this name.
pub(super) const PREFIX: &str = "/_control/";

/// The largest body of a request.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The fault that was added.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Added {
    pub(super) id: u64,
}

/// A refusal, with its reason in one sentence.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) error: String,
}

pub(super) async fn answer(app: &App, method: &Method, path: &str, body: Body) -> Answer {
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return problem(413, "a request may send 64 KiB at most".to_owned());
    };
    control(app, method, path, &body).unwrap_or_else(|error| {
        let status = match error.kind() {
            ErrorKind::NotFound => 404,
            ErrorKind::Internal => 500,
            _ => 400,
        };
        problem(status, error.message().to_owned())
    })
}

fn control(app: &App, method: &Method, path: &str, body: &[u8]) -> Result<Answer, Error> {
    match (method.as_str(), path) {
        ("GET", "counts") => json(&*app.counts()),
        ("DELETE", "counts") => {
            app.reset_counts();
            Ok(Answer::empty(204))
        }
        ("GET", "faults") => json(&app.faults().list()),
        ("POST", "faults") => json(&Added { id: app.faults().add(read(body)?)? }),
        ("DELETE", "faults") => {
            app.faults().clear();
            Ok(Answer::empty(204))
        }
        ("DELETE", path) if let Some(id) = path.strip_prefix("faults/") => {
            let id = id.parse().map_err(|_| {
                Error::new(ErrorKind::Invalid, "remove a fault", format!("{id:?} is not a fault's number"))
            })?;
            app.faults().remove(id)?;
            Ok(Answer::empty(204))
        }
        ("GET", "latency") => json(&app.travel_time().latency()),
        ("PUT", "latency") => {
            app.set_latency(read(body)?);
            Ok(Answer::empty(204))
        }
        (method, path) => {
            let message = format!(
                "there is no {method} {PREFIX}{path}; there are GET and DELETE counts, GET, POST and DELETE faults, DELETE faults/ID, GET and PUT latency"
            );
            Err(Error::new(ErrorKind::NotFound, "control the mock storage service", message))
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        Error::new(ErrorKind::Invalid, "read a request", error.to_string()).with_source(error)
    })
}

fn json(document: &impl Serialize) -> Result<Answer, Error> {
    let document = serde_json::to_vec(document).map_err(|error| {
        Error::new(ErrorKind::Internal, "write an answer", error.to_string()).with_source(error)
    })?;
    Ok(Answer::json(200, document))
}

fn problem(status: u16, error: String) -> Answer {
    // Serializing a string never fails.
    json(&Problem { error }).map_or_else(|_| Answer::empty(status), |answer| Answer { status, ..answer })
}
