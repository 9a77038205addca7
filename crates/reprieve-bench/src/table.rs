//! Formats measures: for a terminal, as Markdown, and beside those of an earlier run.

use std::fmt::Write as _;

use crate::compare::{Comparison, Verdict};
use crate::measure::{Bound, Goal, Measure, Of};
use crate::report::Report;

const HEAD: [&str; 5] = ["", "median", "least to most", "rounds", "goal"];

/// Formats all measures in columns.
pub(crate) fn terminal(report: &Report) -> String {
    let mut out = String::new();
    for section in report.sections() {
        let mut rows = vec![[section, HEAD[1], HEAD[2], HEAD[3], HEAD[4]].map(str::to_owned)];
        rows.extend(of(report, section).map(row));
        columns(&mut out, &rows);
    }
    remarks(&mut out, report);
    out
}

/// Formats the tables for documentation, with the machine.
pub(crate) fn markdown(report: &Report) -> String {
    let mut out = String::new();
    for line in report.machine.lines() {
        _ = writeln!(out, "- {line}");
    }
    _ = writeln!(out, "- date: {:.0}", report.date);
    for section in report.sections() {
        _ = writeln!(out, "\n### {section}\n\n| {} |", HEAD.join(" | "));
        _ = writeln!(out, "|---|---:|---:|---:|---|");
        for measure in of(report, section) {
            _ = writeln!(out, "| {} |", row(measure).map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    remarks(&mut out, report);
    out
}

/// Formats both runs, and the change of each measure.
pub(crate) fn comparison(comparison: &Comparison<'_>) -> String {
    let mut rows = vec![["", "before", "now", "ratio", ""].map(str::to_owned)];
    for change in &comparison.changes {
        let (before, now) = (change.before, change.now);
        let verdict = match change.verdict {
            Verdict::Same => "",
            Verdict::Better => "better",
            Verdict::Regressed => "REGRESSED",
            Verdict::ReferenceWorse => "worse, but not ours",
        };
        rows.push([
            format!("{}: {}", now.section, now.name),
            with_unit(before.median, &before.unit),
            with_unit(now.median, &now.unit),
            change.ratio().map(number).unwrap_or_default(),
            verdict.to_owned(),
        ]);
    }
    let mut out = String::new();
    columns(&mut out, &rows);
    for measure in &comparison.missing {
        _ = writeln!(out, "measured before and not now: {}: {}", measure.section, measure.name);
    }
    out
}

fn of<'a>(report: &'a Report, section: &str) -> impl Iterator<Item = &'a Measure> {
    let section = section.to_owned();
    report.measures.iter().filter(move |measure| measure.section == section)
}

fn row(measure: &Measure) -> [String; 5] {
    [
        measure.name.clone(),
        with_unit(measure.median, &measure.unit),
        format!("{} to {}", number(measure.min), number(measure.max)),
        measure.values.len().to_string(),
        measure.goal.map(goal).unwrap_or_default(),
    ]
}

fn goal(goal: Goal) -> String {
    let bound = match goal.bound {
        Bound::AtLeast(least) => format!("≥ {}", number(least)),
        Bound::AtMost(most) => format!("≤ {}", number(most)),
    };
    let of = match goal.of {
        Of::Median => "",
        Of::P99 => " at p99",
        Of::Worst => " always",
    };
    format!("{bound}{of}: {}", if goal.met { "met" } else { "NOT MET" })
}

/// Adds the peers, the failed measurements, and the warning about a quick run.
fn remarks(out: &mut String, report: &Report) {
    for peer in &report.peers {
        _ = writeln!(out, "\nBeside us: {peer}");
    }
    for reason in &report.not_measured {
        _ = writeln!(out, "\nNOT MEASURED: {reason}");
    }
    if report.quick {
        _ = writeln!(
            out,
            "\nThis was a quick run, which only tries the benchmarks out: its figures mean nothing."
        );
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

/// Rounds to three digits, but keeps all digits of larger numbers.
fn number(value: f64) -> String {
    match value.abs() {
        whole if whole.fract() == 0.0 => thousands(value),
        large if large >= 99.95 => thousands(value),
        middle if middle >= 9.995 => format!("{value:.1}"),
        small if small >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Aligns the first column to the left and numbers to the right; the last column stays as it is.
fn columns(out: &mut String, rows: &[[String; 5]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 4] = [0, 1, 2, 3].map(width);
    for [name, a, b, c, end] in rows {
        let line = format!(
            "{name:<0$}  {a:>1$}  {b:>2$}  {c:>3$}  {end}",
            widths[0], widths[1], widths[2], widths[3]
        );
        _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Kind, Measures};
    use crate::report::tests::with;

    fn report(released: f64) -> Report {
        let mut measures = Measures::default();
        for value in [41_000.0, 50_123.0, 52_000.0] {
            measures.add(Kind::higher("throughput", "drain", "jobs/s"), value);
        }
        measures.add(Kind::higher("throughput", "against apalis", "×").goal(Of::Median, 3.0), 2.5);
        measures.add(Kind::lower("notice", "released", "ms").goal(Of::P99, 1000.0), released);
        with(measures)
    }

    #[test]
    fn numbers_have_three_digits_or_all() {
        for (value, shown) in [
            (0.0, "0"),
            (0.001_23, "0.0012"),
            (0.5, "0.50"),
            (10.0, "10"),
            (9.994, "9.99"),
            (12.34, "12.3"),
            (99.97, "100"),
            (999.6, "1,000"),
            (1_234_567.8, "1,234,568"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), shown, "{value}");
        }
    }

    #[test]
    fn the_terminal_shows_columns_and_goals() {
        let mut report = report(33.5);
        report.not_measured.push("bullmq: there is no npm".to_owned());
        let expected = "\
throughput             median     least to most  rounds  goal
drain           50,123 jobs/s  41,000 to 52,000       3
against apalis         2.50 ×      2.50 to 2.50       1  ≥ 3: NOT MET

notice     median  least to most  rounds  goal
released  33.5 ms   33.5 to 33.5       1  ≤ 1,000 at p99: met


Beside us: huey 3.5.4 on SqliteHuey

NOT MEASURED: bullmq: there is no npm
";
        assert_eq!(terminal(&report), expected);
    }

    #[test]
    fn markdown_has_the_same_cells() {
        let markdown = markdown(&report(33.0));
        assert!(
            markdown.contains("\n### notice\n\n|  | median | least to most | rounds | goal |\n"),
            "{markdown}"
        );
        assert!(markdown.contains("\n| drain | 50,123 jobs/s | 41,000 to 52,000 | 3 |  |\n"), "{markdown}");
        assert!(markdown.contains("\n- date: 1970-01-01T00:00:00Z\n"), "{markdown}");
    }

    #[test]
    fn a_comparison_names_what_regressed() {
        let (before, now) = (report(33.5), report(70.0));
        let shown = comparison(&Comparison::of(&before, &now));
        let regressed: Vec<_> = shown.lines().filter(|line| line.ends_with("REGRESSED")).collect();
        assert_eq!(regressed, ["notice: released                  33.5 ms          70 ms   2.09  REGRESSED"]);
    }
}
