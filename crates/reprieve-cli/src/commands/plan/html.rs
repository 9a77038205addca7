//! The plan as one HTML page, in the frame of the demo's report.

use maud::{Markup, html};
use reprieve_demo::page::document;

use super::answer::{Answer, Assumed, Policy, Table};
use super::curves::{Measure, class, drawings};
use super::text::{
    chance_heading, deployment, facts, figures, finish, headline, idle_sentence, interval, mean, percent,
    quota, quota_sentence, span, title, undeployed, usd, usd_mean, world,
};
use crate::format::plain;

/// What the page has besides the frame's styles.
const STYLE: &str = include_str!("style.css");

/// The page. Whatever comes from outside is escaped.
pub(super) fn page(answer: &Answer) -> String {
    let body = html! {
        main {
            (header(answer))
            section id="assumptions" aria-labelledby="assumptions-title" {
                h2 id="assumptions-title" { "What this is based on" }
                (assumptions(&answer.assumptions))
            }
            @for (number, table) in answer.tables.iter().enumerate() { (section(answer, table, number)) }
            @for problem in &answer.problems { p.problem { (plain(&problem.problem)) } }
        }
    };
    document("Reprieve plan", STYLE, &body)
}

fn header(answer: &Answer) -> Markup {
    let best = answer.tables.first();
    let advised = best.and_then(|table| Some((table, table.advised()?)));
    let is_bad = best.is_none_or(|table| table.advice.verdict != "spot");
    html! {
        header.verdict.bad[is_bad] {
            p.eyebrow { "Reprieve plan" }
            h1 {
                @match advised {
                    Some((table, row)) => {
                        @if table.advice.verdict == "no-spot" { "Don't use Spot for this." } @else {
                            "Take " (row.name)
                            @if answer.tables.len() > 1 { " on " (title(table)) }
                            "."
                        }
                    }
                    None => "No strategy stays within the limits.",
                }
            }
            @if let Some(table) = best { p { (plain(&table.advice.reason)) "." } }
            p { (headline(answer)) "." }
        }
    }
}

fn assumptions(assumptions: &[Assumed]) -> Markup {
    html! {
        div.scroll {
            table.assumptions {
                thead { tr { th { "Assumption" } th { "Value" } th { "Source" } } }
                tbody {
                    @for it in assumptions {
                        tr {
                            td { (it.subject) }
                            td { (plain(&it.value)) }
                            td {
                                span.kind { (it.kind) }
                                @if it.source.starts_with("https://") {
                                    " " a href=(it.source) { (it.source.trim_start_matches("https://")) }
                                } @else if !it.source.is_empty() {
                                    ": " (plain(&it.source))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn section(answer: &Answer, table: &Table, number: usize) -> Markup {
    let id = format!("table-{number}");
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title(table)) }
            p { (plain(&facts(answer, table))) "." }
            @if !table.assumptions.is_empty() {
                details { summary { "Assumptions of this table" } (assumptions(&table.assumptions)) }
            }
            (strategies(answer, table))
            (legend(table))
            (drawings(answer, table, Measure::Cost))
            (drawings(answer, table, Measure::Finish))
            @if !table.policies.is_empty() { (policies(&table.policies)) }
            (advice(table))
        }
    }
}

fn strategies(answer: &Answer, table: &Table) -> Markup {
    html! {
        div.scroll {
            table.strategies {
                thead {
                    tr {
                        th { "Strategy" } th { "Evicted an hour" } th { "Cost, USD" } th { "p90" } th { "Done, p50" } th { "p95" }
                        th { (if chance_heading(answer) == "DONE" { "Done" } else { "In time" }) }
                        th { "Evictions" } th { "Work lost" } th { "Saved every" } th { "Idle month, USD" } th { "Quota, VMs" }
                    }
                }
                @for row in &table.strategies {
                    tbody.advised[row.advised] {
                        @for (number, (it, of)) in row.worlds.iter().zip(&table.worlds).enumerate() {
                            tr {
                                @if number == 0 {
                                    th scope="rowgroup" rowspan=(row.worlds.len()) {
                                        (row.name) @if row.advised { " " span.pick { "advised" } }
                                    }
                                }
                                td.number { (world(of)) }
                                @for cell in figures(it) { td.number { (cell) } }
                                td.number { (interval(of)) }
                                @if number == 0 {
                                    td.number rowspan=(row.worlds.len()) { (usd(row.idle_month_usd)) }
                                    td.number rowspan=(row.worlds.len()) { (quota(row.quota)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn legend(table: &Table) -> Markup {
    html! {
        ul.legend {
            @for row in &table.strategies {
                li {
                    svg.key viewBox="0 0 32 8" aria-hidden="true" {
                        line class={ "line " (class(&row.name)) } x1="0" x2="32" y1="4" y2="4" {}
                    }
                    (row.name)
                }
            }
        }
        p { "Each curve is the share of runs up to a value: the further left, the better; the steeper, the surer." }
    }
}

fn policies(policies: &[Policy]) -> Markup {
    html! {
        h3 { "Deadline policies" }
        p { "For comparison: nothing carries them out on a fleet yet. Their cost is that of machines alone." }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "Policy" } th { "Cost, USD" } th { "p90" } th { "Done, p50" } th { "p95" } th { "In time" }
                        th { "Evictions" } th { "Work lost" }
                    }
                }
                tbody {
                    @for it in policies {
                        tr {
                            td { (it.name) } td.number { (usd_mean(it.cost_usd.mean)) } td.number { (usd(it.cost_usd.p90)) }
                            td.number { (finish(it.finish_ms.p50)) } td.number { (finish(it.finish_ms.p95)) }
                            td.number { (percent(it.chance)) } td.number { (mean(it.evictions)) }
                            td.number { (span(it.work_lost_ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn advice(table: &Table) -> Markup {
    html! {
        div.advice {
            p { strong { "Advice: " } (plain(&table.advice.reason)) "." }
            @if let Some(row) = table.advised() {
                p { strong { "Quota: " } (quota_sentence(row)) "." }
                @if let Some(idle) = idle_sentence(row) { p { strong { "Afterwards: " } (idle) "." } }
                @if let Some(begin) = &table.begin { p { strong { "When: " } (begin.reason) "." } }
                @if row.bicepparam.is_empty() { p { strong { "Deploy: " } (undeployed(table)) "." } } @else {
                    p { strong { "Deploy: " } (deployment(table)) ":" }
                    pre { code { (row.bicepparam.join("\n")) } }
                }
            }
        }
    }
}
