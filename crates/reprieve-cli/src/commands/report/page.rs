//! The report as text.

use std::fmt::Write as _;

use reprieve_core::ledger::{Moment, Share, Spread, Summary};

use super::money::{self, Money};
use super::{EMPTY, FAILURES_SHOWN, known, more_failures, odd, only_older, rate, seen, span, survival, time};
use crate::format::{count, plain, table};

/// The whole report. Empty tables are left out.
pub(super) fn page(summary: &Summary, money: Option<&Money>) -> String {
    if summary.is_empty() {
        let odd = odd(summary.odd).map(|odd| odd + "\n").unwrap_or_default();
        return format!("since {} UTC: {EMPTY}\n{odd}", time(summary.since_unix_ms));
    }
    let mut page = head(summary);
    page.push_str(&money::text(money));
    section(&mut page, ["ZONE", "EVICTIONS", "SEEN FOR", "PER 100 HOURS"], &shares(&summary.by_zone));
    section(&mut page, ["SIZE", "EVICTIONS", "SEEN FOR", "PER 100 HOURS"], &shares(&summary.by_size));
    let struck: Vec<_> = summary.by_hour.iter().filter(|hour| hour.evictions > 0).cloned().collect();
    section(&mut page, ["HOUR", "EVICTIONS", "SEEN FOR", "PER 100 HOURS"], &shares(&struck));
    section(&mut page, ["TIME", "OF", "SHORTEST", "P10", "MEDIAN", "P90", "LONGEST"], &times(summary));
    section(&mut page, ["AGE", "LIVE LONGER", "BAND OF 95 %"], &survival(summary));
    if let Some(older) = only_older(summary) {
        page.push_str(&older);
        page.push('\n');
    }
    let rows: Vec<_> = summary
        .together
        .iter()
        .map(|it| [time(it.at_unix_ms), it.machines.to_string(), seen(it.lasted_ms), plain(&zones(it))])
        .collect();
    section(&mut page, ["TOGETHER", "MACHINES", "WITHIN", "ZONES"], &rows);
    let rows: Vec<_> = summary
        .interruptions
        .iter()
        .map(|it| {
            let (lost, kept) = (span(it.work_lost_ms), span(it.work_kept_ms));
            [plain(&it.kind), it.count.to_string(), it.held.to_string(), lost, kept]
        })
        .collect();
    section(&mut page, ["INTERRUPTION", "WORKERS", "JOBS HELD", "WORK LOST", "WORK KEPT"], &rows);
    let rows: Vec<_> = summary
        .jobs
        .iter()
        .map(|it| [it.job.to_string(), it.interruptions.to_string(), it.failures.to_string()])
        .collect();
    section(&mut page, ["JOB", "INTERRUPTED", "FAILED"], &rows);
    section(
        &mut page,
        ["FAILED", "POISONED", "KIND", "FIRST", "LAST", "EXAMPLE", "REASON"],
        &failures(summary),
    );
    if let Some(more) = more_failures(summary) {
        page.push_str(&more);
        page.push('\n');
    }
    let rows: Vec<_> = summary
        .healings
        .iter()
        .map(|it| {
            [&it.layer, &it.fault, &it.action, &it.outcome, &it.count.to_string()].map(|text| plain(text))
        })
        .collect();
    section(&mut page, ["HEALED LAYER", "FAULT", "ACTION", "OUTCOME", "TIMES"], &rows);
    page
}

fn head(summary: &Summary) -> String {
    let Summary { since_unix_ms, until_unix_ms, machines, seen_ms, evictions, unannounced, .. } = summary;
    let mut head = format!("{} to {} UTC", time(*since_unix_ms), time(*until_unix_ms));
    // Writing to a string can't fail.
    let _infallible = writeln!(head, " · {}, seen for {}", count(*machines, "machine"), seen(*seen_ms));
    let rate = rate(*evictions, *seen_ms);
    let _infallible = writeln!(
        head,
        "{} · {} an hour · {rate} for 100 hours of machines · {unannounced} without notice · {} together with others",
        count(*evictions, "eviction"),
        an_hour(summary),
        summary.evicted_together
    );
    let (lost, kept) = summary.work();
    let _infallible = writeln!(head, "interruptions lost {} of work and kept {}", span(lost), span(kept));
    if let Some(odd) = odd(summary.odd) {
        let _infallible = writeln!(head, "{odd}");
    }
    head
}

