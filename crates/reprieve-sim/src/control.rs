//! Drives a running mock from another process: what `reprieve metadata` uses.
//!
//! `url` is the mock's address; a path, such as that of one of its VMs, does not matter.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::metadata::control::{Evict, NewVm, Problem, Withdrawn};
pub use crate::metadata::{Evicted, State, VmState, Which};

/// How long the mock may take: it is on this machine and does no work.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Announces that the VM will be taken back after `notice`.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no mock answers there, [`NotFound`](ErrorKind::NotFound) when it has no
/// such VM, [`Conflict`](ErrorKind::Conflict) when that is being evicted already.
pub async fn evict(url: &str, vm: &str, notice: Duration) -> Result<Evicted> {
    let notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX);
    send("evict a VM", Method::POST, url, "/control/evict", &Evict { vm: vm.to_owned(), notice_ms }).await
}

/// Withdraws events that have not started; returns their ids.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no mock answers there, [`NotFound`](ErrorKind::NotFound) when there is
/// no such event, [`Conflict`](ErrorKind::Conflict) when it has started.
pub async fn withdraw(url: &str, which: &Which) -> Result<Vec<String>> {
    let withdrawn: Withdrawn =
        send("withdraw an event", Method::POST, url, "/control/withdraw", which).await?;
    Ok(withdrawn.event_ids)
}

/// All there is to know of the mock now.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no mock answers there.
pub async fn state(url: &str) -> Result<State> {
    send("read the mock's state", Method::GET, url, "/control/state", &()).await
}

/// Adds a VM to the set.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no mock answers there, [`Invalid`](ErrorKind::Invalid) for a name that
/// can't be a VM's, [`Conflict`](ErrorKind::Conflict) for one that is taken.
pub async fn add_vm(url: &str, name: &str) -> Result<()> {
    send("add a VM", Method::POST, url, "/control/vms", &NewVm { name: name.to_owned() }).await
}

/// Removes a VM from the set.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when no mock answers there, [`NotFound`](ErrorKind::NotFound) when it has no
/// such VM.
pub async fn remove_vm(url: &str, name: &str) -> Result<()> {
    send("remove a VM", Method::DELETE, url, &format!("/control/vms/{name}"), &()).await
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
            let message = format!(
                "{url:?} is not the address of a mock, such as http://127.0.0.1:{}",
                crate::DEFAULT_PORT
            );
            return Err(Error::new(ErrorKind::Invalid, operation, message));
        }
    };
    whole.set_path(path);
    let unanswered = |error: reqwest::Error| {
        let message =
            format!("no mock metadata service answers at {url}; start one with `reprieve metadata serve`");
        Error::new(ErrorKind::Unavailable, operation, message).with_source(error)
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
            Error::new(ErrorKind::Corrupt, operation, "what answers there is no mock metadata service")
                .with_source(error)
        });
    }
    let kind = match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::CONFLICT => ErrorKind::Conflict,
        status if status.is_server_error() => ErrorKind::Unavailable,
        _ => ErrorKind::Invalid,
    };
    let message = serde_json::from_slice(body).map_or_else(
        |_| format!("it answered {status}, as no mock metadata service would"),
        |Problem { error }| error,
    );
    Err(Error::new(kind, operation, message))
}
