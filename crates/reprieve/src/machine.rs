//! This machine: the id and time of its boot, and its description by the metadata service.

use std::time::Duration;

use reprieve_azure::scheduled_events::{Client, Compute};
use reprieve_core::Result;
use reprieve_core::ledger::Machine;
use tokio::time::{Instant, sleep};

/// The time limit for asking the metadata service in the background. Its first answer may take two minutes.
const ASK_TIMEOUT: Duration = Duration::from_secs(130);

/// The pause after a try that failed.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Returns the id of this machine's present boot; empty where the system has none. Containers share
/// that of their host.
pub(crate) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Describes this machine for the ledger, as far as the metadata service does; `name` is its name by the settings.
pub(crate) async fn describe(metadata: Option<Client>, name: Option<String>) -> Machine {
    let compute = match metadata {
        Some(metadata) => ask(&metadata).await.ok(),
        None => None,
    };
    let booted_unix_ms = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| booted(&stat));
    let machine = compute.map(machine).unwrap_or_default();
    Machine { booted_unix_ms, vm: name.unwrap_or(machine.vm), ..machine }
}

/// Asks the metadata service about this VM, again and again for about two minutes: it may refuse, such as with a 429
/// while several workers start.
///
/// # Errors
/// That of the last try.
pub(crate) async fn ask(metadata: &Client) -> Result<Compute> {
    let until = Instant::now() + ASK_TIMEOUT;
    loop {
        match metadata.compute_once(until.saturating_duration_since(Instant::now())).await {
            Ok(vm) => return Ok(vm),
            Err(error) if Instant::now() + ASK_AGAIN >= until => return Err(error),
            Err(_) => sleep(ASK_AGAIN).await,
        }
    }
}

fn machine(vm: Compute) -> Machine {
    let text = Option::unwrap_or_default;
    Machine {
        vm: vm.name,
        size: text(vm.vm_size),
        zone: text(vm.zone),
        region: text(vm.location),
        priority: text(vm.priority),
        eviction_policy: text(vm.eviction_policy),
        scale_set: text(vm.vm_scale_set_name),
        booted_unix_ms: None,
    }
}

/// The time of the boot in `/proc/stat`, in milliseconds since the Unix epoch. See `proc_stat(5)`.
fn booted(stat: &str) -> Option<i64> {
    let seconds: i64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    seconds.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_boot_is_read_from_the_kernels_statistics() {
        assert_eq!(booted("cpu  1 2\nctxt 9\nbtime 1767225600\nprocesses 7\n"), Some(1_767_225_600_000));
        assert_eq!((booted("cpu 1"), booted("btime soon"), booted("")), (None, None, None));
    }

    #[test]
    fn what_the_service_does_not_say_is_empty() {
        let compute = br#"{"name":"workers_3","vmSize":"Standard_D2s_v5","zone":"","location":"westeurope","priority":"Spot"}"#;
        let described = machine(Compute::read(compute).unwrap());
        let expected = Machine {
            vm: "workers_3".to_owned(),
            size: "Standard_D2s_v5".to_owned(),
            region: "westeurope".to_owned(),
            priority: "Spot".to_owned(),
            ..Machine::default()
        };
        assert_eq!(described, expected);
    }
}
