//! Asks the metadata service, once per call, in the newest api-version that it has.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Method;
use tokio::time::{Instant, sleep};

use super::approvals::{approve_within, deadline_in};
use super::document::Document;
use super::exchange::{Ask, Exchange};
use super::failure::{Failure, FailureKind};
use super::{Answer, ApiVersion, Compute};

/// Where the metadata service is in every Azure VM: an address that leads to the host and no further.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>
pub const METADATA_URL: &str = "http://169.254.169.254";

/// The api-version of the instance document. Scheduled Events has other versions: none of them is valid here. This one
/// has `priority` and `evictionPolicy`.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#supported-api-versions>
pub const INSTANCE_API_VERSION: &str = "2021-02-01";

/// For how long the version that was accepted is asked for first, before newer ones are tried again.
pub(super) const PROBE_EVERY: Duration = Duration::from_hours(1);

/// How far apart one call tries one version after the other: all processes of a VM share five requests per second.
const FALL_BACK_EVERY: Duration = Duration::from_millis(500);

/// Asks one metadata service. Cheap to clone; clones share their connections, and which api-version was accepted.
///
/// It speaks plain HTTP to the address it was given and to no other: proxies are bypassed, as
/// [Azure demands](https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#proxies), and redirects
/// refused.
///
/// Events are asked for in the newest [`ApiVersion`] that the service has: one that is answered with 400 or 404 is taken
/// not to be there, and the next older is tried, half a second later. Only a document counts as acceptance. After an
/// hour the newest is tried again.
///
/// # Errors
/// Each call fails with [`Unavailable`](ErrorKind::Unavailable) when the service can't be reached, breaks off or
/// answers 404, 410, 429 or 5xx, all of which pass; [`TimedOut`](ErrorKind::TimedOut) when there was no answer in time;
/// [`Invalid`](ErrorKind::Invalid) when it refuses the request (400 and others);
/// [`Corrupt`](ErrorKind::Corrupt) or [`TooLarge`](ErrorKind::TooLarge) when the answer is not what was asked for.
#[derive(Debug, Clone)]
pub struct Client {
    exchange: Exchange,
    pinned: Option<ApiVersion>,
    accepted: Arc<Mutex<Option<(ApiVersion, Instant)>>>,
}

impl Client {
    /// A client of the service at `base`, such as [`METADATA_URL`]; a path is kept, `/metadata/…` follows it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), in one sentence, for what is not a plain `http://` address.
    pub fn new(base: &str) -> Result<Self> {
        Ok(Self { exchange: Exchange::new(base)?, pinned: None, accepted: Arc::default() })
    }

    /// The same client, asking for events in this api-version and no other.
    #[must_use]
    pub fn with_version(self, version: ApiVersion) -> Self {
        Self { pinned: Some(version), ..self }
    }

    /// The address it asks.
    #[must_use]
    pub fn base(&self) -> &str {
        self.exchange.base()
    }

    /// The api-version that the next call asks for first.
    #[must_use]
    pub fn version(&self) -> ApiVersion {
        let accepted = *self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = accepted.filter(|(_, at)| at.elapsed() < PROBE_EVERY).map(|(version, _)| version);
        self.pinned.or(fresh).unwrap_or(ApiVersion::NEWEST)
    }

    /// The one it was [pinned](Self::with_version) to.
    pub(super) const fn pinned(&self) -> Option<ApiVersion> {
        self.pinned
    }

    /// The events that are scheduled or under way, waiting no longer than `within`.
    ///
    /// The first request ever made by a VM enables the service for it and may take
    /// [two minutes](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events).
    pub async fn document(&self, within: Duration) -> Result<Document> {
        self.answer(within).await.map(|answer| answer.document)
    }

    /// The same, with the api-version in which it was answered, and when.
    pub async fn answer(&self, within: Duration) -> Result<Answer> {
        self.answer_or_failure(within).await.map_err(|failure| failure.error)
    }

