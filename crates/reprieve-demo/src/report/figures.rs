//! The figures that people look at first.

use maud::{Markup, html};

use super::frames;
use super::words::{count, share, span};
use crate::story::Story;
use crate::summary::Summary;

/// What a drain promises for 99 in 100, and always.
pub(super) const PROMISE_MS: u64 = 1_000;
pub(super) const LIMIT_MS: u64 = 10_000;

/// One of them.
struct Figure {
    what: &'static str,
    number: String,
    note: String,
    good: bool,
}

pub(super) fn section(story: &Story, summary: &Summary) -> Markup {
    let handed_back = summary.notice_to_released_ms.map(|spread| handed_back(spread.max));
    let went_on = summary.recovered_after_kill_ms.map(|longest| Figure {
        what: "From kill to going on",
        number: span(longest.max),
        note: match story.lease_ms() {
            None => "at most, until another VM did".to_owned(),
            Some(lease_ms) => format!("at most; leases of {} had to end first", span(lease_ms)),
        },
        good: true,
    });
    let figures = [Some(right(story)), handed_back, went_on, Some(again(summary))];
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

fn right(story: &Story) -> Figure {
    let right = story.jobs.iter().filter(|job| frames::faults(job).is_empty()).count();
    let good = right == story.jobs.len();
    Figure {
        what: "Frames right",
        number: format!("{right} of {}", story.jobs.len()),
        note: if good { "as without interruptions" } else { "the others are marked below" }.to_owned(),
        good,
    }
}

fn handed_back(slowest_ms: u64) -> Figure {
    Figure {
        what: "From notice to handed back",
        number: span(slowest_ms),
        note: format!("at most; {} is promised", span(PROMISE_MS)),
        good: slowest_ms < PROMISE_MS,
    }
}

fn again(summary: &Summary) -> Figure {
    Figure {
        what: "Work done again",
        number: count(summary.steps_redone, "step"),
        note: format!("of {}: {}", summary.steps_total, share(summary.steps_redone, summary.steps_total)),
        good: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn a_figure_that_breaks_a_promise_is_marked() {
        let (story, mut summary) = made_up::good();
        let marked = |summary: &Summary| section(&story, summary).into_string().matches("figure bad").count();
        assert_eq!(marked(&summary), 0);
        let spread = summary.notice_to_released_ms.as_mut().expect("an eviction");
        spread.max = PROMISE_MS;
        assert_eq!(marked(&summary), 1);
    }

    #[test]
    fn without_evictions_and_kills_nothing_is_said_of_them() {
        let (story, mut summary) = made_up::good();
        summary.notice_to_released_ms = None;
        summary.recovered_after_kill_ms = None;
        assert_eq!(section(&story, &summary).into_string().matches("<dt>").count(), 2);
    }
}
