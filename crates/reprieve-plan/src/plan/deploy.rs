//! The parameters with which a strategy is deployed.

use crate::fleet::{Mix, Strategy, Swap};

const MINUTE_MS: u64 = 60_000;

/// The most machines that `infra/` deploys, of all fleets together.
pub const INSTANCES_MAX: u32 = 1_000;

/// The most regular machines that it deploys for jobs that moved.
pub const ESCALATION_INSTANCES_MAX: u32 = 100;

/// The most jobs that it takes for those of one machine.
const JOBS_PER_INSTANCE_MAX: u32 = 100_000;

/// How long Azure may try to restore a machine there.
const RESTORE_TIMEOUTS: [&str; 4] = ["PT15M", "PT30M", "PT1H", "PT2H"];

/// Whether `infra/` has these regular machines in `balanced`: a base, and a Spot machine above it.
#[must_use]
pub fn is_balanced(mix: Mix, instances: u32) -> bool {
    (1..instances).contains(&mix.base) && mix.percent_above < 100
}

/// Whether `infra/` has these regular machines in `swap`.
const fn is_swap(swap: Swap) -> bool {
    swap.after > 0 && swap.instances > 0 && swap.instances <= ESCALATION_INSTANCES_MAX
}

/// The lines of a `.bicepparam` file by which `infra/` deploys `strategy` on machines that run `slots` jobs at a time;
/// none if no preset is like it, or if its numbers are beyond what the templates take.
///
/// A maximum price is not among them: it is in `infra/fleets.json`.
#[must_use]
pub fn parameters(strategy: &Strategy, slots: u32) -> Vec<String> {
    use crate::fleet::Upkeep::{Autoscale, Maintain, Nobody, Restore};
    let number = |name: &str, value: u32| format!("param {name} = {value}");
    let mix = strategy.mix;
    let is_taken = (1..=INSTANCES_MAX).contains(&strategy.instances)
        && (1..=JOBS_PER_INSTANCE_MAX).contains(&slots)
        && (mix == Mix::default() || is_balanced(mix, strategy.instances))
        && strategy.swap.is_none_or(is_swap);
    if !is_taken {
        return Vec::new();
    }
    let (preset, further) = match (strategy.upkeep, strategy.swap) {
        (Nobody, _) | (Restore { .. } | Maintain { .. }, Some(_)) => return Vec::new(),
        (Restore { .. } | Maintain { .. }, None) if mix != Mix::default() => return Vec::new(),
        (Autoscale { .. }, Some(_)) if mix != Mix::default() => return Vec::new(),
        (Restore { for_ms, .. }, None) => {
            let timeout = match for_ms / MINUTE_MS {
                minutes if minutes % 60 == 0 => format!("PT{}H", minutes / 60),
                minutes => format!("PT{minutes}M"),
            };
            if !RESTORE_TIMEOUTS.contains(&timeout.as_str()) {
                return Vec::new();
            }
            ("steady", vec![format!("param restoreTimeout = '{timeout}'")])
        }
        (Maintain { .. }, None) => ("steady-fleet", Vec::new()),
        (Autoscale { .. }, Some(swap)) => {
            let further =
                vec![number("escalationInstances", swap.instances), number("escalateAfter", swap.after)];
            ("swap", further)
        }
        (Autoscale { .. }, None) if mix.base > 0 || mix.percent_above > 0 => {
            let further =
                vec![number("baseInstances", mix.base), number("regularPercentAboveBase", mix.percent_above)];
            ("balanced", further)
        }
        (Autoscale { .. }, None) => ("elastic", Vec::new()),
    };
    let first = [format!("param preset = '{preset}'"), number("instances", strategy.instances)];
    // Autoscale reckons with it.
    let jobs = matches!(strategy.upkeep, Autoscale { .. }).then(|| number("jobsPerInstance", slots));
    first.into_iter().chain(jobs).chain(further).collect()
}
