//! Sends single requests to the metadata service, in api-versions that it supports.

mod compute;
mod failure;
mod http;
mod shared;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Method;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

pub use self::compute::Compute;
pub(crate) use self::failure::Failure;
pub use self::failure::{FailureKind, Failures};
pub use self::http::METADATA_URL;
use self::http::{Body, HttpClient, Request};
use self::shared::SharedDirectory;
pub(crate) use self::shared::{HANGS_AFTER, LOOK_EVERY, Look, News, Note, PollResult, SharedPolls};
use crate::scheduled_events::document::{Answer, ApiVersion, Document};

/// The api-version of the instance document. Scheduled Events has a different set of versions. This
/// one has `priority` and `evictionPolicy`.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#supported-api-versions>
pub const INSTANCE_API_VERSION: &str = "2021-02-01";

/// How long the accepted version is used before newer ones are tried again.
pub(crate) const PROBE_EVERY: Duration = Duration::from_hours(1);

/// How much later than the documented version's the newest version's answer may come to be used.
const NEWEST_LATE_MAX: Duration = Duration::from_millis(500);

/// The interval between the versions that one call tries: all processes of a VM share five requests
/// per second.
const FALL_BACK_EVERY: Duration = Duration::from_millis(500);

/// The timeout of one approval. Approvals are sent while a drain ends, when seconds count.
pub(crate) const APPROVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay after an approval's first failure, and the longest delay after many.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(4);

/// The operation, as in "failed to …".
const READ_EVENTS: &str = "read the scheduled events";

/// An answer to a request for events, which is a document, or why there was none.
pub(crate) type Answered = Result<Body, Failure>;

/// A client of one metadata service. Cheap to clone. Clones share their connections and the
/// accepted api-version.
///
/// It sends plain HTTP to the given address only: it bypasses proxies, as [Azure
/// demands](https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#proxies),
/// and refuses redirects.
///
/// It requests events in two [`ApiVersion`]s at once: the newest, and the newest documented one.
/// Either answer is enough. An answer of 400 or 404 means that the service does not support the
/// version, and the client tries the next older one half a second later. Only a document counts as
/// acceptance. An older version that was accepted is tried first, for an hour.
///
/// # Errors
/// Each call fails with [`Unavailable`](ErrorKind::Unavailable) when the service can't be reached,
/// breaks off the connection or answers 404, 410, 429 or 5xx, which are all temporary;
/// [`TimedOut`](ErrorKind::TimedOut) when there was no answer in time;
/// [`Invalid`](ErrorKind::Invalid) when the service refuses the request (400 and others);
/// [`Corrupt`](ErrorKind::Corrupt) or [`TooLarge`](ErrorKind::TooLarge) when the answer is
/// malformed or too large.
#[derive(Debug, Clone)]
pub struct Client {
    http: HttpClient,
    pinned: Option<ApiVersion>,
    accepted: Arc<Mutex<Option<(ApiVersion, Instant)>>>,
    /// The VM, as the answer to a request of this client or of a clone describes it.
    instance: Arc<AsyncMutex<Option<Compute>>>,
    shared: Option<Arc<SharedDirectory>>,
}

impl Client {
    /// Creates a client of the service at `base`, such as [`METADATA_URL`]. `/metadata/…` is
    /// appended to the path of `base`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when `base` is not a plain `http://` address.
    pub fn new(base: &str) -> Result<Self> {
        let (accepted, instance) = (Arc::default(), Arc::default());
        Ok(Self { http: HttpClient::new(base)?, pinned: None, accepted, instance, shared: None })
    }

    /// Returns the same client, pinned to this api-version of events.
    #[must_use]
    pub fn with_version(self, version: ApiVersion) -> Self {
        Self { pinned: Some(version), ..self }
    }

    /// Returns the same client, whose [`Watcher`](crate::scheduled_events::Watcher) shares its polls with those
    /// of all other clients of this service and `directory`: one of them polls, and the others read what it
    /// gets. Where the service does not tell this VM's name, it is the one that another client has read in this
    /// boot. Only the workers' user should be able to write to the directory. It is created when it is missing,
    /// its parent is not. A watcher that can't use it logs a warning, polls by itself, and tries it again.
    /// Clients that are pinned to a version share with those that are pinned to the same.
    #[must_use]
    pub fn sharing(self, directory: &Path) -> Self {
        let shared = SharedDirectory::new(directory, self.base());
        Self { shared: Some(Arc::new(shared)), ..self }
    }

    /// The service's address.
    #[must_use]
    pub fn base(&self) -> &str {
        self.http.base()
    }

    /// The newest api-version that was accepted.
    #[must_use]
    pub fn version(&self) -> ApiVersion {
        let accepted = *self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = accepted.filter(|(_, at)| at.elapsed() < PROBE_EVERY).map(|(version, _)| version);
        self.pinned.or(fresh).unwrap_or(ApiVersion::NEWEST)
    }

