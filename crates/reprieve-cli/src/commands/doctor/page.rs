//! The report as text.

use console::Style;

use super::finding::{Finding, State};
use super::{Report, Shown};
use crate::format::{count, plain};

/// The width of the column of states.
const STATE_WIDTH: usize = "problem  ".len();

/// The whole report: the settings, a line for each finding with its cure below it, and the sum.
pub(super) fn page(report: &Report, coloured: bool) -> String {
    let mut page = settings(&report.settings);
    page.push('\n');
    let width = report.findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0) + 2;
    for finding in &report.findings {
        page.push_str(&line(finding, width, coloured));
    }
    page.push('\n');
    page.push_str(&sum(report));
    page.push('\n');
    page
}

fn settings(settings: &[Shown]) -> String {
    let width = |text: fn(&Shown) -> &str| {
        settings.iter().map(|one| text(one).chars().count()).max().unwrap_or(0) + 2
    };
    let (names, values) = (width(|one| one.name), width(|one| &one.value));
    let line = |Shown { name, value, from }: &Shown| {
        let value = if value.is_empty() { "-".to_owned() } else { plain(value) };
        let from = from.as_deref().map_or_else(|| "default".to_owned(), plain);
        format!("{name:names$}{value:values$}{from}\n")
    };
    settings.iter().map(line).collect()
}

fn line(finding: &Finding, width: usize, coloured: bool) -> String {
    let (word, style) = match finding.state {
        State::Ok => ("ok", Style::new().green()),
        State::Warning => ("warning", Style::new().yellow()),
        State::Problem => ("problem", Style::new().red()),
        State::Skipped => ("skipped", Style::new().dim()),
    };
    let state = style.force_styling(coloured).apply_to(format!("{word:STATE_WIDTH$}"));
    let cure = |cure: &String| format!("{:indent$}{}\n", "", plain(cure), indent = STATE_WIDTH + width);
    let cure = finding.cure.as_ref().map(cure).unwrap_or_default();
    format!("{state}{:width$}{}\n{cure}", finding.name, plain(&finding.seen))
}

fn sum(report: &Report) -> String {
    match (report.problems, report.warnings) {
        (0, 0) => "no problems, no warnings".to_owned(),
        (0, warnings) => format!("0 problems, {}", count(warnings as u64, "warning")),
        (problems, warnings) => {
            format!("{}, {}", count(problems as u64, "problem"), count(warnings as u64, "warning"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            at_unix_ms: 0,
            problems: 1,
            warnings: 1,
            settings: vec![
                Shown {
                    name: "store",
                    value: "azure:thumbs".to_owned(),
                    from: Some("REPRIEVE_STORE".to_owned()),
                },
                Shown { name: "vm-name", value: String::new(), from: None },
            ],
            findings: vec![
                Finding::ok("clock", "like the service's, to a second"),
                Finding::problem("queue roles: renew", "denied", "Give it the role."),
                Finding::warning("photos-poison", "3 messages\u{1b}[2J", "Look at them."),
                Finding::skipped("lease", "no lease could be renewed"),
            ],
        }
    }

    #[test]
    fn a_page_has_the_settings_the_findings_and_their_sum() {
        let expected = "\
store    azure:thumbs  REPRIEVE_STORE
vm-name  -             default

ok       clock               like the service's, to a second
problem  queue roles: renew  denied
                             Give it the role.
warning  photos-poison       3 messages\u{fffd}[2J
                             Look at them.
skipped  lease               no lease could be renewed

1 problem, 1 warning
";
        assert_eq!(page(&report(), false), expected);
    }

    #[test]
    fn colours_change_nothing_but_the_colours() {
        let coloured = page(&report(), true);
        assert!(coloured.contains("\u{1b}[31mproblem"), "{coloured:?}");
        assert_eq!(
            console::strip_ansi_codes(&coloured).replace('\u{fffd}', ""),
            page(&report(), false).replace('\u{fffd}', "")
        );
    }
}
