//! The demo's report: one HTML page that needs no network, no script and no other file.

mod again;
mod cost;
mod events;
mod figures;
mod frames;
mod icons;
mod lanes;
mod plot;
mod timeline;
mod verdict;
mod words;

#[cfg(test)]
mod made_up;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::store::StoreKind;
use crate::story::{Story, VmEnd, VmStory};
use crate::summary::Summary;
use verdict::Verdict;
use words::{count, span};

const STYLE: &str = include_str!("report/style.css");

/// What the page may load: pictures and styles that it holds itself, and nothing else.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";

/// The page. Whatever comes from the story is escaped.
pub(crate) fn page(story: &Story, summary: &Summary) -> String {
    let verdict = Verdict::of(story, summary);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { "Reprieve demo: " (verdict.headline()) }
                style { (PreEscaped(STYLE)) (PreEscaped(timeline::follow(story))) }
            }
            body {
                (icons::sheet())
                main {
                    (header(story, summary, &verdict))
                    (figures::section(story, summary))
                    (timeline::section(story))
                    (cost::section(story, summary))
                    (plot::section(story))
                    (frames::section(story))
                    (again::section(story))
                }
            }
        }
    };
    page.into_string()
}

fn header(story: &Story, summary: &Summary, verdict: &Verdict) -> Markup {
    let taken = |vm: &&VmStory| !matches!(vm.end, VmEnd::Finished);
    let at_once = story.vms.len().saturating_sub(story.vms.iter().filter(taken).count());
    html! {
        header.verdict.bad[!verdict.is_good()] {
            p.eyebrow {
                (if verdict.is_good() { icons::DONE } else { icons::KILL })
                " Reprieve demo " (if verdict.is_good() { "passed" } else { "failed" })
            }
            h1 { (verdict.headline()) "." }
            @if verdict.bad_frames().next().is_some() {
                p.look {
                    "Look at: "
                    @for (frame, place) in verdict.bad_frames() { a href=(place) { (frame) } " " }
                }
            }
            p {
                (count(at_once, "VM")) " at a time rendered a zoom into the Mandelbrot set, a frame to a job, in "
                (span(story.took_ms)) ". "
                @if summary.evictions + summary.kills == 0 {
                    "None of them was taken away."
                } @else {
                    "Meanwhile some were taken away, as Azure does with Spot VMs: " (summary.evictions) " with a "
                    "notice " (span(story.notice_ms)) " ahead, and " (summary.kills) " without a word. A fresh VM "
                    "that knew nothing came in place of each, and what had been cut off "
                    (if verdict.is_good() { "went on" } else { "should have gone on" })
                    " elsewhere from its last checkpoint."
                }
                @if let Some(kept) = kept(story.store) { " " (kept) }
            }
        }
    }
}

/// Where the jobs were, unless that is where a demo always has them.
const fn kept(store: StoreKind) -> Option<&'static str> {
    match store {
        StoreKind::Sqlite => None,
        StoreKind::Azurite => Some(
            "Jobs were in a Storage queue, and checkpoints and frames in a blob container, of the emulator Azurite.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_that_it_was_on_the_emulator() {
        let (mut story, summary) = made_up::good();
        assert!(!page(&story, &summary).contains("Azurite"));
        story.store = StoreKind::Azurite;
        let page = page(&story, &summary);
        assert!(
            page.contains("of the emulator Azurite.") && page.contains("--store azurite --seed 7"),
            "{page}"
        );
    }

    #[test]
    fn a_page_has_all_its_parts_and_loads_nothing() {
        let (story, summary) = made_up::good();
        let page = page(&story, &summary);
        for part in ["<title>", "<h1>", "id=\"timeline\"", "id=\"cost\"", "id=\"plot\"", "id=\"frames\""] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        assert_eq!(page.matches("data-vm=").count(), story.vms.len());
        assert_eq!(page.matches("<img ").count(), story.jobs.len());
        for outside in ["http://", "https://", "src=\"/", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_comes_from_the_story_can_not_become_markup() {
        let (mut story, summary) = made_up::bad();
        let evil = "<script>\"'&";
        for vm in &mut story.vms {
            evil.clone_into(&mut vm.name);
        }
        for job in &mut story.jobs {
            evil.clone_into(&mut job.id);
        }
        evil.clone_into(&mut story.output_digest);
        evil.clone_into(&mut story.reference_digest);
        let page = page(&story, &summary);
        assert!(!page.contains("<script"), "it is markup");
        assert!(!page.contains("\"'&"), "it ends an attribute");
        assert!(page.contains("&lt;script&gt;&quot;'&amp;"), "it is not there at all");
    }

    #[test]
    fn a_story_in_which_nothing_happened_is_a_page_too() {
        let (mut story, _) = made_up::good();
        story.jobs.clear();
        story.vms.clear();
        story.took_ms = 0;
        let page = page(&story, &Summary::of(&story, Vec::new(), 0));
        assert!(page.contains("0 frames, 0 evictions, 0 kills"), "{page}");
    }
}
