//! The running mock: its listener, its items and its faults.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode, header};
use futures_util::{StreamExt as _, stream};
use hyper::body::Incoming;
use reprieve_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::info;

use super::catalogue;
use super::fault::Fault;
use super::page::Asked;
use crate::connection::{Answered, Reset, accept, closed, listen};

/// The mock's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address; port 0 takes a free one. Default: a free port, reachable from this machine only.
    pub addr: SocketAddr,
    /// How many items a page has. Default: 1,000, as clients of the service see it.
    pub page_size: usize,
    /// The items, in the service's form. Default: the [catalogue].
    pub items: Vec<Value>,
}

impl Default for Config {
    fn default() -> Self {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { addr, page_size: 1_000, items: catalogue::items() }
    }
}

/// A running mock. It stops when dropped; [`stop`](Self::stop) waits until it has stopped.
#[derive(Debug)]
pub struct PricesServer {
    app: Arc<App>,
    stopping: CancellationToken,
    tasks: TaskTracker,
    _stop: DropGuard,
}

#[derive(Debug)]
struct App {
    addr: SocketAddr,
    page_size: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    items: Vec<Value>,
    faults: VecDeque<Fault>,
    requests: Vec<String>,
}

impl PricesServer {
    /// Starts a mock on the current runtime.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the address is taken.
    pub async fn start(config: Config) -> Result<Self> {
        let (listener, addr) = listen(config.addr).await.map_err(|error| {
            let message = format!("can't listen on {}: {error}; choose another port", config.addr);
            Error::new(ErrorKind::Unavailable, "start the mock of retail prices", message).with_source(error)
        })?;
        let state = Mutex::new(State { items: config.items, ..State::default() });
        let app = Arc::new(App { addr, page_size: config.page_size.max(1), state });
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let answer = {
            let app = Arc::clone(&app);
            move |request: Request<Incoming>| -> Answered { Box::pin(Arc::clone(&app).answer(request)) }
        };
        tasks.spawn(accept(listener, answer, stopping.clone(), tasks.clone()));
        tasks.close();
        info!(%addr, "mock of retail prices listens");
        Ok(Self { app, _stop: stopping.clone().drop_guard(), stopping, tasks })
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.app.addr)
    }

    /// Applies `fault` to the next `requests` requests, after the faults that wait.
    pub fn inject(&self, fault: &Fault, requests: usize) {
        self.app.state().faults.extend(std::iter::repeat_n(fault, requests).cloned());
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.app.state().faults.clear();
    }

    /// Changes the items, as the service does when prices change.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        change(&mut self.app.state().items);
    }

    /// Sets the price of all Spot meters of a size for Linux, in US dollars.
    pub fn set_spot_price(&self, size: &str, price: &str) {
        let price: Value = price.parse().unwrap_or(Value::Null);
        self.change(|items| {
            let spot = items.iter_mut().filter(|item| catalogue::is_linux_spot(item, size));
            spot.for_each(|item| {
                item["retailPrice"] = price.clone();
                item["unitPrice"] = price.clone();
            });
        });
    }

    /// Returns the paths and queries of the requests so far, faulty ones included.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.app.state().requests.clone()
    }

    /// Stops the mock: it answers no more requests, and its port is free when this returns.
    pub async fn stop(self) {
        self.stopping.cancel();
        closed(&self.tasks, "the mock of retail prices").await;
    }
}

impl App {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Reset> {
        let uri = request.uri();
        let fault = {
            let mut state = self.state();
            state.requests.push(uri.to_string());
            state.faults.pop_front().unwrap_or(Fault::None)
        };
        if request.method() != axum::http::Method::GET {
            return Ok(refused(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed"));
        }
        if uri.path() != "/api/retail/prices" {
            return Ok(refused(StatusCode::NOT_FOUND, "there is no such page"));
        }
        match Asked::parse(uri.query().unwrap_or_default()) {
            Err(why) => Ok(refused(StatusCode::BAD_REQUEST, &why)),
            Ok(asked) => {
                let page = asked.page(&self.state().items, self.page_size, self.addr);
                apply(fault, page).await
            }
        }
    }
}

/// Answers with the page, as the fault lets it.
async fn apply(fault: Fault, mut page: Value) -> Result<Response<Body>, Reset> {
    match fault {
        Fault::None => {}
        Fault::Late(after) => sleep(after).await,
        Fault::Hang => std::future::pending().await,
        Fault::Reset => return Err(Reset),
        Fault::Busy { status, retry_after_seconds } => return Ok(busy(status, retry_after_seconds)),
        Fault::Redirect(to) => {
            let mut answer = refused(StatusCode::FOUND, "moved");
            answer.headers_mut().extend(to.parse().ok().map(|to| (header::LOCATION, to)));
            return Ok(answer);
        }
        Fault::Garbage(text) => return Ok(Response::new(text.into())),
        Fault::Link(link) => page["NextPageLink"] = link.into(),
        Fault::Changed(from, to) => return Ok(json_text(page.to_string().replacen(&from, &to, 1).into())),
        Fault::BreakOff => {
            let text = page.to_string();
            let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
            let pieces = stream::iter([Ok(half)]).chain(stream::iter([Err(io::Error::other(Reset))]));
            return Ok(json_text(Body::from_stream(pieces)));
        }
    }
    Ok(json_text(page.to_string().into()))
}

fn json_text(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

/// The service's answer when it is busy. Its body is not documented.
fn busy(status: u16, retry_after_seconds: Option<u64>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut answer = refused(status, "Too many requests. Please retry later.");
    answer.headers_mut().extend(retry_after_seconds.map(|seconds| (header::RETRY_AFTER, seconds.into())));
    answer
}

/// A refusal. Its body is not documented.
fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let mut answer =
        json_text(json!({ "Error": { "Code": status.as_str(), "Message": why } }).to_string().into());
    *answer.status_mut() = status;
    answer
}
