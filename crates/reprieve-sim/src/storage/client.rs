//! Controls a running double from another process; `reprieve storage` uses it.
//!
//! `url` is the address of either of its ports; its path, such as an account's, is ignored.

use reprieve_core::Result;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::control::{Added, PREFIX};
use super::counts::Counts;
use super::faults::ActiveFault;
use super::latency::Latency;
use super::rule::Rule;
use crate::control_call::Mock;

/// Adds a fault and returns its number.
///
/// # Errors
/// `Unavailable` when no double answers there, `Invalid` for an invalid rule.
pub async fn add_fault(url: &str, rule: &Rule) -> Result<u64> {
    let Added { id } = send("add a fault", Method::POST, url, "faults", rule).await?;
    Ok(id)
}

/// Removes a fault.
///
/// # Errors
/// `Unavailable` when no double answers there, `NotFound` when there is no such fault.
pub async fn remove_fault(url: &str, id: u64) -> Result<()> {
    send("remove a fault", Method::DELETE, url, &format!("faults/{id}"), &()).await
}

/// Removes all faults.
///
/// # Errors
/// `Unavailable` when no double answers there.
pub async fn clear_faults(url: &str) -> Result<()> {
    send("remove the faults", Method::DELETE, url, "faults", &()).await
}

/// Returns the faults, and how often each was injected.
///
/// # Errors
/// `Unavailable` when no double answers there.
pub async fn faults(url: &str) -> Result<Vec<ActiveFault>> {
    send("read the faults", Method::GET, url, "faults", &()).await
}

/// Returns the requests since the double was started, or since its counts were reset.
///
/// # Errors
/// `Unavailable` when no double answers there.
pub async fn counts(url: &str) -> Result<Counts> {
    send("read the counts", Method::GET, url, "counts", &()).await
}

/// Resets the counts.
///
/// # Errors
/// `Unavailable` when no double answers there.
pub async fn reset_counts(url: &str) -> Result<()> {
    send("reset the counts", Method::DELETE, url, "counts", &()).await
}

/// Changes the simulated latency.
///
/// # Errors
/// `Unavailable` when no double answers there.
pub async fn set_latency(url: &str, latency: Latency) -> Result<()> {
    send("set the latency", Method::PUT, url, "latency", &latency).await
}

/// The storage double.
const DOUBLE: Mock = Mock {
    name: "mock storage service",
    example: "http://127.0.0.1:10001",
    command: "reprieve storage serve",
};

async fn send<T: DeserializeOwned>(
    operation: &'static str,
    method: Method,
    url: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<T> {
    DOUBLE.call(operation, method, url, &format!("{PREFIX}{path}"), body).await
}