    /// The version that it was [pinned](Self::with_version) to.
    pub(crate) const fn pinned(&self) -> Option<ApiVersion> {
        self.pinned
    }

    /// The polls that a watcher shares with the others of its VM.
    pub(crate) fn shared_polls(&self) -> Option<SharedPolls> {
        self.shared.as_ref().map(|directory| SharedPolls::new(Arc::clone(directory), self.pinned))
    }

    /// Requests the events that are scheduled or under way. Waits no longer than `within`.
    ///
    /// The first request ever made by a VM enables the service for it and may take
    /// [two minutes](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events).
    pub async fn document(&self, within: Duration) -> Result<Document> {
        self.answer(within).await.map(|answer| answer.document)
    }

    /// Requests the events, and returns the document with its api-version and the time of its
    /// receipt.
    pub async fn answer(&self, within: Duration) -> Result<Answer> {
        self.answer_or_failure(within).await.map_err(|failure| failure.error)
    }

    async fn answer_or_failure(&self, within: Duration) -> Result<Answer, Failure> {
        if let Some(version) = self.pinned {
            return self.answer_in(version, within).await;
        }
        let newest = self.answer_in(ApiVersion::NEWEST, within);
        let documented = self.search(deadline_in(within));
        tokio::pin!(newest, documented);
        let answer = tokio::select! {
            answer = &mut newest => match answer {
                Ok(answer) => answer,
                Err(_) => documented.await?,
            },
            answer = &mut documented => match answer {
                // The newest lists more types of events.
                Ok(answer) => {
                    let newest = timeout(NEWEST_LATE_MAX.min(within), newest).await;
                    newest.ok().and_then(Result::ok).unwrap_or(answer)
                }
                Err(failure) => newest.await.map_err(|_| failure)?,
            },
        };
        Ok(self.accept(answer))
    }

    /// Requests the events in the documented version, and in older ones while they are refused.
    async fn search(&self, deadline: Instant) -> Result<Answer, Failure> {
        let first = self.version().min(ApiVersion::DOCUMENTED);
        let mut refusal = match self.answer_in(first, deadline - Instant::now()).await {
            Err(failure) if failure.may_mean_the_version() => failure,
            answered => return answered,
        };
        let others = ApiVersion::ALL.into_iter().filter(|version| *version <= ApiVersion::DOCUMENTED);
        for version in others.filter(|version| *version != first) {
            sleep(FALL_BACK_EVERY.min(deadline - Instant::now())).await;
            let left = deadline - Instant::now();
            if left.is_zero() {
                break;
            }
            match self.answer_in(version, left).await {
                Err(failure) if failure.may_mean_the_version() => {
                    // The error for the newest version describes a service that supports none of
                    // them best.
                    if version == ApiVersion::DOCUMENTED {
                        refusal = failure;
                    }
                }
                answered => return answered,
            }
        }
        Err(refusal)
    }

    /// Approves events in one request. Each may then begin before its `NotBefore`, on every VM that
    /// it names.
    ///
    /// Idempotent: the service answers 200 for an event that was approved before. Temporary
    /// failures (410, 429, 5xx, no answer) are tried again, at most twice a second and for no
    /// longer than `within`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the service refuses the request, as it does when one of
    /// the events has ended. Then it may have approved none of them. An advice
    /// ([`SpotRebalanceRecommendation`][advice]) can't be approved.
    ///
    /// # Cancel safety
    /// If the future is dropped, the events may or may not be approved. Approving them again is
    /// harmless.
    ///
    /// [advice]: crate::scheduled_events::document::EventType::SpotRebalanceRecommendation
    pub async fn approve(&self, event_ids: &[&str], within: Duration) -> Result<()> {
        if event_ids.is_empty() {
            return Ok(());
        }
        let deadline = deadline_in(within);
        let approved = approve_within(deadline, |left| async move {
            // The refusal of an approval does not show whether the version caused it; a document
            // request does.
            if self.version_is_unknown() {
                self.answer_or_failure(deadline - Instant::now()).await?;
            }
            self.approve_in(self.version(), event_ids, left).await
        });
        approved.await.map_err(|failure| failure.error)
    }

