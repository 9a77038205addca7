//! The metadata service: whether it answers, how fast, who it says this VM is, and what it has in store for it.

use std::time::Duration;

use reprieve::Result;
use reprieve::checkup::{Checkup, StoreAddress};
use reprieve_azure::scheduled_events::document::Event;
use reprieve_azure::scheduled_events::{Answer, Client, Compute, INSTANCE_API_VERSION};
use reprieve_azure::storage::check::is_azure_vm;
use tokio::time::{Instant, sleep};

use super::finding::{Finding, ms_figure};
use super::pace::percentile;
use crate::format::{count, duration};

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How long the events may take: the first request of a VM enables the service, which takes up to two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const EVENTS_MAX: Duration = Duration::from_secs(8);

/// How often it is asked for its latency, how far apart, and for how long at most: all processes of a VM share five
/// requests per second.
const SAMPLES: usize = 10;
const APART: Duration = Duration::from_millis(250);
const SAMPLING_MAX: Duration = Duration::from_secs(6);

/// The findings `metadata service`, `vm` and `scheduled events`.
pub(super) async fn examine(checkup: &Checkup) -> Vec<Finding> {
    let Some(client) = &checkup.metadata else {
        let off = "the metadata service is off: an eviction is noticed only by a signal";
        // Who uses an account mostly is in Azure, where this switch gives away what all is for.
        return vec![match checkup.store {
            StoreAddress::Azure(ref address) if address.on_this_machine().is_none() => Finding::warning(
                "metadata service",
                off,
                "on an Azure VM, leave --metadata-url and REPRIEVE_METADATA_URL out",
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
    vec![reached(&times, versions), vm(&compute, checkup.vm_name.as_deref()), scheduled_events(events, name)]
}

/// Who this VM is, and how long each of the answers took.
async fn sampled(client: &Client) -> Result<(Compute, Vec<Duration>)> {
    let began = Instant::now();
    let compute = client.compute(ANSWER_MAX).await?;
    let mut times = vec![began.elapsed()];
    while times.len() < SAMPLES && began.elapsed() < SAMPLING_MAX {
        sleep(APART).await;
        let asked = Instant::now();
        // What fails now and then is a worker's business, which asks again.
        if client.compute(ANSWER_MAX).await.is_ok() {
            times.push(asked.elapsed());
        }
    }
    times.sort_unstable();
    Ok((compute, times))
}

fn unreached(client: &Client, error: &reprieve::Error, given: bool) -> Finding {
    const NAME: &str = "metadata service";
    let seen = format!("{}; a worker takes no job before it has answered", error.message());
    if given || is_azure_vm() {
        let cure = format!(
            "see that {} is right and that no firewall, proxy or container network is in the way, or say --metadata-url off",
            client.base().trim_end_matches('/')
        );
        return Finding::problem(NAME, seen, cure);
    }
    Finding::warning(NAME, seen, "outside Azure, say --metadata-url off")
}

fn reached(times: &[Duration], versions: Result<Vec<String>>) -> Finding {
    let (p50, max) = (percentile(times, 50), times.last().copied().unwrap_or_default());
    let newest = versions.ok().and_then(|versions| versions.into_iter().max());
    let versions =
        newest.as_ref().map_or_else(String::new, |newest| format!("; knows api-versions to {newest}"));
    let seen =
        format!("answers in {}, {} at the most, of {}{versions}", duration(p50), duration(max), times.len());
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
            let seen = format!(
                "{seen}; but --vm-name says {given}, so evictions of this VM would be taken for another's"
            );
            Finding::warning(NAME, seen, "leave --vm-name out")
        }
        _ => Finding::ok(NAME, seen),
    };
    finding
        .with("name", compute.name.as_str())
        .with_known("size", compute.vm_size.as_deref())
        .with_known("priority", compute.priority.as_deref())
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
                "run it again in two minutes, which the first request of a VM may take; a worker takes no job before",
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
        Finding::ok(NAME, format!("answer, and nothing is planned for this VM{others}"))
    } else {
        let ours: Vec<_> = ours.iter().map(|event| told(event)).collect();
        let seen = format!("for this VM there is {}", ours.join(", and "));
        Finding::warning(
            NAME,
            seen,
            "`reprieve status` says what a worker does about it; workers on other VMs go on with the work",
        )
    };
    finding
        .with("for_this_vm", document.events.len() - others.len())
        .with("for_others", others.len())
        .with("used_api_version", version.as_str())
}

fn told(event: &Event) -> String {
    let status = String::from(event.event_status.clone());
    let not_before = event.not_before.trim();
    let when = if not_before.is_empty() { String::new() } else { format!(", not before {not_before}") };
    format!("{} ({}{when})", event.event_type.as_str(), status.to_lowercase())
}
