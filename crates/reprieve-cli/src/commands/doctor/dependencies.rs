//! Checks of what jobs depend on besides the store.

use std::any::Any;
use std::time::Duration;

use reprieve::checkup::Checkup;
use reprieve::dependency::Dependency;
use reprieve::redis::Redis;
use tokio::time::{Instant, timeout};

use super::finding::{Finding, ms_figure};
use crate::format::duration;

/// The timeout of one probe, longer than a worker's, so that a slow one is seen.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long a worker waits for a probe.
const WORKER_WAITS: Duration = Duration::from_secs(2);

/// A finding for each dependency that `reprieve.toml` names.
pub(super) async fn examine(checkup: &Checkup) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, dependency) in &checkup.dependencies {
        findings.push(probe(format!("dependency {name}"), &**dependency).await);
    }
    findings
}

async fn probe(name: String, dependency: &dyn Dependency) -> Finding {
    const CURE: &str = "jobs that need it are not begun while that lasts; check its address, its key or what the identity may do there, and its firewall";
    let began = Instant::now();
    let probed = timeout(ANSWER_MAX, dependency.probe()).await;
    let (took, announces) = (began.elapsed(), dependency.announces());
    match probed {
        Err(_) => Finding::problem(name, format!("no answer within {}", duration(ANSWER_MAX)), CURE),
        Ok(Err(why)) => Finding::problem(name, format!("the probe failed: {why}"), CURE),
        Ok(Ok(())) if took > WORKER_WAITS => {
            let seen =
                format!("it answers after {}, which a worker takes for away; {announces}", duration(took));
            Finding::warning(name, seen, "use one in this region").with("answer_ms", ms_figure(took))
        }
        Ok(Ok(())) => served(name, dependency, took).await,
    }
}

/// The finding for one whose probe succeeded: what is wrong with it nevertheless, if anything is.
async fn served(name: String, dependency: &dyn Dependency, took: Duration) -> Finding {
    let mut faults: Vec<_> =
        timeout(ANSWER_MAX, dependency.refuses()).await.ok().flatten().into_iter().collect();
    if let Some(cache) = (dependency as &dyn Any).downcast_ref::<Redis>() {
        faults.extend(cache.examine().await);
    }
    let finding = match faults.as_slice() {
        [] => Finding::ok(name, format!("it serves; {}", dependency.announces())),
        faults => {
            let cure = "mend that before jobs are run that need it; see docs/redis.md";
            Finding::warning(name, format!("it answers, but {}", faults.join("; ")), cure)
        }
    };
    finding.with("answer_ms", ms_figure(took))
}
