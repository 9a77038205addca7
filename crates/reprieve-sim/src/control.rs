//! Drives a running mock from another process: what `reprieve metadata` uses.
//!
//! `url` is the mock's address; a path, such as that of one of its VMs, does not matter.

use std::time::Duration;

use reprieve_core::Result;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ask::Mock;
use crate::metadata::control::{Evict, NewVm, Withdrawn};
pub use crate::metadata::{Evicted, State, VmState, Which};

/// Announces that the VM will be taken back after `notice`.
///
/// # Errors
/// `Unavailable` when no mock answers there, `NotFound` when it has no
/// such VM, `Conflict` when that is being evicted already.
pub async fn evict(url: &str, vm: &str, notice: Duration) -> Result<Evicted> {
    let notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX);
    send("evict a VM", Method::POST, url, "/control/evict", &Evict { vm: vm.to_owned(), notice_ms }).await
}

/// Withdraws events that have not started; returns their ids.
///
/// # Errors
/// `Unavailable` when no mock answers there, `NotFound` when there is
/// no such event, `Conflict` when it has started.
pub async fn withdraw(url: &str, which: &Which) -> Result<Vec<String>> {
    let withdrawn: Withdrawn =
        send("withdraw an event", Method::POST, url, "/control/withdraw", which).await?;
    Ok(withdrawn.event_ids)
}

/// All there is to know of the mock now.
///
/// # Errors
/// `Unavailable` when no mock answers there.
pub async fn state(url: &str) -> Result<State> {
    send("read the mock's state", Method::GET, url, "/control/state", &()).await
}

/// Adds a VM to the set.
///
/// # Errors
/// `Unavailable` when no mock answers there, `Invalid` for a name that
/// can't be a VM's, `Conflict` for one that is taken.
pub async fn add_vm(url: &str, name: &str) -> Result<()> {
    send("add a VM", Method::POST, url, "/control/vms", &NewVm { name: name.to_owned() }).await
}

/// Removes a VM from the set.
///
/// # Errors
/// `Unavailable` when no mock answers there, `NotFound` when it has no
/// such VM.
pub async fn remove_vm(url: &str, name: &str) -> Result<()> {
    send("remove a VM", Method::DELETE, url, &format!("/control/vms/{name}"), &()).await
}

/// The mock of the metadata service.
const MOCK: Mock = Mock {
    name: "mock metadata service",
    example: "http://127.0.0.1:8169",
    command: "reprieve metadata serve",
};

async fn send<T: DeserializeOwned>(
    operation: &'static str,
    method: Method,
    url: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<T> {
    MOCK.ask(operation, method, url, path, body).await
}
