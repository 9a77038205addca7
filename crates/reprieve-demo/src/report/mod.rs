//! The demo's report: one HTML page that needs no network, no script and no other file.

use maud::{Markup, PreEscaped, html};

use crate::format::{count, frame, span};
use crate::history::{History, VmEnd, VmHistory};
use crate::page::document;
use crate::store::StoreKind;
use crate::summary::Summary;

mod cost;
mod figures;
mod frames;
mod timeline;

/// The page. Whatever comes from the story is escaped.
pub(crate) fn page(history: &History, summary: &Summary) -> String {
    let verdict = Verdict::of(history, summary);
    let body = html! {
        (sheet())
        main {
            (header(history, summary, &verdict))
            (figures::section(history, summary))
            (timeline::section(history))
            (cost::section(history, summary))
            (figures::drains(history))
            (frames::section(history))
            (footer(history))
        }
    };
    document(&format!("Reprieve demo: {}", verdict.headline()), &timeline::follow(history), &body)
}

fn header(history: &History, summary: &Summary, verdict: &Verdict) -> Markup {
    let taken = |vm: &&VmHistory| !matches!(vm.end, VmEnd::Finished);
    let at_once = history.vms.len().saturating_sub(history.vms.iter().filter(taken).count());
    html! {
        header.verdict.bad[!verdict.is_good()] {
            p.eyebrow {
                (if verdict.is_good() { DONE } else { KILL })
                " Reprieve demo " (if verdict.is_good() { "passed" } else { "failed" })
            }
            h1 { (verdict.headline()) "." }
            @if verdict.bad_frames().next().is_some() {
                p.look {
                    "See: "
                    @for (frame, anchor) in verdict.bad_frames() { a href=(anchor) { (frame) } " " }
                }
            }
            p {
                (count(at_once, "VM")) " at a time rendered a zoom into the Mandelbrot set, one frame per job, in "
                (span(history.took_ms)) ". "
                @if summary.evictions + summary.kills == 0 {
                    "None of them was evicted or killed."
                } @else {
                    "Some were taken away, as Azure does with Spot VMs: " (summary.evictions) " evicted with a "
                    "notice of " (span(history.notice_ms)) ", and " (summary.kills) " killed without notice. A new VM "
                    "replaced each of them, and interrupted jobs "
                    (if verdict.is_good() { "resumed" } else { "should have resumed" })
                    " on other VMs at their last checkpoint."
                }
                @if let Some(kept) = kept(history.store) { " " (kept) }
            }
        }
    }
}

/// The store, when it is not the default.
const fn kept(store: StoreKind) -> Option<&'static str> {
    match store {
        StoreKind::Sqlite => None,
        StoreKind::Azurite => Some(
            "Jobs were in a Storage queue, checkpoints and frames in a blob container, of the emulator Azurite.",
        ),
    }
}

/// The verdict on a run.
struct Verdict {
    headline: String,
    faults: Vec<String>,
    bad_frames: Vec<usize>,
}

impl Verdict {
    fn of(history: &History, summary: &Summary) -> Self {
        let faults = summary.faults();
        let struck = [
            count(summary.jobs, "frame"),
            count(summary.evictions, "eviction"),
            count(summary.kills, "kill"),
        ];
        let came_to = if faults.is_empty() {
            "nothing lost, nothing completed twice, every frame equal to an uninterrupted render".to_owned()
        } else {
            faults.join(", ")
        };
        let bad = |number: &usize| !frames::faults(&history.jobs[*number]).is_empty();
        Self {
            headline: format!("{}: {came_to}", struck.join(", ")),
            faults,
            bad_frames: (0..history.jobs.len()).filter(bad).collect(),
        }
    }

    fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    /// One sentence without its full stop.
    fn headline(&self) -> &str {
        &self.headline
    }

    /// The frames to look at, if something is wrong with some: how each is called, and its place on
    /// the page.
    fn bad_frames(&self) -> impl Iterator<Item = (String, String)> {
        self.bad_frames.iter().map(|&number| (frame(number), format!("#frame-{number}")))
    }
}

/// The glossary, in the order of first use.
const WORDS: [(&str, &str); 5] = [
    (
        "Spot VM",
        "a virtual machine at a fraction of the price, which Azure evicts when it needs the capacity.",
    ),
    (
        "Notice",
        "the Preempt event by which Azure announces an eviction to the VM: usually 30 seconds ahead, sometimes \
         less, sometimes not at all.",
    ),
    ("Step", "the work between two points at which a job can stop: here, a band of rows of the frame."),
    ("Checkpoint", "a job's saved state, stored outside the VM, from which another VM resumes the job."),
    (
        "Released",
        "the VM gave up its lease on the job, so that another VM can take it at once. Otherwise the job waits until \
         the lease ends.",
    ),
];

fn footer(history: &History) -> Markup {
    html! {
        section id="again" aria-labelledby="again-title" {
            h2 id="again-title" { "Run it again" }
            p {
                "The seed selects the VMs that are evicted and killed, and when: with the same settings, "
                code { "--store " (history.store.name()) " --seed " (history.seed) } " repeats the same evictions and kills on any machine. Each frame had "
                (count(history.steps_per_job, "step")) ", saved every " (span(history.checkpoint_every_ms))
                "."
            }
            dl.digests {
                dt { "Digest of the frames" } dd { code { (history.output_digest) } }
                dt { "Digest of an uninterrupted render" } dd { code { (history.reference_digest) } }
            }
            h2 { "Glossary" }
            dl.words { @for (word, meaning) in WORDS { div { dt { (word) } dd { (meaning) } } } }
        }
    }
}

