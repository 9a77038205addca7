//! `reprieve report`: what the ledger tells about evictions, lost work and failures.

mod csv;
mod html;
mod lives;
mod money;
mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use reprieve::{Client, Error, ErrorKind, Result, StoreArgs, clock};
use reprieve_core::ledger::{AGES_HOURS, Ledger, Odd, Summary, lives_within};

use self::csv::Priced;
use self::lives::Figures;
use self::money::{Money, MoneyArgs};
use super::{EXIT_CODES, block_on, log_warnings};
use crate::format::plain;
use crate::out::{Out, answer, print_stderr};

/// Workers that were not seen for so long are not known to live. Rosters keep a report for a day.
const REPORT_AGE_MAX: Duration = Duration::from_hours(24);

/// Shows evictions, lead times, lost work and failures, from the store's ledger
///
/// Evictions by zone, size and hour of the day; how long machines live, with a 95 % band; the work
/// that interruptions cost; failures by reason; with prices also what the machines cost. Times are in
/// UTC. The ledger has an entry for each boot of a machine, each interruption of a worker and each failed
/// delivery.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// How far back the report goes; entries are kept for --keep-ledger of the workers
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = crate::values::duration)]
    since: Duration,

    /// Prints the figures as JSON
    #[arg(long, conflicts_with_all = ["csv", "html"])]
    json: bool,

    /// Prints the entries as CSV, one on each line
    #[arg(long, conflicts_with = "html")]
    csv: bool,

    /// Writes the report as one HTML page into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    money: MoneyArgs,

    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    let client = Client::open_existing(&args.store).await?;
    let now = clock::unix_millis();
    let since = now.saturating_sub(i64::try_from(args.since.as_millis()).unwrap_or(i64::MAX)).max(0);
    let entries = Ledger::new(client.store().records.clone()).read(since).await?;
    let roster = &client.store().roster;
    let mut reports = roster.reports(REPORT_AGE_MAX).await?;
    reports.extend(roster.departed(REPORT_AGE_MAX).await?);
    let lives = lives_within(&entries, &reports, since, now);
    let book = args.money.book(&lives).await?;
    let money = book.map(|book| Money::of(book, &lives, &entries.interruptions, since));
    for note in money.iter().flat_map(Money::notes) {
        print_stderr(&plain(note));
    }
    if args.csv {
        if let Some(odd) = odd(entries.odd(now)) {
            print_stderr(&odd);
        }
        let priced = Priced { lives: &lives, money: money.as_ref() };
        return print(&csv::table(&entries.within(since, now), &priced));
    }
    let summary = Summary::of(&entries, &reports, since, now);
    let Some(file) = args.html else {
        if args.json {
            return pretty(&Figures::new(&summary, &lives, money.as_ref()));
        }
        return answer(false, &summary, || page::page(&summary, money.as_ref()));
    };
    tokio::fs::write(&file, html::page(&summary, money.as_ref())).await.map_err(|error| {
        let message = format!("{} can't be written: {error}; name another file", file.display());
        Error::new(ErrorKind::Invalid, "write the report", message).with_source(error)
    })?;
    print(&format!("see {}\n", file.display()))
}

/// Says which entries can't be taken as they are; `None` if all can.
fn odd(odd: Odd) -> Option<String> {
    let Odd { ahead, too_far_ahead, unreadable } = odd;
    let parts = [
        (ahead, "in the future, by clocks that are ahead"),
        (too_far_ahead, "more than a day in the future, and left out"),
        (unreadable, "damaged or of a newer version, and left out"),
    ];
    let some = parts.into_iter().filter(|(many, _)| *many > 0);
    let said: Vec<_> = some.map(|(many, what)| format!("{many} {what}")).collect();
    (!said.is_empty()).then(|| format!("entries that are odd: {}", said.join(" · ")))
}

/// How many kinds of failure people are shown. `--json` has all of them.
const FAILURES_SHOWN: usize = 20;

