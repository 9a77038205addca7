//! Checks of the metadata service: latency, this VM's identity and its active events.

use std::time::Duration;

use reprieve::Result;
use reprieve::checkup::{Checkup, Loss, StoreAddress};
use reprieve_azure::scheduled_events::document::Event;
use reprieve_azure::scheduled_events::{Answer, Client, Compute, INSTANCE_API_VERSION};
use reprieve_azure::storage::check::is_azure_vm;
use tokio::time::{Instant, sleep};

use super::finding::{Finding, ms_figure};
use super::pace::percentile;
use crate::format::{count, duration};

/// The timeout of one request.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The timeout of the request for events: a VM's first one enables the service, which takes up to
/// two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const EVENTS_MAX: Duration = Duration::from_secs(8);

/// The number of latency samples, their interval and the longest time for all: the processes of a
/// VM share five requests per second.
const SAMPLES: usize = 10;
const APART: Duration = Duration::from_millis(250);
const SAMPLING_MAX: Duration = Duration::from_secs(6);

/// The findings `metadata service`, `vm` and `scheduled events`, and `eviction` where one would take
/// the store along.
pub(super) async fn examine(checkup: &Checkup) -> Vec<Finding> {
    let Some(client) = &checkup.metadata else {
        let off = "the metadata service is off: only a signal announces an eviction";
        // A user of a storage account mostly runs in Azure, where notices need the service.
        return vec![match checkup.store {
            StoreAddress::Azure(ref address) if address.on_this_machine().is_none() => Finding::warning(
                "metadata service",
                off,
                "on an Azure VM, remove --metadata-url and REPRIEVE_METADATA_URL",
            ),
            _ => Finding::skipped("metadata service", off),
        }];
    };
    let (compute, times) = match sampled(client).await {
        Ok(sampled) => sampled,
        Err(error) => {
            let unreached = unreached(client, &error, checkup.metadata_given);
            let why = "the metadata service does not answer";
            return vec![unreached, Finding::skipped("vm", why), Finding::skipped("scheduled events", why)];
        }
    };
    let versions = client.versions(ANSWER_MAX).await;
    let events = client.answer(EVENTS_MAX).await;
    let name = checkup.vm_name.as_deref().unwrap_or(&compute.name);
    let mut findings = vec![
        reached(&times, versions),
        vm(&compute, checkup.vm_name.as_deref()),
        scheduled_events(events, name),
    ];
    if let Some(loss) = checkup.store.loss_at_eviction(&compute) {
        findings.push(Finding::warning("eviction", loss.to_string(), Loss::CURE));
    }
    findings
}

/// This VM's identity and the sorted latencies.
async fn sampled(client: &Client) -> Result<(Compute, Vec<Duration>)> {
    let began = Instant::now();
    let compute = client.compute(ANSWER_MAX).await?;
    let mut times = vec![began.elapsed()];
    while times.len() < SAMPLES && began.elapsed() < SAMPLING_MAX {
        sleep(APART).await;
        let asked = Instant::now();
        // A single failure is harmless: a worker tries again.
        if client.compute(ANSWER_MAX).await.is_ok() {
            times.push(asked.elapsed());
        }
    }
    times.sort_unstable();
    Ok((compute, times))
}

fn unreached(client: &Client, error: &reprieve::Error, given: bool) -> Finding {
    const NAME: &str = "metadata service";
    let seen = format!("{}; a worker receives no jobs before it has answered", error.message());
    if given || is_azure_vm() {
        let cure = format!(
            "check the address {}, and firewalls, proxies and container networks, or set --metadata-url off",
            client.base().trim_end_matches('/')
        );
        return Finding::problem(NAME, seen, cure);
    }
    Finding::warning(NAME, seen, "outside Azure, set --metadata-url off")
}

fn reached(times: &[Duration], versions: Result<Vec<String>>) -> Finding {
    let (p50, max) = (percentile(times, 50), times.last().copied().unwrap_or_default());
    let newest = versions.ok().and_then(|versions| versions.into_iter().max());
    let versions =
        newest.as_ref().map_or_else(String::new, |newest| format!("; newest api-version {newest}"));
    let seen = format!(
        "answers in {} (median), {} (max), {} requests{versions}",
        duration(p50),
        duration(max),
        times.len()
    );
    Finding::ok("metadata service", seen)
        .with("samples", times.len())
        .with("p50_ms", ms_figure(p50))
        .with("max_ms", ms_figure(max))
        .with_known("newest_api_version", newest)
        .with("used_api_version", INSTANCE_API_VERSION)
}

fn vm(compute: &Compute, given: Option<&str>) -> Finding {
    const NAME: &str = "vm";
    let more = [&compute.vm_size, &compute.priority, &compute.location, &compute.zone];
    let more: Vec<_> = more.into_iter().flatten().map(String::as_str).collect();
    let seen = std::iter::once(compute.name.as_str()).chain(more).collect::<Vec<_>>().join(", ");
    let finding = match given {
        Some(given) if !given.eq_ignore_ascii_case(&compute.name) => {
            let seen = format!("{seen}; --vm-name is {given}, so a worker would ignore this VM's evictions");
            Finding::warning(NAME, seen, "remove --vm-name")
        }
        _ => Finding::ok(NAME, seen),
    };
    finding
        .with("name", compute.name.as_str())
        .with_known("size", compute.vm_size.as_deref())
        .with_known("priority", compute.priority.as_deref())
        .with_known("eviction_policy", compute.eviction_policy.as_deref())
        .with_known("location", compute.location.as_deref())
}

fn scheduled_events(events: Result<Answer>, name: &str) -> Finding {
    const NAME: &str = "scheduled events";
    let Answer { document, version, .. } = match events {
        Ok(answer) => answer,
        Err(error) => {
            return Finding::problem(
                NAME,
                error.message(),
                "run this again in two minutes: a VM's first request may take that long; a worker receives no jobs before it",
            );
        }
    };
    let (ours, others): (Vec<&Event>, Vec<_>) =
        document.events.iter().partition(|event| event.concerns(name));
    let finding = if ours.is_empty() {
        let others = match others.len() {
            0 => String::new(),
            others => format!("; {} for other VMs of its set", count(others as u64, "event")),
        };
        Finding::ok(NAME, format!("none is active for this VM{others}"))
    } else {
        let ours: Vec<_> = ours.iter().map(|event| event_summary(event)).collect();
        let seen = format!("active for this VM: {}", ours.join(", "));
        Finding::warning(
            NAME,
            seen,
            "`reprieve status` shows what its worker does; workers on other VMs continue the work",
        )
    };
    finding
        .with("for_this_vm", document.events.len() - others.len())
        .with("for_others", others.len())
        .with("used_api_version", version.as_str())
}

fn event_summary(event: &Event) -> String {
    let status = String::from(event.event_status.clone());
    let not_before = event.not_before.trim();
    let when = if not_before.is_empty() { String::new() } else { format!(", not before {not_before}") };
    format!("{} ({}{when})", event.event_type.as_str(), status.to_lowercase())
}
