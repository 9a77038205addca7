//! The main figures, and each drain beside its limits.

use maud::{Markup, html};

use super::frames;
use crate::format::{count, share, span};
use crate::history::{Eviction, History, VmEnd, VmHistory};
use crate::summary::Summary;

/// The limits for 99 of 100 drains, and for every drain.
pub(super) const PROMISE_MS: u64 = 1_000;
pub(super) const LIMIT_MS: u64 = 10_000;

/// One of them.
struct Figure {
    what: &'static str,
    number: String,
    note: String,
    good: bool,
}

pub(super) fn section(history: &History, summary: &Summary) -> Markup {
    let released = summary.notice_to_released_ms.map(|spread| released(spread.max));
    let went_on = summary.recovered_after_kill_ms.map(|longest| Figure {
        what: "From kill to resumed",
        number: span(longest.max),
        note: match history.lease_ms() {
            None => "at most, until another VM resumed".to_owned(),
            Some(lease_ms) => format!("at most; leases of {} had to end first", span(lease_ms)),
        },
        good: true,
    });
    let figures = [Some(right(history)), released, went_on, Some(again(summary))];
    html! {
        dl.figures {
            @for figure in figures.iter().flatten() {
                div.figure.bad[!figure.good] {
                    dt { (figure.what) }
                    dd.big { (figure.number) }
                    dd { (figure.note) }
                }
            }
        }
    }
}

fn right(history: &History) -> Figure {
    let right = history.jobs.iter().filter(|job| frames::faults(job).is_empty()).count();
    let good = right == history.jobs.len();
    Figure {
        what: "Frames correct",
        number: format!("{right} of {}", history.jobs.len()),
        note: if good { "equal to an uninterrupted render" } else { "the others are marked below" }
            .to_owned(),
        good,
    }
}

fn released(slowest_ms: u64) -> Figure {
    Figure {
        what: "From notice to released",
        number: span(slowest_ms),
        note: format!("at most; the limit is {}", span(PROMISE_MS)),
        good: slowest_ms < PROMISE_MS,
    }
}

fn again(summary: &Summary) -> Figure {
    Figure {
        what: "Work repeated",
        number: count(summary.steps_redone, "step"),
        note: format!("of {}: {}", summary.steps_total, share(summary.steps_redone, summary.steps_total)),
        good: true,
    }
}

/// Where the axis begins. A drain takes tens of milliseconds and the promise is a second, so each
/// step is tenfold.
const FIRST_MS: u64 = 1;

pub(super) fn drains(history: &History) -> Markup {
    let evictions: Vec<_> = history.vms.iter().filter_map(evicted).collect();
    let axis = Axis::to(evictions.iter().map(|(_, eviction)| eviction.released_after_ms).max().unwrap_or(0));
    html! {
        section id="plot" aria-labelledby="plot-title" {
            h2 id="plot-title" { "From notice to released" }
            @if evictions.is_empty() {
                p { "No VM that held a frame got a notice in this run." }
            } @else {
                p {
                    "Each row is one eviction. The axis is logarithmic: each line is ten times the one before."
                }
                (legend())
                (strip(&evictions, axis))
            }
        }
    }
}

/// A VM's name and eviction, if it held jobs.
fn evicted(vm: &VmHistory) -> Option<(&str, &Eviction)> {
    match &vm.end {
        VmEnd::Evicted(eviction) if eviction.held > 0 => Some((&vm.name, eviction)),
        VmEnd::Evicted(_) | VmEnd::Killed(_) | VmEnd::Finished => None,
    }
}

fn legend() -> Markup {
    html! {
        ul.legend aria-label="Legend" {
            li { i.dot {} " from reading the notice until all jobs were released" }
            li { i.ring {} " from the announcement; a VM polls once a second" }
            li { i.rule.promise {} " " (span(PROMISE_MS)) ", the limit for 99 of 100 drains" }
            li { i.rule.limit {} " " (span(LIMIT_MS)) ", the limit for every drain" }
        }
    }
}

