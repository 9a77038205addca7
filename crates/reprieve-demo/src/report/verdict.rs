//! The report's first sentence: whether all went well, and if not, what did not.

use super::frames;
use super::words::{count, frame};
use crate::story::Story;
use crate::summary::Summary;

/// What the run came to.
pub(super) struct Verdict {
    headline: String,
    faults: Vec<String>,
    bad_frames: Vec<usize>,
}

impl Verdict {
    pub(super) fn of(story: &Story, summary: &Summary) -> Self {
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

    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    /// One sentence without its full stop.
    pub(super) fn headline(&self) -> &str {
        &self.headline
    }

    /// The frames to look at, if something is wrong with some: how each is called, and its place on the page.
    pub(super) fn bad_frames(&self) -> impl Iterator<Item = (String, String)> {
        self.bad_frames.iter().map(|&number| (frame(number), format!("#frame-{number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn a_good_run_is_called_good() {
        let (story, summary) = made_up::good();
        let verdict = Verdict::of(&story, &summary);
        assert!(verdict.is_good());
        let said = "4 frames, 1 eviction, 1 kill: nothing lost, nothing finished twice, every frame equal to an \
                    uninterrupted render";
        assert_eq!(verdict.headline(), said);
        assert_eq!(verdict.bad_frames().count(), 0);
    }

    #[test]
    fn whatever_went_wrong_is_in_the_headline_and_every_bad_frame_is_named() {
        let (story, summary) = made_up::bad();
        let verdict = Verdict::of(&story, &summary);
        assert!(!verdict.is_good());
        for fault in summary.faults() {
            assert!(verdict.headline().contains(&fault), "{fault} is not in {:?}", verdict.headline());
        }
        let frames: Vec<_> = verdict.bad_frames().map(|(frame, place)| format!("{frame} {place}")).collect();
        assert_eq!(frames, ["frame 00 #frame-0", "frame 01 #frame-1", "frame 02 #frame-2"]);
    }
}