    fn version_is_unknown(&self) -> bool {
        self.pinned.is_none() && self.accepted.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Requests this VM's name, location and other properties.
    pub async fn compute(&self, within: Duration) -> Result<Compute> {
        self.compute_or_failure(within).await.map_err(|failure| failure.error)
    }

    /// Returns the answer to an earlier request of this client or of a clone, or of another worker that shares its
    /// answers since the machine started; requests it if there is none. Of several only one requests it at a time,
    /// because the service limits the requests of a VM, and the VM keeps its name.
    pub async fn compute_once(&self, within: Duration) -> Result<Compute> {
        let known = async {
            let mut instance = self.instance.lock().await;
            if let Some(compute) = instance.as_ref() {
                return Ok(compute.clone());
            }
            let compute = match &self.shared {
                Some(shared) => shared.instance(within, self.compute(within)).await?,
                None => self.compute(within).await?,
            };
            *instance = Some(compute.clone());
            Ok(compute)
        };
        // Whoever holds the lock may wait for longer.
        timeout(within, known).await.unwrap_or_else(|_| {
            let message = format!("no answer within {within:?}");
            Err(Error::new(ErrorKind::TimedOut, "read this VM's name", message))
        })
    }

    /// Requests them, and returns the kind of failure.
    pub(crate) async fn compute_or_failure(&self, within: Duration) -> Result<Compute, Failure> {
        let request = get("read this VM's name", "instance/compute", Some(INSTANCE_API_VERSION));
        let body = self.http.send(request, within).await?;
        let compute = Compute::read(&body.bytes);
        let compute = compute.map_err(|error| Failure::new(FailureKind::Garbage, error))?;
        if let Some(shared) = &self.shared {
            shared.keep_instance(body.bytes).await;
        }
        Ok(compute)
    }

    /// Requests the api-versions of the instance document that the service supports, the oldest
    /// first.
    ///
    /// Scheduled Events has a different set of versions, which the service does not list.
    pub async fn versions(&self, within: Duration) -> Result<Vec<String>> {
        const OPERATION: &str = "read the metadata service's versions";
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Versions {
            api_versions: Vec<String>,
        }
        let answer = self.http.send(get(OPERATION, "versions", None), within).await;
        let answer = answer.map_err(|failure| failure.error)?;
        let versions = serde_json::from_slice::<Versions>(&answer.bytes).map_err(|error| {
            let message = format!("the answer is not a list of versions: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })?;
        Ok(versions.api_versions)
    }

    /// Requests the events once, in this version. An answer that is no document is a failure, also for those
    /// that it is shared with.
    pub(crate) async fn poll(&self, version: ApiVersion, within: Duration) -> Answered {
        let request = get(READ_EVENTS, "scheduledevents", Some(version.as_str()));
        let body = self.http.send(request, within).await?;
        read_document(version, &body).map(|_| body)
    }

    async fn answer_in(&self, version: ApiVersion, within: Duration) -> Result<Answer, Failure> {
        let sent = Instant::now();
        read_answer(version, sent, self.poll(version, within).await)
    }

    /// Approves once, in this version. The body of a success is not documented, but it is no web
    /// page.
    pub(crate) async fn approve_in(
        &self,
        version: ApiVersion,
        event_ids: &[&str],
        within: Duration,
    ) -> Result<(), Failure> {
        const OPERATION: &str = "approve an event";
        let requests: Vec<_> = event_ids.iter().map(|id| serde_json::json!({ "EventId": id })).collect();
        let body = serde_json::json!({ "StartRequests": requests }).to_string().into_bytes();
        let request = Request {
            method: Method::POST,
            body,
            ..get(OPERATION, "scheduledevents", Some(version.as_str()))
        };
        let answer = self.http.send(request, within).await?;
        if answer.bytes.trim_ascii_start().starts_with(b"<") {
            let message = "the answer is a web page, so it is not the metadata service's";
            return Err(Failure::new(
                FailureKind::Garbage,
                Error::new(ErrorKind::Corrupt, OPERATION, message),
            ));
        }
        Ok(())
    }

    fn accept(&self, answer: Answer) -> Answer {
        *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some((answer.version, answer.at));
        answer
    }
}

/// Reads what was answered in this version to the request at `sent`.
pub(crate) fn read_answer(version: ApiVersion, sent: Instant, answered: Answered) -> Result<Answer, Failure> {
    let body = answered?;
    let document = read_document(version, &body)?;
    Ok(Answer { sent, ahead: body.ahead, ..Answer::now(document, version) })
}

fn read_document(version: ApiVersion, body: &Body) -> Result<Document, Failure> {
    Document::read_as(version, &body.bytes).map_err(|error| Failure::new(FailureKind::Garbage, error))
}

/// The deadline `within` from now, capped at 24 h.
pub(crate) fn deadline_in(within: Duration) -> Instant {
    Instant::now() + within.min(Duration::from_hours(24))
}

/// Sends an approval until it is answered or refused, or until `deadline` leaves no time for
/// another attempt.
pub(crate) async fn approve_within<F>(deadline: Instant, send: impl Fn(Duration) -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut backoff = BACKOFF_MIN;
    loop {
        let left = deadline - Instant::now();
        match send(left.min(APPROVAL_TIMEOUT)).await {
            Err(failure) if failure.passes() && Instant::now() + backoff < deadline => {
                debug!(error = %failure.error, "failed to approve events; trying again");
                sleep(backoff).await;
                backoff = (2 * backoff).min(BACKOFF_MAX);
            }
            ended => return ended,
        }
    }
}

const fn get(operation: &'static str, endpoint: &'static str, api_version: Option<&'static str>) -> Request {
    Request { operation, method: Method::GET, endpoint, api_version, body: Vec::new() }
}