fn strip(evictions: &[(&str, &Eviction)], axis: Axis) -> Markup {
    html! {
        div.plot {
            div.axis aria-hidden="true" {
                div.ticks { @for tick in axis.ticks() { span style={ "left:" (axis.at(tick)) } { (span(tick)) } } }
            }
            ul {
                @for (vm, eviction) in evictions {
                    li.slow[eviction.released_after_ms >= PROMISE_MS] {
                        span.name { (vm) " " b { (span(eviction.released_after_ms)) } }
                        (dots(eviction, axis))
                    }
                }
            }
        }
    }
}

fn dots(eviction: &Eviction, axis: Axis) -> Markup {
    let after = eviction.released_after_ms;
    let announced = eviction.announced_to_released_ms();
    html! {
        div.track aria-hidden="true" {
            @for tick in axis.ticks() { i.grid style={ "left:" (axis.at(tick)) } {} }
            i.grid.promise style={ "left:" (axis.at(PROMISE_MS)) } {}
            i.grid.limit style={ "left:" (axis.at(LIMIT_MS)) } {}
            i.ring style={ "left:" (axis.at(announced)) } title={ (span(announced)) " from the announcement" } {}
            i.dot style={ "left:" (axis.at(after)) } title={ (span(after)) " from the notice" } {}
        }
    }
}

/// A logarithmic axis, in milliseconds.
#[derive(Clone, Copy)]
struct Axis {
    last_ms: u64,
}

impl Axis {
    /// One that reaches the limit at least, and as far as the slowest.
    fn to(slowest_ms: u64) -> Self {
        let mut last_ms = LIMIT_MS;
        while last_ms < slowest_ms {
            last_ms = last_ms.saturating_mul(10);
        }
        Self { last_ms }
    }

    fn ticks(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(FIRST_MS), |tick| tick.checked_mul(10))
            .take_while(move |&tick| tick <= self.last_ms)
    }

    /// The position of a duration, clamped to the axis.
    fn at(self, ms: u64) -> String {
        let log = |ms: u64| f64::from(u32::try_from(ms.max(FIRST_MS)).unwrap_or(u32::MAX)).log10();
        format!("{:.2}%", (log(ms) / log(self.last_ms) * 100.0).min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_figure_that_breaks_a_promise_is_marked() {
        let (history, mut summary) = fixtures::good();
        let marked =
            |summary: &Summary| section(&history, summary).into_string().matches("figure bad").count();
        assert_eq!(marked(&summary), 0);
        let spread = summary.notice_to_released_ms.as_mut().expect("an eviction");
        spread.max = PROMISE_MS;
        assert_eq!(marked(&summary), 1);
    }

    #[test]
    fn without_evictions_and_kills_their_figures_are_left_out() {
        let (history, mut summary) = fixtures::good();
        summary.notice_to_released_ms = None;
        summary.recovered_after_kill_ms = None;
        assert_eq!(section(&history, &summary).into_string().matches("<dt>").count(), 2);
    }

    #[test]
    fn tens_of_milliseconds_are_distinguishable_beside_a_second() {
        let axis = Axis::to(31);
        assert_eq!(axis.ticks().map(span).collect::<Vec<_>>().join(" "), "1 ms 10 ms 100 ms 1 s 10 s");
        assert_eq!(
            [0, 1, 14, 31, 1_000, 10_000, 99_999].map(|ms| axis.at(ms)).join(" "),
            "0.00% 0.00% 28.65% 37.28% 75.00% 100.00% 100.00%"
        );
    }

    #[test]
    fn the_axis_reaches_whatever_is_slower_than_promised() {
        let axis = Axis::to(29_000);
        assert_eq!(axis.ticks().last(), Some(100_000));
        assert_eq!(axis.at(10_000), "80.00%");
    }
}
