//! The distributions of cost and of finish as curves: the share of runs up to each value.

use maud::{Markup, html};

use super::answer::{Answer, Figures, Table};
use super::text::{percent, span, usd};

/// The drawing, in its own units.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 200.0;

/// The most points of a curve.
const POINTS_MAX: usize = 200;

/// How much larger than in the least strategy a strategy's median may be to be drawn. Beyond, the others would be lines
/// without width.
const DRAWN_MAX: f64 = 1.4;

/// What a curve is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Cost,
    Finish,
}

/// A curve: the values of a strategy's runs, rising, of so many runs in all.
#[derive(Debug)]
struct Curve<'a> {
    name: &'a str,
    values: &'a [u64],
    runs: u32,
}

/// The values from the left edge to the right one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Measure {
    /// The title of its drawings.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Cost => "Cost of the batch, in USD",
            Self::Finish => "Time until the last job is done",
        }
    }

    fn values(self, figures: &Figures) -> &[u64] {
        match self {
            Self::Cost => &figures.costs_micros,
            Self::Finish => &figures.finishes_ms,
        }
    }

    fn shown(self, value: u64) -> String {
        match self {
            Self::Cost => usd(value),
            Self::Finish => span(value),
        }
    }

    /// The budget or the deadline.
    fn limit(self, answer: &Answer) -> Option<u64> {
        match self {
            Self::Cost => answer.budget_usd.map(|cost| u64::try_from(cost.micros()).unwrap_or(u64::MAX)),
            Self::Finish => answer.deadline_ms,
        }
    }
}

/// A drawing for each world of a table, all with the same scale.
pub(super) fn drawings(answer: &Answer, table: &Table, measure: Measure) -> Markup {
    let worlds: Vec<Vec<Curve<'_>>> = (0..table.worlds.len()).map(|at| curves(table, at, measure)).collect();
    let (drawn, beyond) = drawn(&worlds);
    let limit = measure.limit(answer).map(as_f64);
    let Some(range) = range(&worlds, &drawn, limit) else { return html! {} };
    html! {
        figure.curves {
            figcaption { (measure.title()) }
            div.pair {
                @for (curves, of) in worlds.iter().zip(&table.worlds) {
                    div {
                        p.world { (of.name) }
                        (drawing(curves, &drawn, range, limit, measure))
                    }
                }
            }
            @if !beyond.is_empty() { p.beyond { "Far above, and not drawn: " (beyond.join(", ")) "." } }
        }
    }
}

fn curves(table: &Table, world: usize, measure: Measure) -> Vec<Curve<'_>> {
    let rows = table.strategies.iter().filter_map(|row| Some((row, row.worlds.get(world)?)));
    rows.map(|(row, figures)| Curve { name: &row.name, values: measure.values(figures), runs: figures.runs })
        .collect()
}

/// The names of the strategies that are drawn, and of those that are too far away.
fn drawn<'a>(worlds: &[Vec<Curve<'a>>]) -> (Vec<&'a str>, Vec<&'a str>) {
    let median = |curve: &Curve<'_>| curve.values.get(curve.values.len() / 2).copied().map(as_f64);
    let medians = || worlds.iter().flatten().filter_map(median);
    let least = medians().fold(f64::MAX, f64::min);
    let is_near = |curve: &Curve<'_>| median(curve).is_some_and(|median| median <= least * DRAWN_MAX);
    let names = worlds.first().map(Vec::as_slice).unwrap_or_default();
    names
        .iter()
        .map(|curve| curve.name)
        .partition(|name| worlds.iter().flatten().any(|curve| curve.name == *name && is_near(curve)))
}

