//! Controls a running mock from another process; `reprieve metadata` uses it.
//!
//! `url` is the mock's address; its path is ignored, so a VM's own URL works too. Every function
//! fails with `Unavailable` when no mock answers there.

use std::num::NonZeroU32;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::Event;
use reprieve_core::Result;
use reqwest::Method;

use crate::control_call::Mock;
use crate::metadata::control::{Added, Changed, Evict, NewVm, RunFor, ScenarioFile, Speed};
use crate::metadata::{EventPlan, FaultRule};
pub use crate::metadata::{Evicted, FaultState, ScenarioState, State, VmState, Which};

/// Announces the eviction of the VM after `notice`.
///
/// # Errors
/// `NotFound` when the mock has no such VM, `Conflict` when the VM is already being evicted.
pub async fn evict(url: &str, vm: &str, notice: Duration) -> Result<Evicted> {
    let body = Evict { vm: vm.to_owned(), notice: notice.into() };
    MOCK.call("evict a VM", Method::POST, url, "/control/evict", &body).await
}

/// Announces any event and returns it.
///
/// # Errors
/// `Invalid` for a plan that contradicts itself, `Conflict` when an active event has its id.
pub async fn announce(url: &str, plan: &EventPlan) -> Result<Event> {
    MOCK.call("announce an event", Method::POST, url, "/control/announce", plan).await
}

/// Starts events before their time; returns their ids.
///
/// # Errors
/// `NotFound` when there is no such event, `Conflict` when it has begun.
pub async fn start(url: &str, which: &Which) -> Result<Vec<String>> {
    change("start an event", url, "/control/start", which).await
}

/// Ends events that have begun before their time; returns their ids.
///
/// # Errors
/// `NotFound` when there is no such event, `Conflict` when it has not begun.
pub async fn complete(url: &str, which: &Which) -> Result<Vec<String>> {
    change("complete an event", url, "/control/complete", which).await
}

/// Withdraws events that have not started; returns their ids.
///
/// # Errors
/// `NotFound` when there is no such event, `Conflict` when it has started.
pub async fn withdraw(url: &str, which: &Which) -> Result<Vec<String>> {
    change("withdraw an event", url, "/control/withdraw", which).await
}

/// Returns the mock's whole state.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn state(url: &str) -> Result<State> {
    MOCK.call("read the mock's state", Method::GET, url, "/control/state", &()).await
}

/// Adds a VM to the set.
///
/// # Errors
/// `Invalid` for an invalid VM name, `Conflict` for a name that is taken.
pub async fn add_vm(url: &str, name: &str) -> Result<()> {
    MOCK.call("add a VM", Method::POST, url, "/control/vms", &NewVm { name: name.to_owned() }).await
}

/// Removes a VM from the set.
///
/// # Errors
/// `NotFound` when the mock has no such VM.
pub async fn remove_vm(url: &str, name: &str) -> Result<()> {
    MOCK.call("remove a VM", Method::DELETE, url, &format!("/control/vms/{name}"), &()).await
}

/// Returns the mock's scenarios.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn scenarios(url: &str) -> Result<Vec<ScenarioState>> {
    MOCK.call("list the scenarios", Method::GET, url, "/control/scenarios", &()).await
}

/// Returns the file of the scenario called `name`.
///
/// # Errors
/// `NotFound` when there is no such scenario.
pub async fn scenario(url: &str, name: &str) -> Result<String> {
    let path = format!("/control/scenarios/{name}");
    let ScenarioFile { text } = MOCK.call("read a scenario", Method::GET, url, &path, &()).await?;
    Ok(text)
}

/// Adds a scenario from the text of its file, and replaces one of the same name.
///
/// # Errors
/// `Invalid` for an invalid scenario.
pub async fn add_scenario(url: &str, text: &str) -> Result<ScenarioState> {
    let body = ScenarioFile { text: text.to_owned() };
    MOCK.call("add a scenario", Method::POST, url, "/control/scenarios", &body).await
}

/// Runs the scenario called `name` for the VM `target`, or for the first VM; returns the VM's name.
///
/// # Errors
/// `NotFound` when there is no such scenario or VM.
pub async fn run_scenario(url: &str, name: &str, target: Option<&str>) -> Result<String> {
    let path = format!("/control/scenarios/{name}/run");
    let body = RunFor { target: target.map(str::to_owned) };
    let RunFor { target } = MOCK.call("run a scenario", Method::POST, url, &path, &body).await?;
    Ok(target.unwrap_or_default())
}

/// Returns the active faults.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn faults(url: &str) -> Result<Vec<FaultState>> {
    MOCK.call("list the faults", Method::GET, url, "/control/faults", &()).await
}

/// Injects a fault into requests; returns its number.
///
/// # Errors
/// `Invalid` for an invalid rule, `NotFound` when the mock has no such VM.
pub async fn add_fault(url: &str, rule: &FaultRule) -> Result<u64> {
    let Added { id } = MOCK.call("add a fault", Method::POST, url, "/control/faults", rule).await?;
    Ok(id)
}

/// Removes a fault.
///
/// # Errors
/// `NotFound` when there is no such fault.
pub async fn remove_fault(url: &str, id: u64) -> Result<()> {
    MOCK.call("remove a fault", Method::DELETE, url, &format!("/control/faults/{id}"), &()).await
}

/// Removes all faults.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn clear_faults(url: &str) -> Result<()> {
    MOCK.call("remove the faults", Method::DELETE, url, "/control/faults", &()).await
}

/// Restarts the document incarnation at 1, as the service does when it is restarted. Events stay
/// active.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn restart(url: &str) -> Result<()> {
    MOCK.call("restart the incarnations", Method::POST, url, "/control/restart", &()).await
}

/// Speeds up everything that is announced from now on, by this factor over real time.
///
/// # Errors
/// Only `Unavailable`, as above.
pub async fn set_speed(url: &str, speed: NonZeroU32) -> Result<()> {
    let Speed { .. } =
        MOCK.call("set the speed", Method::PUT, url, "/control/speed", &Speed { speed }).await?;
    Ok(())
}

/// The mock of the metadata service.
const MOCK: Mock = Mock {
    name: "mock metadata service",
    example: "http://127.0.0.1:8169",
    command: "reprieve metadata serve",
};

async fn change(operation: &'static str, url: &str, path: &str, which: &Which) -> Result<Vec<String>> {
    let Changed { event_ids } = MOCK.call(operation, Method::POST, url, path, which).await?;
    Ok(event_ids)
}
