//! The client of the service: one for all jobs of a worker.

use std::time::Duration;

use reprieve::JobError;
use reqwest::{Response, StatusCode};
use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How long a call may take.
const CALL: Duration = Duration::from_secs(10);

/// The service, with as many calls in a second as this worker may make.
#[derive(Debug)]
pub(crate) struct Prices {
    http: reqwest::Client,
    url: String,
    turns: Mutex<Interval>,
}

impl Prices {
    pub(crate) fn connect(url: &str, calls_per_second: u32) -> reqwest::Result<Self> {
        let mut turns = interval(Duration::from_secs(1) / calls_per_second.max(1));
        // No burst after a pause.
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let http = reqwest::Client::builder().no_proxy().timeout(CALL).build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), turns: Mutex::new(turns) })
    }

    /// Returns the price of an item.
    pub(crate) async fn price(&self, item: u32) -> Result<u64, JobError> {
        self.turns.lock().await.tick().await;
        let answer = self.http.get(format!("{}/prices/{item}", self.url)).send().await;
        checked(answer)?.json().await.map_err(JobError::retry)
    }

    /// Publishes the sum of a catalogue. Safe to repeat.
    pub(crate) async fn publish(&self, catalogue: &str, sum: u64) -> Result<(), JobError> {
        let url = format!("{}/totals/{catalogue}", self.url);
        checked(self.http.put(url).json(&sum).send().await).map(drop)
    }
}

/// What may be better next time is tried again.
fn checked(answer: reqwest::Result<Response>) -> Result<Response, JobError> {
    let answer = answer.map_err(JobError::retry)?;
    let status = answer.status();
    if status.is_success() {
        Ok(answer)
    } else if status.is_server_error()
        || [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
    {
        Err(JobError::retry(format!("the service answered {status}")))
    } else {
        Err(JobError::fatal(format!("the service answered {status}")))
    }
}