    async fn answer_or_failure(&self, within: Duration) -> Result<Answer, Failure> {
        let deadline = deadline_in(within);
        let first = self.version();
        let mut refusal = match self.answer_in(first, within).await {
            Ok(answer) => return Ok(self.accept(answer)),
            Err(failure) if self.pinned.is_some() || !failure.may_mean_the_version() => return Err(failure),
            Err(failure) => failure,
        };
        for version in ApiVersion::ALL.into_iter().filter(|version| *version != first) {
            sleep(FALL_BACK_EVERY.min(deadline - Instant::now())).await;
            let left = deadline - Instant::now();
            if left.is_zero() {
                break;
            }
            match self.answer_in(version, left).await {
                Ok(answer) => return Ok(self.accept(answer)),
                Err(failure) if failure.may_mean_the_version() => {
                    // What is said of the newest is what should be known of a service that has none of them.
                    if version == ApiVersion::NEWEST {
                        refusal = failure;
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(refusal)
    }

    /// Approves events in one request, so that each may begin without waiting for its `NotBefore`, on every VM it names.
    ///
    /// Idempotent: the service answers 200 for an event that was approved before. What may pass (410, 429, 5xx, no
    /// answer) is tried again, twice a second at most, for no longer than `within`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the request is refused, which happens when one of the events is over; then
    /// none may have been approved. An advice ([`SpotRebalanceRecommendation`][advice]) can't be.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the events are approved; approving them again does no harm.
    ///
    /// [advice]: super::document::EventType::SpotRebalanceRecommendation
    pub async fn approve(&self, event_ids: &[&str], within: Duration) -> Result<()> {
        if event_ids.is_empty() {
            return Ok(());
        }
        let deadline = deadline_in(within);
        let approved = approve_within(deadline, |left| async move {
            // An approval's refusal does not say whether it was the version; a document does.
            if self.version_is_a_guess() {
                self.answer_or_failure(deadline - Instant::now()).await?;
            }
            self.approve_in(self.version(), event_ids, left).await
        });
        approved.await.map_err(|failure| failure.error)
    }

    fn version_is_a_guess(&self) -> bool {
        self.pinned.is_none() && self.accepted.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// What this VM is called and where it runs.
    pub async fn compute(&self, within: Duration) -> Result<Compute> {
        self.compute_or_failure(within).await.map_err(|failure| failure.error)
    }

    /// The same, saying what kind of failure it was.
    pub(super) async fn compute_or_failure(&self, within: Duration) -> Result<Compute, Failure> {
        let ask = get("read this VM's name", "instance/compute", Some(INSTANCE_API_VERSION));
        let body = self.exchange.send(ask, within).await?;
        Compute::read(&body).map_err(|error| Failure::new(FailureKind::Garbage, error))
    }

    /// The api-versions of the instance document that the service knows, as it lists them: the oldest first.
    ///
    /// Scheduled Events has other versions, which nothing lists.
    pub async fn versions(&self, within: Duration) -> Result<Vec<String>> {
        const OPERATION: &str = "read the metadata service's versions";
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Versions {
            api_versions: Vec<String>,
        }
        let answer = self.exchange.send(get(OPERATION, "versions", None), within).await;
        let answer = answer.map_err(|failure| failure.error)?;
        let versions = serde_json::from_slice::<Versions>(&answer).map_err(|error| {
            let message = format!("the answer is no list of versions: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })?;
        Ok(versions.api_versions)
    }

    /// Asks for the events in this version, once.
    pub(super) async fn answer_in(&self, version: ApiVersion, within: Duration) -> Result<Answer, Failure> {
        let ask = get("read the scheduled events", "scheduledevents", Some(version.as_str()));
        let body = self.exchange.send(ask, within).await?;
        let document = Document::read_as(version, &body);
        let document = document.map_err(|error| Failure::new(FailureKind::Garbage, error))?;
        Ok(Answer::now(document, version))
    }

    /// Approves in this version, once. What a success says is documented nowhere, but it is no web page.
    pub(super) async fn approve_in(
        &self,
        version: ApiVersion,
        event_ids: &[&str],
        within: Duration,
    ) -> Result<(), Failure> {
        const OPERATION: &str = "approve an event";
        let requests: Vec<_> = event_ids.iter().map(|id| serde_json::json!({ "EventId": id })).collect();
        let body = serde_json::json!({ "StartRequests": requests }).to_string().into_bytes();
        let ask =
            Ask { method: Method::POST, body, ..get(OPERATION, "scheduledevents", Some(version.as_str())) };
        let answer = self.exchange.send(ask, within).await?;
        if answer.trim_ascii_start().starts_with(b"<") {
            let message = "the answer is a web page, so it is not from the metadata service";
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

const fn get(operation: &'static str, endpoint: &'static str, api_version: Option<&'static str>) -> Ask {
    Ask { operation, method: Method::GET, endpoint, api_version, body: Vec::new() }
}