/// What is said of the kinds of failure that are not shown.
fn more_failures(summary: &Summary) -> Option<String> {
    let more = summary.failures.len().checked_sub(FAILURES_SHOWN).filter(|more| *more > 0)?;
    Some(format!("and {more} more kinds of failure; --json shows all"))
}

fn pretty(figures: &Figures<'_>) -> Result<()> {
    let mut out = Out::new();
    out.pretty_json(figures)?;
    out.text("\n")?;
    out.flush()
}

fn print(text: &str) -> Result<()> {
    let mut out = Out::new();
    out.text(text)?;
    out.flush()
}

/// A time as people read it, in UTC.
fn time(unix_ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

/// So many milliseconds, rounded as in the other commands.
fn span(ms: u64) -> String {
    crate::format::duration(Duration::from_millis(ms))
}

/// The same of a time that machines were seen.
fn seen(ms: i64) -> String {
    span(u64::try_from(ms).unwrap_or(0))
}

/// Evictions for each 100 hours of machines.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rate(evictions: u64, seen_ms: i64) -> String {
    if seen_ms <= 0 {
        return "-".to_owned();
    }
    let hours = seen_ms as f64 / 3_600_000.0;
    let rate = evictions as f64 * 100.0 / hours;
    if rate > 0.0 && rate < 0.05 { "<0.1".to_owned() } else { format!("{rate:.1}") }
}

/// Ages, the share that lives for longer, and its band; dashes where no machine of that age was seen. Up to the first
/// age beyond the last eviction, after which the curve says nothing more.
fn survival(summary: &Summary) -> Vec<[String; 3]> {
    let Some(last) = summary.survival.last() else { return Vec::new() };
    let row = |hours: i64| {
        let age = hours * 3_600_000;
        let name = if hours < 24 { format!("{hours}h") } else { format!("{}d", hours / 24) };
        let none = || [name.clone(), "-".to_owned(), "-".to_owned()];
        summary.survival_at.iter().find(|point| point.age_ms == age).map_or_else(none, |point| {
            let band = format!("{} to {}", percent(point.low), percent(point.high));
            [name.clone(), percent(point.alive), band]
        })
    };
    let known = AGES_HOURS.iter().filter(|hours| *hours * 3_600_000 <= last.age_ms).count();
    AGES_HOURS.into_iter().take(known + 1).map(row).collect()
}

/// A share in percent.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A name that may be unknown.
fn known(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}

/// How much older than when they were born machines must be at first for a report to say it.
const BORN_WITHIN_MS: i64 = 600_000;

/// Says that the survival curve does not begin with the birth of machines, where it does not.
fn only_older(summary: &Summary) -> Option<String> {
    let from = summary.survival_from_ms;
    let age = seen(from);
    (from > BORN_WITHIN_MS && !summary.survival.is_empty()).then(|| {
        format!("No machine younger than {age} was seen: the shares are of those that lived for so long.")
    })
}

/// What an empty ledger says.
const EMPTY: &str = "the ledger has nothing of this time: workers write an entry when they start on a machine, when \
                     they drain or die, and when a delivery fails";

#[cfg(test)]
mod tests {
    use reprieve_core::JobId;
    use reprieve_core::ledger::{Entries, FailureGroup, HitJob, Kind, Moment, Point, Share, Spread};

    use super::*;

    const HOUR: i64 = 3_600_000;
    const NOW: i64 = 1_767_225_600_000;

    fn share(name: &str, evictions: u64, hours: i64) -> Share {
        Share { name: name.to_owned(), evictions, seen_ms: hours * HOUR }
    }

    fn kind(kind: &str, count: u64, held: u64, lost_s: u64, kept_s: u64) -> Kind {
        let (work_lost_ms, work_kept_ms) = (lost_s * 1_000, kept_s * 1_000);
        Kind { kind: kind.to_owned(), count, held, work_lost_ms, work_kept_ms }
    }

