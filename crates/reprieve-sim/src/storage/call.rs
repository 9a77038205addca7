//! One request, from its first byte to its answer: everything between a client and the services.

use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{DATE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{Request as HttpRequest, Response};
use reprieve_core::clock::wall_now;
use uuid::Uuid;

use super::answer::{Answer, CommonHeaders};
use super::app::App;
use super::faults::Disturbance;
use super::moment::Moment;
use super::operation::Operation;
use super::refusal::{
    BODY_TOO_LARGE, PERMISSION_MISMATCH, Refusal, SERVER_BUSY, TIMED_OUT, TOO_MANY_REQUESTS,
};
use super::request::Request;
use super::route::{Route, Service, route};
use super::rule::Action;
use super::{auth, blob, control, queue};
use crate::connection::Reset;

/// The largest body of a request to the queue service: room for a message of 64 KiB with every byte
/// escaped.
const QUEUE_BODY_BYTES_MAX: usize = 1024 * 1024;
/// The largest body of a blob request.
/// <https://learn.microsoft.com/rest/api/storageservices/put-blob>
const BLOB_BODY_BYTES_MAX: usize = 5000 * 1024 * 1024;

/// Answers a request to one of the services, or to the control API.
pub(super) async fn answer<B>(
    app: Arc<App>,
    service: Service,
    request: HttpRequest<B>,
) -> Result<Response<Body>, Reset>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let body = Body::new(body);
    if let Some(path) = head.uri.path().strip_prefix(control::PREFIX) {
        return Ok(control::answer(&app, &head.method, path, body).await.into_response());
    }
    let query: Vec<_> =
        form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let common = CommonHeaders::of(&head.headers);
    let routed = route(service, &head.method, head.uri.path(), &query);
    let operation = routed.as_ref().map_or(Operation::Other, |route| route.operation);
    app.counts().count_request(operation);
    let call = Call { app: Arc::clone(&app), service, request_id: common.request_id };
    let mut answer = match routed {
        Ok(route) => call.carry_out(route, query, head, body).await?,
        Err(refusal) => call.refused(&refusal),
    };
    common.add_to(&mut answer);
    app.counts().count_answer(operation, answer.status);
    Ok(answer.into_response())
}

/// A request under way.
#[derive(Debug)]
struct Call {
    app: Arc<App>,
    service: Service,
    request_id: Uuid,
}

impl Call {
    /// Performs the request, within its latency and faults.
    async fn carry_out(
        self,
        route: Route,
        query: Vec<(String, String)>,
        head: Parts,
        body: Body,
    ) -> Result<Answer, Reset> {
        let disturbance = self.app.faults().decide(route.operation, &route.resource());
        let one_way = self.app.travel_time().one_way();
        let bytes_max = match self.service {
            Service::Queue => QUEUE_BODY_BYTES_MAX,
            Service::Blob => BLOB_BODY_BYTES_MAX,
        };
        let Ok(body) = axum::body::to_bytes(body, bytes_max).await else {
            // Too large, or the sender has gone; then the answer does not matter.
            return Ok(self.refused(&BODY_TOO_LARGE));
        };
        if let Err(refusal) = auth::check(&head.headers, &query, &route.key.account) {
            return Ok(self.refused(&refusal));
        }
        let Route { operation, key, item } = route;
        let request = Request { operation, key, item, query, headers: head.headers, body };
        let app = Arc::clone(&self.app);
        let answer = match &disturbance.end {
            Some(Action::Reset) => {
                app.pause(one_way).await?;
                return Err(Reset);
            }
            Some(Action::Hang { applied: false }) => return Err(app.hang().await),
            Some(end) if let Some(answer) = self.injected(end) => {
                app.pause(one_way).await?;
                answer
            }
            _ => self.apply(request, one_way.saturating_add(disturbance.apply_after)).await?,
        };
        deliver(&app, answer, &disturbance, one_way).await
    }

    /// Performs the request after this time, even if its sender goes away meanwhile: a sent request
    /// arrives.
    async fn apply(self, request: Request, after: Duration) -> Result<Answer, Reset> {
        if after.is_zero() {
            return Ok(self.apply_now(&request));
        }
        let arrives = tokio::spawn(async move {
            self.app.pause(after).await?;
            Ok(self.apply_now(&request))
        });
        arrives.await.unwrap_or(Err(Reset))
    }

    fn apply_now(&self, request: &Request) -> Answer {
        let done = match self.service {
            _ if request.operation == Operation::Other => Err(Refusal::not_implemented("this request")),
            Service::Queue => queue::answer(&mut self.app.queues(), request, Moment::now()),
            Service::Blob => blob::answer(&mut self.app.containers(), request, Moment::now()),
        };
        done.unwrap_or_else(|refusal| self.refused(&refusal))
    }

    /// Returns the answer to a request that must not be performed, if this action is one.
    fn injected(&self, action: &Action) -> Option<Answer> {
        let (refusal, retry_after_seconds) = match action {
            Action::ServerBusy { retry_after_seconds } => (SERVER_BUSY, *retry_after_seconds),
            Action::TooManyRequests { retry_after_seconds } => (TOO_MANY_REQUESTS, *retry_after_seconds),
            Action::OperationTimedOut => (TIMED_OUT, None),
            Action::PermissionMismatch => (PERMISSION_MISMATCH, None),
            Action::Refuse { status, code } => {
                let message = "Refused on demand.".into();
                (Refusal { status: *status, code: code.clone().into(), message }, None)
            }
            _ => return None,
        };
        let answer = self.refused(&refusal);
        Some(match retry_after_seconds {
            Some(seconds) => answer.header(RETRY_AFTER.as_str(), &seconds.to_string()),
            None => answer,
        })
    }

    fn refused(&self, refusal: &Refusal) -> Answer {
        Answer::refused(refusal, self.request_id)
    }
}

/// Delivers an answer to the client.
async fn deliver(
    app: &App,
    answer: Answer,
    disturbance: &Disturbance,
    one_way: Duration,
) -> Result<Answer, Reset> {
    match disturbance.end {
        Some(Action::LoseAnswer) => return Err(Reset),
        Some(Action::Hang { .. }) => return Err(app.hang().await),
        _ => app.pause(one_way.saturating_add(disturbance.answer_after)).await?,
    }
    let mut answer =
        if disturbance.skew_seconds == 0 { answer } else { skewed(answer, disturbance.skew_seconds) };
    if disturbance.end == Some(Action::Truncate) {
        if answer.body.is_empty() {
            return Err(Reset);
        }
        answer.truncated = true;
    }
    Ok(answer)
}

fn skewed(answer: Answer, seconds: i64) -> Answer {
    let (now, skew) = (wall_now(), Duration::from_secs(seconds.unsigned_abs()));
    let date = if seconds > 0 { now + skew } else { now - skew };
    answer.header(DATE.as_str(), &httpdate::fmt_http_date(date))
}
