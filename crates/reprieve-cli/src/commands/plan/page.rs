//! The plan as text.

use super::answer::{Answer, Assumed, Policy, StrategyRow, Table};
use super::text::{
    chance_heading, deployment, facts, figures, finish, headline, idle_sentence, interval, mean, percent,
    quota, quota_sentence, source, span, title, undeployed, usd, usd_mean, world,
};
use crate::format::{plain, table};

/// The columns of text that is wrapped.
const COLUMNS: usize = 110;

/// The columns of an assumption's subject.
const SUBJECT: usize = 32;

/// What is said below deadline policies.
const POLICIES: &str =
    "policies cost machines alone, and are for comparison: nothing carries them out on a fleet yet\n\n";

/// The whole plan.
pub(super) fn page(answer: &Answer) -> String {
    let mut page = format!("{}\n\nassumptions of all tables\n", headline(answer));
    if answer.tables.len() == 1 {
        page = format!("{}\n\nassumptions\n", headline(answer));
    }
    page.push_str(&assumptions(&answer.assumptions));
    for table in &answer.tables {
        page.push('\n');
        page.push_str(&one(answer, table));
    }
    page
}

fn one(answer: &Answer, table: &Table) -> String {
    let mut text = format!("{}: {}\n", title(table), plain(&facts(answer, table)));
    text.push_str(&assumptions(&table.assumptions));
    text.push('\n');
    text.push_str(&strategies(answer, table));
    text.push('\n');
    if !table.policies.is_empty() {
        text.push_str(&policies(&table.policies));
        text.push_str(POLICIES);
    }
    text.push_str(&wrapped("advice", &table.advice.reason, 8));
    if let Some(row) = table.advised() {
        text.push_str(&wrapped("quota", &quota_sentence(row), 8));
        text.push_str(&idle_sentence(row).map(|idle| wrapped("after", &idle, 8)).unwrap_or_default());
        text.push_str(&table.begin.as_ref().map(|it| wrapped("when", &it.reason, 8)).unwrap_or_default());
        let by = format!("by {}", deployment(table));
        text.push_str(&wrapped("deploy", if row.bicepparam.is_empty() { undeployed(table) } else { &by }, 8));
        text.extend(row.bicepparam.iter().map(|line| format!("        {line}\n")));
    }
    text
}

fn strategies(answer: &Answer, of: &Table) -> String {
    let headings = [
        "  STRATEGY",
        "EVICTED/H",
        "COST USD",
        "P90",
        "DONE P50",
        "P95",
        chance_heading(answer),
        "EVICTIONS",
        "WORK LOST",
        "SAVED EVERY",
        "IDLE MONTH",
        "QUOTA",
    ];
    let rows: Vec<_> = of.strategies.iter().flat_map(|row| rows(row, of)).collect();
    table(headings, &rows)
}

/// A line for each world; the first one has what does not differ.
fn rows<'a>(row: &'a StrategyRow, of: &'a Table) -> impl Iterator<Item = [String; 12]> + 'a {
    row.worlds.iter().zip(&of.worlds).enumerate().map(|(number, (it, of))| {
        let [cost, p90, p50, p95, chance, evictions, lost] = figures(it);
        let first = |text: String| if number == 0 { text } else { String::new() };
        let name = first(format!("{} {}", if row.advised { '*' } else { ' ' }, row.name));
        let (idle, quota) = (first(usd(row.idle_month_usd)), first(quota(row.quota)));
        let world = world(of);
        [name, world, cost, p90, p50, p95, chance, evictions, lost, interval(of), idle, quota]
    })
}

fn policies(policies: &[Policy]) -> String {
    let row = |it: &Policy| {
        [
            format!("  {}", it.name),
            usd_mean(it.cost_usd.mean),
            usd(it.cost_usd.p90),
            finish(it.finish_ms.p50),
            finish(it.finish_ms.p95),
            percent(it.chance),
            mean(it.evictions),
            span(it.work_lost_ms),
        ]
    };
    let rows: Vec<_> = policies.iter().map(row).collect();
    table(["  POLICY", "COST USD", "P90", "DONE P50", "P95", "IN TIME", "EVICTIONS", "WORK LOST"], &rows)
}

fn assumptions(assumptions: &[Assumed]) -> String {
    let one = |it: &Assumed| {
        wrapped(&format!("  {}", it.subject), &format!("{} ({})", it.value, source(it)), SUBJECT)
    };
    assumptions.iter().map(one).collect()
}

/// A text behind its subject, in lines that fit; those after the first are indented as far.
fn wrapped(subject: &str, text: &str, indent: usize) -> String {
    let mut lines = vec![format!("{subject:<indent$}")];
    let mut is_begun = false;
    for word in plain(text).split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if is_begun && line + 1 + word.chars().count() > COLUMNS {
            lines.push(" ".repeat(indent));
            is_begun = false;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if is_begun { " " } else { "" });
            line.push_str(word);
            is_begun = true;
        }
    }
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_behind_their_subject() {
        let text = wrapped("  a", &"word ".repeat(40), 10);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), &lines[0][..15]), (2, "  a       word "));
        assert!(lines.iter().all(|line| line.len() <= COLUMNS));
        assert!(lines[1].starts_with("          word"));
        let url = "x".repeat(200);
        assert_eq!(wrapped("a", &url, 4), format!("a   {url}\n"), "what has no space is not cut");
    }
}
