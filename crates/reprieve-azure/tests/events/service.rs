//! A metadata service that answers as a test configures it, and records its requests.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Client, Watcher};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub(crate) const ME: &str = "me_0";

/// The reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Status(u16),
    /// 200, with a body that is not the service's own.
    Page(&'static str),
    BreakOff,
    Hang,
}

/// The service's instructions, and the requests that it got.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The supported versions; others are answered with 404.
    pub(crate) versions: BTreeSet<ApiVersion>,
    pub(crate) events: Vec<Value>,
    /// These versions are answered with 429.
    pub(crate) throttled: BTreeSet<ApiVersion>,
    /// The number of requests for events in any second that are not answered with 429.
    pub(crate) limit: Option<usize>,
    /// The times of the requests within the limit.
    pub(crate) within_limit: VecDeque<Instant>,
    /// The `Retry-After` of each 429.
    pub(crate) retry_after: Option<u64>,
    /// The reactions to the next requests for events, before normal answers.
    pub(crate) polls: VecDeque<Reply>,
    /// The reactions to the next approvals, before normal answers.
    pub(crate) approvals: VecDeque<Reply>,
    /// Approvals of one of these ids are answered with 400.
    pub(crate) unapprovable: Vec<String>,
    /// The versions of the requests for events.
    pub(crate) polled: Vec<String>,
    /// The version and the ids of each approval.
    pub(crate) approved: Vec<(String, Vec<String>)>,
}

impl State {
    /// Whether a request in this version is answered with 429.
    fn is_throttled(&mut self, version: Option<ApiVersion>) -> bool {
        let now = Instant::now();
        self.within_limit.retain(|at| now - *at < Duration::from_secs(1));
        let is_over = self.limit.is_some_and(|limit| self.within_limit.len() >= limit);
        if !is_over {
            self.within_limit.push_back(now);
        }
        is_over || version.is_some_and(|version| self.throttled.contains(&version))
    }
}

/// A service that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    url: String,
    state: Arc<Mutex<State>>,
    _task: AbortOnDropHandle<()>,
}

impl Service {
    pub(crate) async fn with(versions: impl IntoIterator<Item = ApiVersion>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state =
            Arc::new(Mutex::new(State { versions: versions.into_iter().collect(), ..State::default() }));
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { url, state, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it looks")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url).expect("a base URL")
    }

    /// Starts a watcher and waits for its first answer.
    pub(crate) async fn watch(&self) -> Watcher {
        let watcher = Watcher::spawn(self.client(), None);
        watcher.answered().await;
        watcher
    }

    /// Announces an event for these VMs.
    pub(crate) fn event(&self, id: &str, kind: &str, resources: &[&str]) {
        self.state().events.push(json!({
            "EventId": id, "EventStatus": "Scheduled", "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": resources, "NotBefore": "Mon, 11 Apr 2050 22:26:58 GMT",
        }));
    }

    pub(crate) fn over(&self, id: &str) {
        self.state().events.retain(|event| event["EventId"] != id);
    }
}

/// Waits until `met`, for two minutes at most.
pub(crate) async fn until(what: &str, met: impl FnMut() -> bool) {
    reprieve_testkit::until_true(what, Duration::from_secs(120), met).await;
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, Arc::clone(&state)));
    }
}

async fn connection(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Some((head, body)) = request(&mut stream).await else { return };
    let (reply, answer) = match answer(&state, &head, &body) {
        (Reply::Page(page), _) => (Reply::Status(200), page.to_owned()),
        other => other,
    };
    let retry_after = state.lock().expect("no test panics while it looks").retry_after;
    match reply {
        Reply::Page(_) => unreachable!("it is a status by now"),
        Reply::Hang => std::future::pending().await,
        // Dropped without an answer.
        Reply::BreakOff => {}
        Reply::Status(status) => {
            let head = format!(
                "HTTP/1.1 {status} It\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n",
                answer.len(),
                retry_after
                    .filter(|_| status == 429)
                    .map_or(String::new(), |it| format!("Retry-After: {it}\r\n"))
            );
            // A client that has timed out does not read the answer.
            let _gone = stream.write_all((head + &answer).as_bytes()).await;
        }
    }
}

async fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

fn answer(state: &Mutex<State>, head: &str, body: &str) -> (Reply, String) {
    assert!(head.to_ascii_lowercase().contains("\r\nmetadata: true"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("x-forwarded-for"), "{head}");
    let mut state = state.lock().expect("no test panics while it looks");
    let first = head.lines().next().unwrap_or_default();
    if first.contains("/instance/compute") {
        return (Reply::Status(200), json!({ "name": ME }).to_string());
    }
    let version = first.split_once("api-version=").map_or("", |(_, rest)| &rest[..10]).to_owned();
    let known = version.parse().is_ok_and(|version| state.versions.contains(&version));
    if first.starts_with("GET") {
        state.polled.push(version.clone());
        let document = json!({ "DocumentIncarnation": 1, "Events": state.events });
        let is_throttled = state.is_throttled(version.parse().ok());
        let reply = state.polls.pop_front().or(is_throttled.then_some(Reply::Status(429)));
        return (reply.unwrap_or(Reply::Status(if known { 200 } else { 404 })), document.to_string());
    }
    let sent: Value = serde_json::from_str(body).expect("JSON");
    let ids = sent["StartRequests"].as_array().expect("a list").iter();
    let ids: Vec<_> = ids.map(|request| request["EventId"].as_str().expect("an id").to_owned()).collect();
    let refused = !known || ids.iter().any(|id| state.unapprovable.contains(id));
    state.approved.push((version, ids));
    let reply = state.approvals.pop_front();
    (reply.unwrap_or(Reply::Status(if refused { 400 } else { 200 })), String::new())
}