/// The least and the largest drawn value, and the limit if it is near.
fn range(worlds: &[Vec<Curve<'_>>], drawn: &[&str], limit: Option<f64>) -> Option<Range> {
    let values = || {
        let drawn = worlds.iter().flatten().filter(|curve| drawn.contains(&curve.name));
        drawn.flat_map(|curve| curve.values).map(|value| as_f64(*value))
    };
    let (low, mut high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    if let Some(limit) = limit.filter(|limit| *limit > high && *limit < high + (high - low) * 2.0) {
        high = limit;
    }
    let margin = ((high - low) * 0.04).max(low * 0.002).max(1.0);
    (low <= high).then_some(Range { low: (low - margin).max(0.0), high: high + margin })
}

fn drawing(
    curves: &[Curve<'_>],
    drawn: &[&str],
    range: Range,
    limit: Option<f64>,
    measure: Measure,
) -> Markup {
    let x = |value: f64| (value - range.low) / (range.high - range.low) * WIDTH;
    let y = |share: f64| (1.0 - share) * HEIGHT;
    let is_inside = |value: &f64| (range.low..=range.high).contains(value);
    html! {
        svg.curve viewBox="-48 -14 500 246" role="img" aria-label={ (measure.title()) ": the share of runs up to a value" } {
            @for share in [0.0, 0.5, 1.0] {
                line.grid x1="0" x2=(WIDTH) y1=(y(share)) y2=(y(share)) {}
                text.tick x="-6" y=(y(share) + 4.0) text-anchor="end" { (percent(share)) }
            }
            @for part in 0..=2_u8 {
                @let value = range.low + (range.high - range.low) * f64::from(part) / 2.0;
                @let anchor = ["start", "middle", "end"][usize::from(part)];
                text.tick x=(x(value)) y=(HEIGHT + 22.0) text-anchor=(anchor) { (measure.shown(whole(value))) }
            }
            @if let Some(limit) = limit.filter(is_inside) {
                line.limit x1=(x(limit)) x2=(x(limit)) y1="0" y2=(HEIGHT) {}
                text.tick x=(x(limit) - 4.0) y="-3" text-anchor="end" { "limit" }
            }
            @for curve in curves.iter().filter(|curve| drawn.contains(&curve.name)) {
                polyline class={ "line " (class(curve.name)) } points=(points(curve, x, y)) {
                    title { (curve.name) }
                }
            }
        }
    }
}

/// The corners of the steps. A curve ends below 100 % if not all runs were done.
fn points(curve: &Curve<'_>, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let count = curve.values.len();
    let step = count.div_ceil(POINTS_MAX).max(1);
    let runs = f64::from(curve.runs.max(1));
    let (mut corners, mut before) = (Vec::new(), 0.0);
    for rank in (step..=count).step_by(step).chain((!count.is_multiple_of(step)).then_some(count)) {
        let (at, share) = (x(as_f64(curve.values[rank - 1])), as_f64(rank as u64) / runs);
        corners.push(format!("{at:.1},{:.1} {at:.1},{:.1}", y(before), y(share)));
        before = share;
    }
    corners.push(format!("{WIDTH:.1},{:.1}", y(before)));
    corners.join(" ")
}

/// The class of a strategy's colour.
pub(super) fn class(name: &str) -> String {
    let words: Vec<_> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    format!("s-{}", words.join("-"))
}

#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label; a float saturates")]
const fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve<'a>(name: &'a str, values: &'a [u64], runs: u32) -> Curve<'a> {
        Curve { name, values, runs }
    }

    #[test]
    fn a_curve_rises_by_a_run_at_each_value_and_ends_below_all_if_some_are_never_done() {
        let points = |runs| points(&curve("a", &[10, 20], runs), |x| x, |y| y);
        assert_eq!(points(2), "10.0,0.0 10.0,0.5 20.0,0.5 20.0,1.0 440.0,1.0");
        assert!(points(4).ends_with("440.0,0.5"));
        let many: Vec<u64> = (1..=1_001).collect();
        let long = super::points(&curve("a", &many, 1_001), |x| x, |y| y);
        assert!(long.ends_with("440.0,1.0") && long.len() < 10_000, "{}", long.len());
    }

    #[test]
    fn what_is_far_above_the_least_is_named_and_not_drawn() {
        let worlds = [vec![curve("a", &[100, 110], 2), curve("b", &[141, 200], 2), curve("c", &[120], 2)]];
        let (near, beyond) = drawn(&worlds);
        assert_eq!((near.clone(), beyond), (vec!["a", "c"], vec!["b"]));
        let range = |limit| range(&worlds, &near, limit).map(|range| range.high.round());
        assert_eq!(range(None), Some(121.0));
        assert_eq!(range(Some(150.0)), Some(152.0), "a limit that is near is inside");
        assert_eq!(range(Some(900.0)), Some(121.0));
    }

    #[test]
    fn a_table_without_values_has_no_range() {
        assert_eq!(range(&[vec![curve("a", &[], 2)]], &["a"], None), None);
        assert_eq!(class("balanced, base only"), "s-balanced-base-only");
    }
}