/// A frame was finished.
const DONE: Icon = Icon("done");
/// A job was released.
const BACK: Icon = Icon("back");
/// A VM was killed, or a job cut off by that.
const KILL: Icon = Icon("kill");
/// A notice was given.
const NOTICE: Icon = Icon("notice");

/// An icon, hidden from screen readers: there is always text beside it.
#[derive(Clone, Copy)]
struct Icon(&'static str);

impl maud::Render for Icon {
    fn render(&self) -> Markup {
        html! {
            svg class={ "icon " (self.0) } viewBox="0 0 16 16" aria-hidden="true" {
                use href={ "#icon-" (self.0) } {}
            }
        }
    }
}

/// The icons' shapes, once per page.
fn sheet() -> Markup {
    PreEscaped(
        r#"<svg width="0" height="0" aria-hidden="true" class="sheet"><defs>
<symbol id="icon-done" viewBox="0 0 16 16">
<path d="M3 8.5 6.5 12 13 4.5" fill="none" stroke="currentColor" stroke-width="2.4"/>
</symbol>
<symbol id="icon-back" viewBox="0 0 16 16">
<path d="M6.5 3 3 6.5 6.5 10M3 6.5h6a3.5 3.5 0 0 1 0 7H6" fill="none" stroke="currentColor" stroke-width="2"/>
</symbol>
<symbol id="icon-kill" viewBox="0 0 16 16">
<path d="m3.5 3.5 9 9m0-9-9 9" fill="none" stroke="currentColor" stroke-width="2.6"/>
</symbol>
<symbol id="icon-notice" viewBox="0 0 16 16">
<path d="M8 1 15.5 15H.5Z" fill="currentColor"/>
<path d="M8 5.5v5m0 1.3v1.7" stroke="var(--page)" stroke-width="1.8"/>
</symbol>
</defs></svg>"#
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_page_names_the_emulator() {
        let (mut history, summary) = fixtures::good();
        assert!(!page(&history, &summary).contains("Azurite"));
        history.store = StoreKind::Azurite;
        let page = page(&history, &summary);
        assert!(
            page.contains("of the emulator Azurite.") && page.contains("--store azurite --seed 7"),
            "{page}"
        );
    }

    #[test]
    fn a_page_has_all_its_parts_and_loads_nothing() {
        let (history, summary) = fixtures::good();
        let page = page(&history, &summary);
        for part in ["<title>", "<h1>", "id=\"timeline\"", "id=\"cost\"", "id=\"plot\"", "id=\"frames\""] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        assert_eq!(page.matches("data-vm=").count(), history.vms.len());
        assert_eq!(page.matches("<img ").count(), history.jobs.len());
        for outside in ["http://", "https://", "src=\"/", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn text_of_the_history_cannot_become_markup() {
        let (mut history, summary) = fixtures::bad();
        let evil = "<script>\"'&";
        for vm in &mut history.vms {
            evil.clone_into(&mut vm.name);
        }
        for job in &mut history.jobs {
            evil.clone_into(&mut job.id);
        }
        evil.clone_into(&mut history.output_digest);
        evil.clone_into(&mut history.reference_digest);
        let page = page(&history, &summary);
        assert!(!page.contains("<script"), "it is markup");
        assert!(!page.contains("\"'&"), "it ends an attribute");
        assert!(page.contains("&lt;script&gt;&quot;'&amp;"), "it is not there at all");
    }

    #[test]
    fn a_story_in_which_nothing_happened_is_a_page_too() {
        let (mut history, _) = fixtures::good();
        history.jobs.clear();
        history.vms.clear();
        history.took_ms = 0;
        let page = page(&history, &Summary::of(&history, Vec::new(), 0));
        assert!(page.contains("0 frames, 0 evictions, 0 kills"), "{page}");
    }

    #[test]
    fn a_good_run_is_called_good() {
        let (history, summary) = fixtures::good();
        let verdict = Verdict::of(&history, &summary);
        assert!(verdict.is_good());
        let expected = "4 frames, 1 eviction, 1 kill: nothing lost, nothing completed twice, every frame equal to an \
                    uninterrupted render";
        assert_eq!(verdict.headline(), expected);
        assert_eq!(verdict.bad_frames().count(), 0);
    }

    #[test]
    fn whatever_went_wrong_is_in_the_headline_and_every_bad_frame_is_named() {
        let (history, summary) = fixtures::bad();
        let verdict = Verdict::of(&history, &summary);
        assert!(!verdict.is_good());
        for fault in summary.faults() {
            assert!(verdict.headline().contains(&fault), "{fault} is not in {:?}", verdict.headline());
        }
        let frames: Vec<_> =
            verdict.bad_frames().map(|(frame, anchor)| format!("{frame} {anchor}")).collect();
        assert_eq!(frames, ["frame 00 #frame-0", "frame 01 #frame-1", "frame 02 #frame-2"]);
    }
}
