//! The frame of a report: one HTML page that needs no network, no script and no other file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The styles of every report: colours for light and dark, headings, figures and tables.
const STYLE: &str = include_str!("report/style.css");

/// The page's content policy: only its own pictures and styles.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";

/// The whole page around a body. `styles` come after those of every report, and are not escaped: they must be the
/// program's own.
#[must_use]
pub fn document(title: &str, styles: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(styles)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}
