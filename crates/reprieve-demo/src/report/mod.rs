//! The demo's report: one HTML page that needs no network, no script and no other file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::format::{count, frame, span};
use crate::history::{Story, VmEnd, VmStory};
use crate::store::StoreKind;
use crate::summary::Summary;

mod cost;
mod figures;
mod frames;
mod timeline;

const STYLE: &str = include_str!("style.css");

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
                (sheet())
                main {
                    (header(story, summary, &verdict))
                    (figures::section(story, summary))
                    (timeline::section(story))
                    (cost::section(story, summary))
                    (figures::drains(story))
                    (frames::section(story))
                    (footer(story))
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
                (if verdict.is_good() { DONE } else { KILL })
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

/// What the run came to.
struct Verdict {
    headline: String,
    faults: Vec<String>,
    bad_frames: Vec<usize>,
}

impl Verdict {
    fn of(story: &Story, summary: &Summary) -> Self {
        let faults = summary.faults();
        let struck = [
            count(summary.jobs, "frame"),
            count(summary.evictions, "eviction"),
            count(summary.kills, "kill"),
        ];
        let came_to = if faults.is_empty() {
            "nothing lost, nothing finished twice, every frame equal to an uninterrupted render".to_owned()
        } else {
            faults.join(", ")
        };
        let bad = |number: &usize| !frames::faults(&story.jobs[*number]).is_empty();
        Self {
            headline: format!("{}: {came_to}", struck.join(", ")),
            faults,
            bad_frames: (0..story.jobs.len()).filter(bad).collect(),
        }
    }

    fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    /// One sentence without its full stop.
    fn headline(&self) -> &str {
        &self.headline
    }

    /// The frames to look at, if something is wrong with some: how each is called, and its place on the page.
    fn bad_frames(&self) -> impl Iterator<Item = (String, String)> {
        self.bad_frames.iter().map(|&number| (frame(number), format!("#frame-{number}")))
    }
}

/// What a newcomer may not know, in the order in which it is met.
const WORDS: [(&str, &str); 5] = [
    (
        "Spot VM",
        "a virtual machine that costs a fraction of the price, and that Azure takes back when it needs the room.",
    ),
    (
        "Notice",
        "what Azure tells a VM before it does, as a Preempt event of its Scheduled Events: half a minute ahead as \
         a rule, sometimes less, sometimes not at all.",
    ),
    ("Step", "a piece of a job between two points where it can be cut: here, a band of rows of the frame."),
    ("Checkpoint", "how far a job has come, saved outside the VM, so that another one can go on from there."),
    (
        "Handed back",
        "the VM has given up its lease on the job, the time-limited right to work on it. Otherwise nobody could go \
         on before the lease ran out.",
    ),
];

fn footer(story: &Story) -> Markup {
    html! {
        section id="again" aria-labelledby="again-title" {
            h2 id="again-title" { "To see it again" }
            p {
                "The seed decides what strikes whom, and how far the work has come by then: with the same settings, "
                code { "--store " (story.store.name()) " --seed " (story.seed) } " brings the same evictions and kills, on any machine. The frames had "
                (count(story.steps_per_job, "step")) " each, and were saved every " (span(story.checkpoint_every_ms))
                "."
            }
            dl.digests {
                dt { "Digest of the frames" } dd { code { (story.output_digest) } }
                dt { "Digest of an uninterrupted render" } dd { code { (story.reference_digest) } }
            }
            h2 { "Words" }
            dl.words { @for (word, meaning) in WORDS { div { dt { (word) } dd { (meaning) } } } }
        }
    }
}

/// A frame was finished.
const DONE: Icon = Icon("done");
/// A job was handed back.
const BACK: Icon = Icon("back");
/// A VM was killed, or a job cut off by that.
const KILL: Icon = Icon("kill");
/// A notice was given.
const NOTICE: Icon = Icon("notice");

/// A sign, which says nothing to a screen reader: there are always words beside it.
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

/// What the icons refer to: once per page, ahead of them.
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
    fn a_page_says_that_it_was_on_the_emulator() {
        let (mut story, summary) = fixtures::good();
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
        let (story, summary) = fixtures::good();
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
        let (mut story, summary) = fixtures::bad();
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
        let (mut story, _) = fixtures::good();
        story.jobs.clear();
        story.vms.clear();
        story.took_ms = 0;
        let page = page(&story, &Summary::of(&story, Vec::new(), 0));
        assert!(page.contains("0 frames, 0 evictions, 0 kills"), "{page}");
    }

    #[test]
    fn a_good_run_is_called_good() {
        let (story, summary) = fixtures::good();
        let verdict = Verdict::of(&story, &summary);
        assert!(verdict.is_good());
        let said = "4 frames, 1 eviction, 1 kill: nothing lost, nothing finished twice, every frame equal to an \
                    uninterrupted render";
        assert_eq!(verdict.headline(), said);
        assert_eq!(verdict.bad_frames().count(), 0);
    }

    #[test]
    fn whatever_went_wrong_is_in_the_headline_and_every_bad_frame_is_named() {
        let (story, summary) = fixtures::bad();
        let verdict = Verdict::of(&story, &summary);
        assert!(!verdict.is_good());
        for fault in summary.faults() {
            assert!(verdict.headline().contains(&fault), "{fault} is not in {:?}", verdict.headline());
        }
        let frames: Vec<_> = verdict.bad_frames().map(|(frame, place)| format!("{frame} {place}")).collect();
        assert_eq!(frames, ["frame 00 #frame-0", "frame 01 #frame-1", "frame 02 #frame-2"]);
    }
}
