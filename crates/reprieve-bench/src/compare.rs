//! Compares a run with an earlier one, and finds regressions beyond the noise.

use crate::measure::{Better, Measure};
use crate::report::Report;

/// Changes below this share of the earlier median are ignored.
const NOISE: f64 = 0.1;

/// A measure that both runs have.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) before: &'a Measure,
    pub(crate) now: &'a Measure,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Better,
    /// Worse, and Reprieve's.
    Regressed,
    /// Worse, and a peer's.
    ReferenceWorse,
}

/// The comparison of two runs.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    pub(crate) changes: Vec<Change<'a>>,
    /// Measures of the earlier run that are missing from this run of the same section.
    pub(crate) missing: Vec<&'a Measure>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn of(before: &'a Report, now: &'a Report) -> Self {
        let sections = now.sections();
        let expected = before.measures.iter().filter(|measure| sections.contains(&measure.section.as_str()));
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        for before in expected {
            let same = |now: &&Measure| {
                (&now.section, &now.name, &now.unit) == (&before.section, &before.name, &before.unit)
            };
            match now.measures.iter().find(same) {
                Some(now) => changes.push(Change { before, now, verdict: verdict(before, now) }),
                None => missing.push(before),
            }
        }
        Self { changes, missing }
    }

    pub(crate) fn has_regressed(&self) -> bool {
        self.changes.iter().any(|change| change.verdict == Verdict::Regressed)
    }
}

impl Change<'_> {
    /// The new median as a multiple of the earlier one; `None` if the earlier one is 0.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (self.before.median != 0.0).then(|| self.now.median / self.before.median)
    }
}

/// "Worse" means: by more than a tenth, and by more than the spread of either run's rounds.
fn verdict(before: &Measure, now: &Measure) -> Verdict {
    let slack = (before.median.abs() * NOISE).max(before.spread()).max(now.spread());
    let gain = match now.better {
        Better::Higher => now.median - before.median,
        Better::Lower => before.median - now.median,
    };
    if gain > slack {
        Verdict::Better
    } else if gain >= -slack {
        Verdict::Same
    } else if now.reference {
        Verdict::ReferenceWorse
    } else {
        Verdict::Regressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Kind, Measures};
    use crate::report::tests::with;

    fn of(kind: &Kind, values: &[f64]) -> Report {
        let mut measures = Measures::default();
        for value in values {
            measures.add(kind.clone(), *value);
        }
        with(measures)
    }

    #[track_caller]
    fn check(kind: &Kind, before: &[f64], now: &[f64], expected: Verdict) {
        let (before, now) = (of(kind, before), of(kind, now));
        let comparison = Comparison::of(&before, &now);
        assert_eq!(comparison.changes[0].verdict, expected, "{comparison:?}");
        assert_eq!(comparison.has_regressed(), expected == Verdict::Regressed);
    }

    #[test]
    fn worse_by_more_than_a_tenth_and_than_the_spread_is_a_regression() {
        let drain = Kind::higher("throughput", "drain", "jobs/s");
        check(&drain, &[100.0, 101.0, 102.0], &[80.0, 81.0, 82.0], Verdict::Regressed);
        check(&drain, &[100.0, 101.0, 102.0], &[120.0, 121.0, 122.0], Verdict::Better);
        check(&drain, &[100.0, 101.0, 102.0], &[92.0, 93.0, 94.0], Verdict::Same);
        check(&drain, &[70.0, 100.0, 102.0], &[80.0, 81.0, 82.0], Verdict::Same);
        check(&drain, &[100.0, 101.0, 102.0], &[60.0, 81.0, 102.0], Verdict::Same);
        let released = Kind::lower("notice", "released", "ms");
        check(&released, &[10.0], &[12.0], Verdict::Regressed);
        check(&released, &[10.0], &[8.0], Verdict::Better);
    }

    #[test]
    fn a_change_from_zero_is_a_regression() {
        let lost = Kind::lower("failure", "jobs lost", "jobs");
        check(&lost, &[0.0, 0.0], &[1.0, 1.0], Verdict::Regressed);
        check(&lost, &[0.0, 0.0], &[0.0, 0.0], Verdict::Same);
    }

    #[test]
    fn a_slower_peer_is_no_regression_of_ours() {
        let huey = Kind::higher("throughput", "drain: huey", "jobs/s").reference(true);
        check(&huey, &[100.0], &[10.0], Verdict::ReferenceWorse);
    }

    #[test]
    fn a_measure_that_is_gone_is_missing_unless_its_section_was_left_out() {
        let (drain, other) =
            (Kind::higher("throughput", "drain", "jobs/s"), Kind::higher("throughput", "enqueue", "jobs/s"));
        let (before, now) = (of(&drain, &[1.0]), of(&other, &[1.0]));
        let comparison = Comparison::of(&before, &now);
        assert_eq!((comparison.changes.len(), comparison.missing.len()), (0, 1));
        let elsewhere = of(&Kind::lower("depth", "drain", "µs"), &[1.0]);
        let comparison = Comparison::of(&before, &elsewhere);
        assert_eq!((comparison.changes.len(), comparison.missing.len()), (0, 0));
    }
}
