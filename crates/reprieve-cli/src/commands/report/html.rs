//! The report as one HTML page, in the frame of the demo's report.

use maud::{Markup, html};
use reprieve_core::ledger::{Share, Spread, Summary};
use reprieve_demo::page::document;

use super::money::{self, Money};
use super::page::{an_hour, zones};
use super::{
    EMPTY, FAILURES_SHOWN, known, more_failures, odd, only_older, percent, rate, seen, span, survival, time,
};
use crate::format::{count, plain};

/// What the page has besides the frame's styles.
const STYLE: &str = include_str!("style.css");

/// The curve's drawing, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;

/// The page. Whatever comes from the ledger is escaped.
pub(super) fn page(summary: &Summary, money: Option<&Money>) -> String {
    let body = html! {
        main {
            (header(summary))
            @if !summary.is_empty() {
                (figures(summary))
                (money::section(money))
                (curve(summary))
                (by_hour(summary))
                (machines(summary))
                (interruptions(summary))
                (failures(summary))
            }
        }
    };
    document("Reprieve report", STYLE, &body)
}

fn header(summary: &Summary) -> Markup {
    html! {
        header.verdict {
            p.eyebrow { "Reprieve report" }
            h1 {
                @if summary.is_empty() { "Nothing is written down yet." } @else {
                    (count(summary.evictions, "eviction")) " of " (count(summary.machines, "machine")) ", "
                    (span(summary.work().0)) " of work lost."
                }
            }
            p {
                (time(summary.since_unix_ms)) " to " (time(summary.until_unix_ms)) " UTC. "
                @if summary.is_empty() {
                    "In " (EMPTY) "."
                } @else {
                    "Machines were seen for " (seen(summary.seen_ms)) " in all."
                }
            }
            @if let Some(odd) = odd(summary.odd) { p { (odd) } }
        }
    }
}

fn figures(summary: &Summary) -> Markup {
    let (lost, kept) = summary.work();
    let lead = |spread: Spread, of: fn(Spread) -> u64| {
        if spread.count == 0 { "-".to_owned() } else { span(of(spread)) }
    };
    let per_machine = rate(summary.evictions, summary.seen_ms);
    let rows = [
        ("Evictions in 100 machine hours", per_machine, format!("{} an hour in the fleet", an_hour(summary))),
        (
            "Without notice",
            summary.unannounced.to_string(),
            format!("of {}", count(summary.evictions, "eviction")),
        ),
        (
            "Lead time, median",
            lead(summary.lead_ms, |it| it.median),
            format!(
                "p10 {}, shortest {}",
                lead(summary.lead_ms, |it| it.p10),
                lead(summary.lead_ms, |it| it.min)
            ),
        ),
        (
            "From notice to released",
            lead(summary.released_ms, |it| it.max),
            format!("at most; median {}", lead(summary.released_ms, |it| it.median)),
        ),
        (
            "Evicted together",
            summary.evicted_together.to_string(),
            "within five minutes of another".to_owned(),
        ),
        ("Work lost", span(lost), format!("{} kept", span(kept))),
    ];
    html! {
        dl.figures {
            @for (what, number, note) in rows {
                div.figure { dt { (what) } dd.big { (number) } dd { (note) } }
            }
        }
    }
}

fn curve(summary: &Summary) -> Markup {
    let rows = survival(summary);
    html! {
        section id="survival" aria-labelledby="survival-title" {
            h2 id="survival-title" { "How long machines live" }
            @if rows.is_empty() { p { "No machine was evicted in this time." } } @else {
                p {
                    "The share of machines that live for longer than an age (Kaplan and Meier). Machines that still "
                    "live count as long as they were seen. The true share is in the band with 95 %: it is drawn from "
                    "the moments of eviction, because machines are evicted together."
                    @if let Some(older) = only_older(summary) { " " (older) }
                }
                (drawing(summary))
                table {
                    thead { tr { th { "Age" } th { "Live longer" } th { "Band of 95 %" } } }
                    tbody {
                        @for row in rows {
                            tr { @for cell in row { td.number { (cell) } } }
                        }
                    }
                }
            }
        }
    }
}

