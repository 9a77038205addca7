//! Drives a running double from another process: what `reprieve storage` uses.
//!
//! `url` is the address of either of its ports; a path, such as an account's, does not matter.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::control::{Added, PREFIX, Problem};
use super::counts::Counts;
use super::faults::Standing;
use super::latency::Latency;
use super::rule::Rule;

/// How long the double may take: it is on this machine and does little work for this.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Adds a fault and returns what removes it.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there, [`Invalid`](ErrorKind::Invalid) for a fault that
/// can't be.
pub async fn add_fault(url: &str, rule: &Rule) -> Result<u64> {
    let Added { id } = send("add a fault", Method::POST, url, "faults", rule).await?;
    Ok(id)
}

/// Removes a fault.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there, [`NotFound`](ErrorKind::NotFound) when there is
/// no such fault.
pub async fn remove_fault(url: &str, id: u64) -> Result<()> {
    send("remove a fault", Method::DELETE, url, &format!("faults/{id}"), &()).await
}

/// Removes all faults.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there.
pub async fn clear_faults(url: &str) -> Result<()> {
    send("remove the faults", Method::DELETE, url, "faults", &()).await
}

/// The faults there are, and whom they befell.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there.
pub async fn faults(url: &str) -> Result<Vec<Standing>> {
    send("read the faults", Method::GET, url, "faults", &()).await
}

/// The requests since the double was started, or since its counts were reset.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there.
pub async fn counts(url: &str) -> Result<Counts> {
    send("read the counts", Method::GET, url, "counts", &()).await
}

/// Begins to count anew.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there.
pub async fn reset_counts(url: &str) -> Result<()> {
    send("reset the counts", Method::DELETE, url, "counts", &()).await
}

/// Moves the double nearer or farther.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no double answers there.
pub async fn set_latency(url: &str, latency: Latency) -> Result<()> {
    send("set the latency", Method::PUT, url, "latency", &latency).await
}

async fn send<T: DeserializeOwned>(
    operation: &'static str,
    method: Method,
    url: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<T> {
    let mut whole = match Url::parse(url) {
        Ok(whole) if whole.scheme() == "http" => whole,
        _ => {
            let message =
                format!("{url:?} is not the address of a storage double, such as http://127.0.0.1:10001");
            return Err(Error::new(ErrorKind::Invalid, operation, message));
        }
    };
    whole.set_path(&format!("{PREFIX}{path}"));
    whole.set_query(None);
    let unanswered = |error: reqwest::Error| {
        let message = format!("no storage double answers at {url}; start one with `reprieve storage serve`");
        Error::new(ErrorKind::Unavailable, operation, message).with_source(error.without_url())
    };
    let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(unanswered)?;
    let answer = http.request(method, whole).json(body).send().await.map_err(unanswered)?;
    let status = answer.status();
    let body = answer.bytes().await.map_err(unanswered)?;
    read(operation, status, &body)
}

fn read<T: DeserializeOwned>(operation: &'static str, status: StatusCode, body: &[u8]) -> Result<T> {
    if status.is_success() {
        // An answer without a body stands for `()`.
        let body = if body.is_empty() { b"null" } else { body };
        return serde_json::from_slice(body).map_err(|error| {
            Error::new(ErrorKind::Corrupt, operation, "what answers there is no storage double")
                .with_source(error)
        });
    }
    let kind = match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        status if status.is_server_error() => ErrorKind::Unavailable,
        _ => ErrorKind::Invalid,
    };
    let message = serde_json::from_slice(body).map_or_else(
        |_| format!("it answered {status}, as no storage double would"),
        |Problem { error }| error,
    );
    Err(Error::new(kind, operation, message))
}
