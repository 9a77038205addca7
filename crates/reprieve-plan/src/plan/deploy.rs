//! The parameters with which a strategy is deployed.

use crate::fleet::Strategy;

const MINUTE_MS: u64 = 60_000;

/// The lines of a `.bicepparam` file by which `infra/` deploys `strategy` on machines that run `slots` jobs at a time;
/// none if no preset is like it.
///
/// A maximum price is not among them: it is in `infra/fleets.json`.
#[must_use]
pub fn parameters(strategy: &Strategy, slots: u32) -> Vec<String> {
    use crate::fleet::Upkeep::{Autoscale, Maintain, Nobody, Restore};
    let number = |name: &str, value: u32| format!("param {name} = {value}");
    let mix = strategy.mix;
    let (preset, further) = match (strategy.upkeep, strategy.swap) {
        (Nobody, _) | (Restore { .. } | Maintain { .. }, Some(_)) => return Vec::new(),
        (Restore { for_ms, .. }, None) => {
            let timeout = match for_ms / MINUTE_MS {
                minutes if minutes % 60 == 0 => format!("PT{}H", minutes / 60),
                minutes => format!("PT{minutes}M"),
            };
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