/// The curve and its band as steps, from the youngest age that was seen to the last eviction. What is not known before the
/// first one is drawn as wide as there.
#[expect(clippy::cast_precision_loss, reason = "ages on a screen")]
fn drawing(summary: &Summary) -> Markup {
    let last = summary.survival.last().map_or(1, |point| point.age_ms.max(1)) as f64;
    let x = |age_ms: i64| age_ms as f64 / last * WIDTH;
    let y = |share: f64| (1.0 - share) * HEIGHT;
    let steps = |of: fn(&reprieve_core::ledger::Point) -> f64, first: f64| {
        let (mut before, mut corners) = (first, vec![(x(summary.survival_from_ms), y(first))]);
        for point in &summary.survival {
            corners.push((x(point.age_ms), y(before)));
            before = of(point);
            corners.push((x(point.age_ms), y(before)));
        }
        corners
    };
    let shown = |corners: &[(f64, f64)]| {
        let shown: Vec<_> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        shown.join(" ")
    };
    let low = summary.survival.first().map_or(1.0, |point| point.low);
    let mut band = steps(|point| point.high, 1.0);
    band.extend(steps(|point| point.low, low).into_iter().rev());
    html! {
        svg.curve viewBox="-58 -12 802 310" role="img" aria-label="The share of machines alive, by age" {
            @for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
                line.grid x1="0" x2=(WIDTH) y1=(y(share)) y2=(y(share)) {}
                text.tick x="-8" y=(y(share) + 4.0) text-anchor="end" { (percent(share)) }
            }
            @for part in 0..=4_i64 {
                @let age = last * part as f64 / 4.0;
                // The last one would be cut off at the edge.
                @let anchor = if part == 4 { "end" } else { "middle" };
                text.tick x=(age / last * WIDTH) y=(HEIGHT + 22.0) text-anchor=(anchor) { (seen_at(age)) }
            }
            polygon.band points=(shown(&band)) {}
            polyline.alive points=(shown(&steps(|point| point.alive, 1.0))) {}
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an age on an axis")]
fn seen_at(age_ms: f64) -> String {
    seen(age_ms as i64)
}

fn by_hour(summary: &Summary) -> Markup {
    let most = summary.by_hour.iter().map(|hour| hour.evictions).max().unwrap_or(0).max(1);
    html! {
        section id="hours" aria-labelledby="hours-title" {
            h2 id="hours-title" { "By the hour of the day, in UTC" }
            div.hours {
                @for hour in &summary.by_hour {
                    div.hour title={ (hour.name) ":00: " (count(hour.evictions, "eviction")) ", " (rate(hour.evictions, hour.seen_ms)) " for 100 machine hours" } {
                        span.count { @if hour.evictions > 0 { (hour.evictions) } }
                        span.column style={ "height:" (hour.evictions * 112 / most) "px" } {}
                        span.name { (hour.name) }
                    }
                }
            }
        }
    }
}

fn machines(summary: &Summary) -> Markup {
    html! {
        section id="machines" aria-labelledby="machines-title" {
            h2 id="machines-title" { "Where" }
            (shares("Zone", &summary.by_zone))
            (shares("Size", &summary.by_size))
            @if !summary.together.is_empty() {
                table {
                    caption { "Evicted together" }
                    thead { tr { th { "At (UTC)" } th { "Machines" } th { "Within" } th { "Zones" } } }
                    tbody {
                        @for it in &summary.together {
                            tr {
                                td.number { (time(it.at_unix_ms)) } td.number { (it.machines) }
                                td.number { (seen(it.lasted_ms)) } td { (plain(&zones(it))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn shares(heading: &str, shares: &[Share]) -> Markup {
    html! {
        table {
            thead { tr { th { (heading) } th { "Evictions" } th { "Seen for" } th { "In 100 machine hours" } } }
            tbody {
                @for it in shares {
                    tr {
                        td { (plain(known(&it.name))) } td.number { (it.evictions) } td.number { (seen(it.seen_ms)) }
                        td.number { (rate(it.evictions, it.seen_ms)) }
                    }
                }
            }
        }
    }
}

fn interruptions(summary: &Summary) -> Markup {
    html! {
        section id="interruptions" aria-labelledby="interruptions-title" {
            h2 id="interruptions-title" { "What workers went through" }
            table {
                thead { tr { th { "Interruption" } th { "Workers" } th { "Jobs held" } th { "Work lost" } th { "Work kept" } } }
                tbody {
                    @for it in &summary.interruptions {
                        tr {
                            td { (plain(&it.kind)) } td.number { (it.count) } td.number { (it.held) }
                            td.number { (span(it.work_lost_ms)) } td.number { (span(it.work_kept_ms)) }
                        }
                    }
                }
            }
            @if !summary.jobs.is_empty() {
                table {
                    caption { "Jobs that were hit most" }
                    thead { tr { th { "Job" } th { "Interrupted" } th { "Failed" } } }
                    tbody {
                        @for it in &summary.jobs {
                            tr { td { code { (it.job) } } td.number { (it.interruptions) } td.number { (it.failures) } }
                        }
                    }
                }
            }
            @if !summary.healings.is_empty() {
                table {
                    caption { "Healing" }
                    thead { tr { th { "Layer" } th { "Fault" } th { "Action" } th { "Outcome" } th { "Times" } } }
                    tbody {
                        @for it in &summary.healings {
                            tr {
                                @for text in [&it.layer, &it.fault, &it.action, &it.outcome] { td { (plain(text)) } }
                                td.number { (it.count) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn failures(summary: &Summary) -> Markup {
    html! {
        section id="failures" aria-labelledby="failures-title" {
            h2 id="failures-title" { "Failures by reason" }
            @if summary.failures.is_empty() { p { "No delivery failed in this time." } } @else {
                div.scroll {
                    table {
                        thead {
                            tr {
                                th { "Failed" } th { "Poisoned" } th { "Kind" } th { "Reason" } th { "First" } th { "Last" }
                                th { "Example" }
                            }
                        }
                        tbody {
                            @for it in summary.failures.iter().take(FAILURES_SHOWN) {
                                tr {
                                    td.number { (it.count) } td.number { (it.poisoned) } td { (plain(&it.kind)) }
                                    td { (plain(&it.reason)) } td.number { (time(it.first_unix_ms)) }
                                    td.number { (time(it.last_unix_ms)) } td { code { (it.example) } }
                                }
                            }
                        }
                    }
                }
                @if let Some(more) = more_failures(summary) { p { (more) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nothing, week};
    use super::*;

    #[test]
    fn a_page_has_all_its_parts_and_loads_nothing() {
        let page = page(&week(), None);
        for part in [
            "<title>",
            "<h1>",
            "id=\"money\"",
            "id=\"survival\"",
            "id=\"hours\"",
            "id=\"machines\"",
            "id=\"failures\"",
            "<polygon",
        ] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        assert_eq!(page.matches("class=\"hour\"").count(), 24);
        for outside in ["http://", "https://", "src=\"/", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn text_of_the_ledger_cannot_become_markup() {
        let mut summary = week();
        let evil = "<script>\"'&";
        evil.clone_into(&mut summary.failures[0].reason);
        evil.clone_into(&mut summary.by_zone[0].name);
        evil.clone_into(&mut summary.interruptions[0].kind);
        summary.by_size[0].name = "\u{1b}[31m\u{202e}".to_owned();
        let page = page(&summary, None);
        assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;&quot;'&amp;"), "{page}");
    }

    #[test]
    fn an_empty_ledger_is_a_page_that_says_so() {
        let page = page(&nothing(), None);
        assert!(
            page.contains("Nothing is written down yet") && page.contains("when a delivery fails"),
            "{page}"
        );
    }
}