    /// A week of a fleet.
    pub(super) fn week() -> Summary {
        let point = |hours, alive: f64, low, high| Point { age_ms: hours * HOUR, alive, low, high };
        let mut by_hour: Vec<_> = (0..24).map(|hour| share(&format!("{hour:02}"), 0, 13)).collect();
        by_hour[9].evictions = 8;
        by_hour[17].evictions = 4;
        let job = JobId::parse("0190f3a2-7c1e-7abc-8def-001122334455").unwrap();
        Summary {
            since_unix_ms: NOW - 168 * HOUR,
            seen_since_unix_ms: Some(NOW - 168 * HOUR),
            until_unix_ms: NOW,
            machines: 41,
            seen_ms: 312 * HOUR,
            evictions: 12,
            unannounced: 3,
            by_zone: vec![share("1", 9, 150), share("2", 3, 162)],
            by_size: vec![share("", 1, 12), share("Standard_D2s_v5", 11, 300)],
            by_hour,
            lead_ms: Spread { count: 9, min: 2_000, p10: 2_000, median: 29_000, p90: 30_000, max: 30_000 },
            released_ms: Spread { count: 9, min: 20, p10: 20, median: 84, p90: 320, max: 410 },
            survival: vec![
                point(1, 0.95, 0.86, 0.99),
                point(5, 0.81, 0.66, 0.92),
                point(11, 0.64, 0.41, 0.83),
                point(20, 0.52, 0.3, 0.74),
            ],
            survival_from_ms: 40_000,
            survival_at: vec![
                point(1, 0.95, 0.86, 0.99),
                point(3, 0.95, 0.86, 0.99),
                point(6, 0.81, 0.66, 0.92),
                point(12, 0.64, 0.41, 0.83),
            ],
            together: vec![Moment {
                at_unix_ms: NOW - 30 * HOUR,
                lasted_ms: 95_000,
                machines: 7,
                zones: vec!["1".to_owned()],
            }],
            evicted_together: 7,
            interruptions: vec![
                kind("Preempt", 9, 31, 0, 8_200),
                kind("Signal", 2, 0, 0, 0),
                kind("died", 3, 9, 71, 130),
            ],
            jobs: vec![HitJob { job: job.clone(), interruptions: 4, failures: 1 }],
            failures: vec![FailureGroup {
                kind: "thumbnails".to_owned(),
                reason: "the job panicked at src/main.rs:17:5: index # of #".to_owned(),
                count: 17,
                poisoned: 3,
                first_unix_ms: NOW - 50 * HOUR,
                last_unix_ms: NOW - 2 * HOUR,
                example: job,
            }],
            healings: Vec::new(),
            odd: Odd { ahead: 2, unreadable: 1, ..Odd::default() },
        }
    }

    pub(super) fn nothing() -> Summary {
        Summary::of(&Entries::default(), &[], NOW - HOUR, NOW)
    }

    #[test]
    fn the_curve_is_shown_to_the_first_age_beyond_the_last_eviction() {
        let expected = [
            ["1h", "95 %", "86 % to 99 %"],
            ["3h", "95 %", "86 % to 99 %"],
            ["6h", "81 %", "66 % to 92 %"],
            ["12h", "64 %", "41 % to 83 %"],
            ["1d", "-", "-"],
        ];
        assert_eq!(survival(&week()), expected);
        assert!(survival(&nothing()).is_empty());
    }

    #[test]
    fn entries_that_are_odd_are_counted_in_one_line() {
        assert_eq!(odd(Odd::default()), None);
        let line = odd(Odd { ahead: 3, too_far_ahead: 0, unreadable: 1 }).unwrap();
        let expected = "entries that are odd: 3 in the future, by clocks that are ahead · 1 damaged or of a newer \
                        version, and left out";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_rate_is_for_a_hundred_hours_of_machines() {
        assert_eq!([rate(3, 50 * HOUR), rate(0, HOUR), rate(1, 0)], ["6.0", "0.0", "-"]);
        assert_eq!(rate(1, 5_000 * HOUR), "<0.1");
    }
}
