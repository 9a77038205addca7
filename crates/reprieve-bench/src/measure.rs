//! A measure: the values of its rounds, their median, and whether it meets its goal.

use serde::{Deserialize, Serialize};

/// A value that was measured in several rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// The section of the measure.
    pub(crate) section: String,
    /// The name, unique in its section.
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    /// Whether it belongs to a peer: then it is never a regression.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reference: bool,
    /// One value per round.
    pub(crate) values: Vec<f64>,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
}

/// The direction that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// The target of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    #[serde(flatten)]
    pub(crate) bound: Bound,
    /// The figure that must meet it.
    pub(crate) of: Of,
    pub(crate) met: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure that represents all values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Of {
    Median,
    P99,
    /// The worst value.
    Worst,
}

/// The description of a value: all of a [`Measure`] except the values.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    section: &'static str,
    name: String,
    unit: &'static str,
    better: Better,
    reference: bool,
    goal: Option<(Bound, Of)>,
}

impl Kind {
    pub(crate) fn higher(section: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        Self { section, name: name.into(), unit, better: Better::Higher, reference: false, goal: None }
    }

    pub(crate) fn lower(section: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        Self { better: Better::Lower, ..Self::higher(section, name, unit) }
    }

    /// Sets the goal: at least `value` where higher is better, at most `value` where lower is.
    pub(crate) fn goal(mut self, of: Of, value: f64) -> Self {
        let bound = match self.better {
            Better::Higher => Bound::AtLeast(value),
            Better::Lower => Bound::AtMost(value),
        };
        self.goal = Some((bound, of));
        self
    }

    /// Marks the measure as a peer's.
    pub(crate) fn reference(mut self, reference: bool) -> Self {
        self.reference = reference;
        self
    }
}

/// All measures of a run, in the order of their first values.
#[derive(Debug, Default)]
pub(crate) struct Measures(Vec<Measure>);

impl Measures {
    /// Adds the value of another round.
    pub(crate) fn add(&mut self, kind: Kind, value: f64) {
        let same = |measure: &&mut Measure| measure.section == kind.section && measure.name == kind.name;
        if let Some(measure) = self.0.iter_mut().find(same) {
            measure.values.push(value);
            measure.sum_up();
            return;
        }
        let mut measure = Measure {
            section: kind.section.to_owned(),
            name: kind.name,
            unit: kind.unit.to_owned(),
            better: kind.better,
            reference: kind.reference,
            values: vec![value],
            median: value,
            min: value,
            max: value,
            goal: kind.goal.map(|(bound, of)| Goal { bound, of, met: false }),
        };
        measure.sum_up();
        self.0.push(measure);
    }

    pub(crate) fn into_vec(self) -> Vec<Measure> {
        self.0
    }
}

impl Measure {
    /// Returns the spread of the values.
    pub(crate) fn spread(&self) -> f64 {
        self.max - self.min
    }

    fn sum_up(&mut self) {
        self.median = median(&self.values);
        self.min = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        self.max = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if let Some(mut goal) = self.goal {
            let figure = match (goal.of, self.better) {
                (Of::Median, _) => self.median,
                (Of::P99, Better::Lower) => quantile(&self.values, 0.99),
                (Of::P99, Better::Higher) => quantile(&self.values, 0.01),
                (Of::Worst, Better::Lower) => self.max,
                (Of::Worst, Better::Higher) => self.min,
            };
            goal.met = match goal.bound {
                Bound::AtLeast(least) => figure >= least,
                Bound::AtMost(most) => figure <= most,
            };
            self.goal = Some(goal);
        }
    }
}

/// Returns the middle value, or the mean of the two in the middle; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Returns the least value that a share of `at` of all values does not exceed; NaN without values.
/// With fewer than a hundred values, the 0.99 quantile is the greatest.
pub(crate) fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a rank"
    )]
    let rank = (sorted.len() as f64 * at).ceil().max(1.0) as usize;
    sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 3.0, 2.0]), 2.5));
        assert!(close(median(&[7.0]), 7.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!(close(quantile(&hundred, 0.5), 50.0));
        assert!(close(quantile(&hundred, 0.99), 99.0));
        assert!(close(quantile(&hundred, 1.0), 100.0));
        assert!(close(quantile(&[5.0, 1.0, 3.0], 0.99), 5.0));
        assert!(close(quantile(&[5.0, 1.0, 3.0], 0.01), 1.0));
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn rounds_of_one_measure_come_together_and_sections_stay_apart() {
        let mut measures = Measures::default();
        for value in [2.0, 9.0, 4.0] {
            measures.add(Kind::lower("notice", "released", "ms"), value);
        }
        measures.add(Kind::lower("recovery", "released", "ms"), 1.0);
        let all = measures.into_vec();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].values, [2.0, 9.0, 4.0]);
        assert!(close(all[0].median, 4.0) && close(all[0].min, 2.0) && close(all[0].max, 9.0));
        assert!(close(all[0].spread(), 7.0));
    }

    #[track_caller]
    fn check(kind: &Kind, values: &[f64], met: bool) {
        let mut measures = Measures::default();
        for value in values {
            measures.add(kind.clone(), *value);
        }
        let goal = measures.into_vec().remove(0).goal.expect("a goal");
        assert_eq!(goal.met, met, "{kind:?} {values:?}");
    }

    #[test]
    fn a_goal_is_checked_against_its_own_figure() {
        let fast = || Kind::higher("throughput", "ratio", "×");
        check(&fast().goal(Of::Median, 3.0), &[1.0, 3.0, 9.0], true);
        check(&fast().goal(Of::Median, 3.0), &[1.0, 2.9, 9.0], false);
        check(&fast().goal(Of::Worst, 3.0), &[1.0, 3.0, 9.0], false);
        let short = || Kind::lower("notice", "released", "ms");
        check(&short().goal(Of::Worst, 10.0), &[1.0, 10.0], true);
        check(&short().goal(Of::Worst, 10.0), &[1.0, 10.1], false);
        check(&short().goal(Of::P99, 10.0), &[1.0, 1.0, 11.0], false);
        check(&short().goal(Of::Median, 10.0), &[1.0, 1.0, 11.0], true);
    }
}