/// The zones of a moment.
pub(super) fn zones(moment: &Moment) -> String {
    let zones: Vec<_> = moment.zones.iter().map(|zone| known(zone)).collect();
    zones.join(", ")
}

/// Evictions for each hour of the time, from when a machine was seen first.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn an_hour(summary: &Summary) -> String {
    let since = summary.seen_since_unix_ms.unwrap_or(summary.since_unix_ms);
    let hours = summary.until_unix_ms.saturating_sub(since).max(1) as f64 / 3_600_000.0;
    let rate = summary.evictions as f64 / hours;
    if rate > 0.0 && rate < 0.005 { "<0.01".to_owned() } else { format!("{rate:.2}") }
}

/// Adds a table, unless it is empty.
fn section<const N: usize>(page: &mut String, headings: [&str; N], rows: &[[String; N]]) {
    if !rows.is_empty() {
        page.push('\n');
        page.push_str(&table(headings, rows));
    }
}

fn shares(shares: &[Share]) -> Vec<[String; 4]> {
    let row = |it: &Share| {
        let name = plain(known(&it.name));
        [name, it.evictions.to_string(), seen(it.seen_ms), rate(it.evictions, it.seen_ms)]
    };
    shares.iter().map(row).collect()
}

fn times(summary: &Summary) -> Vec<[String; 7]> {
    let row = |(name, it): (&str, Spread)| {
        let [min, p10, median, p90, max] = [it.min, it.p10, it.median, it.p90, it.max].map(span);
        [name.to_owned(), it.count.to_string(), min, p10, median, p90, max]
    };
    let times = [("notice to eviction", summary.lead_ms), ("notice to released", summary.released_ms)];
    times.into_iter().filter(|(_, spread)| spread.count > 0).map(row).collect()
}

fn failures(summary: &Summary) -> Vec<[String; 7]> {
    let row = |it: &reprieve_core::ledger::FailureGroup| {
        [
            it.count.to_string(),
            it.poisoned.to_string(),
            plain(&it.kind),
            time(it.first_unix_ms),
            time(it.last_unix_ms),
            it.example.to_string(),
            plain(&it.reason),
        ]
    };
    summary.failures.iter().take(FAILURES_SHOWN).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nothing, week};
    use super::*;

    #[test]
    fn a_week_of_a_fleet() {
        insta::assert_snapshot!(page(&week(), None));
    }

    #[test]
    fn failures_of_many_kinds_are_bounded_and_text_cannot_turn_around() {
        let mut summary = week();
        summary.failures[0].reason = "a\u{202e}b\u{2066}c\u{1b}d".to_owned();
        let one = summary.failures[0].clone();
        summary.failures.extend(vec![one; 22]);
        let page = page(&summary, None);
        assert!(page.contains("and 3 more kinds of failure"), "{page}");
        assert_eq!(page.matches("a\u{fffd}b\u{fffd}c\u{fffd}d").count(), 20);
    }

    #[test]
    fn a_curve_of_machines_that_were_old_when_first_seen_says_so() {
        let older = |from_hours: i64| {
            page(&Summary { survival_from_ms: from_hours * 3_600_000, ..week() }, None)
                .contains("No machine younger than")
        };
        assert_eq!([older(0), older(20)], [false, true]);
    }

    #[test]
    fn an_empty_ledger_says_what_will_fill_it() {
        let page = page(&nothing(), None);
        assert!(page.contains("2025-12-31 23:00 UTC") && page.contains("when they drain or die"), "{page}");
    }
}
