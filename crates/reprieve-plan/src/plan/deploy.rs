//! The parameters with which a strategy is deployed.

use crate::fleet::Strategy;

const MINUTE_MS: u64 = 60_000;

/// The lines of a `.bicepparam` file by which `infra/` deploys `strategy`; none if no preset is like it.
///
/// A maximum price is not among them: it is in `infra/fleets.json`.
#[must_use]
pub fn parameters(strategy: &Strategy) -> Vec<String> {
    use crate::fleet::Upkeep::{Autoscale, Maintain, Nobody, Restore};
    let number = |name: &str, value: u32| format!("param {name} = {value}");
    let mix = strategy.mix;
    let (preset, further) = match (strategy.upkeep, strategy.swap) {
        (Nobody, _) | (Restore { .. } | Maintain { .. }, Some(_)) => return Vec::new(),
        (Restore { for_ms, .. }, None) => {
            let timeout = format!("param restoreTimeout = 'PT{}M'", for_ms / MINUTE_MS);
            ("steady", vec![timeout])
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
    first.into_iter().chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::parameters;
    use crate::fleet::{Mix, Strategy};

    #[test]
    fn presets_have_the_parameters_of_their_files() {
        let balanced = Strategy::balanced(20, Mix { base: 2, percent_above: 25 });
        for (strategy, text) in [
            (Strategy::steady(4), include_str!("../../../../infra/presets/steady.bicepparam")),
            (Strategy::steady_fleet(4), include_str!("../../../../infra/presets/steady-fleet.bicepparam")),
            (Strategy::elastic(20), include_str!("../../../../infra/presets/elastic.bicepparam")),
            (balanced, include_str!("../../../../infra/presets/balanced.bicepparam")),
            (Strategy::swap(20, 2, 3), include_str!("../../../../infra/presets/swap.bicepparam")),
        ] {
            for line in parameters(&strategy) {
                let line = line.replace("PT60M", "PT1H");
                assert!(text.lines().any(|given| given == line), "{}: {line}", strategy.name);
            }
        }
        assert!(parameters(&Strategy::all_regular(4)).is_empty());
    }
}
