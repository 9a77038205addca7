//! The end of the report: how to see it again, and what its words mean.

use maud::{Markup, html};

use super::words::{count, span};
use crate::story::Story;

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

pub(super) fn section(story: &Story) -> Markup {
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
