//! The output while the demo runs: on a terminal a bar per job below the events, else the events
//! alone.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::fleet::Replaced;
use crate::format::count;
use crate::frame::BANDS;
use crate::log::Drained;
use crate::progress::{Holder, Job, Progress, State, Update};

/// Rows that the bars leave to the events.
const EVENT_ROWS: usize = 8;

/// The columns of the longest bar; a terminal with fewer wraps it.
const BAR_COLUMNS: usize = 74;

/// A line on stderr, where no bars are shown.
pub(crate) fn say(line: &str) {
    // When stderr is closed, the demo goes on.
    let _closed = writeln!(io::stderr(), "{line}");
}

/// The demo's output on stderr.
#[derive(Debug)]
pub(crate) struct Screen {
    began: Instant,
    all: MultiProgress,
    bars: Vec<Bar>,
    /// The number of bars that fit.
    room: usize,
}

/// The bar of one job, and what it shows.
#[derive(Debug)]
struct Bar {
    label: String,
    shown: Option<ProgressBar>,
    job: Option<Job>,
}

impl Screen {
    /// For so many jobs; the clock begins now.
    pub(crate) fn new(jobs: usize) -> Self {
        let all = MultiProgress::new();
        let (rows, columns) = Term::stderr().size_checked().unwrap_or((24, 80));
        let bar = |number| Bar { label: frame(number), shown: None, job: None };
        Self {
            began: Instant::now(),
            all,
            bars: (0..jobs).map(bar).collect(),
            room: room(rows.into(), columns.into()),
        }
    }

    /// Shows how far the jobs are.
    pub(crate) fn show(&mut self, progress: &Progress) {
        if self.all.is_hidden() {
            return;
        }
        let all_fit = self.bars.len() <= self.room;
        let mut shown = self.bars.iter().filter(|bar| bar.shown.is_some()).count();
        for (bar, job) in self.bars.iter_mut().zip(progress.jobs()) {
            if bar.job.as_ref() == Some(job) {
                continue;
            }
            bar.job = Some(job.clone());
            // Those that move, where there is no room for all.
            let wanted = all_fit || !matches!(job.state, State::Waiting | State::Finished);
            match &bar.shown {
                None if wanted && shown < self.room => {
                    bar.shown = Some(self.all.add(fresh(&bar.label)));
                    shown += 1;
                }
                Some(unwanted) if !wanted => {
                    self.all.remove(unwanted);
                    bar.shown = None;
                    shown -= 1;
                }
                None | Some(_) => {}
            }
            if let Some(bar) = &bar.shown {
                bar.set_position(job.done.into());
                bar.set_message(remark(&job.state));
                bar.tick();
            }
        }
    }

    /// An event, above the bars.
    pub(crate) fn say(&self, line: &str) {
        let line = format!("{:5.1}s  {line}", self.began.elapsed().as_secs_f64());
        // When stderr is closed, the demo goes on.
        if self.all.is_hidden() || self.all.println(&line).is_err() {
            say(&line);
        }
    }

    /// Prints that an eviction was announced.
    pub(crate) fn announced(&self, vm: &str, notice: Duration) {
        let when = if notice.is_zero() { "now".to_owned() } else { format!("in {notice:?}") };
        self.say(&format!("{vm}: eviction announced, {when}"));
    }

    /// Prints that a VM was evicted or killed, and replaced.
    pub(crate) fn replaced(&self, Replaced { gone, by }: &Replaced, noticed: bool) {
        let how = if noticed { "is evicted" } else { "is killed without notice" };
        self.say(&format!("{gone} {how}; {by} replaces it"));
    }

    /// Prints an update.
    pub(crate) fn news(&self, news: &Update) {
        self.say(&match news {
            Update::Resumed { job, vm, step: 0 } => {
                format!("{} starts again on {vm}: nothing was saved yet", frame(*job))
            }
            Update::Resumed { job, vm, step } => {
                format!("{} resumes on {vm} at step {step} of {BANDS}", frame(*job))
            }
            Update::Released { vm, report } => released(vm, report),
        });
    }

    /// Takes the bars off the terminal.
    pub(crate) fn clear(&self) {
        // A closed terminal shows nothing either.
        let _gone = self.all.clear();
    }
}

/// The number of bars that fit on a terminal of this size, at least one.
fn room(rows: usize, columns: usize) -> usize {
    (rows.saturating_sub(EVENT_ROWS) / BAR_COLUMNS.div_ceil(columns.max(1))).max(1)
}

fn frame(number: usize) -> String {
    format!("frame {number:02}")
}

fn released(vm: &str, report: &Drained) -> String {
    let Drained { held, abandoned, released_after_ms: after_ms, .. } = *report;
    let jobs = match (held, abandoned) {
        (0, _) => return format!("{vm}: read the notice; held no job"),
        (1, 0) => "its job".to_owned(),
        (held, 0) => format!("its {held} jobs"),
        (held, abandoned) => format!("{} of its {}", held.saturating_sub(abandoned), count(held, "job")),
    };
    format!("{vm}: released {jobs} {after_ms} ms after reading the notice")
}

/// The state of a job, in a few words.
fn remark(state: &State) -> String {
    match state {
        State::Waiting => String::new(),
        State::Held(Holder { vm, first, .. }) => {
            let mut remark = format!("on {vm}");
            if *first > 0 {
                // Writing to a string can't fail.
                let _written = write!(remark, ", resumed at {first}");
            }
            remark
        }
        State::Interrupted => "interrupted".to_owned(),
        State::Finished => "done".to_owned(),
    }
}

/// A bar that has not been drawn: one that is changed before it is among the others would draw
/// itself at once.
fn fresh(label: &str) -> ProgressBar {
    let bar = ProgressBar::new(BANDS.into()).with_prefix(label.to_owned());
    match ProgressStyle::with_template("{prefix}  {bar:30} {pos:>2}/{len}  {msg}") {
        Ok(style) => bar.with_style(style.progress_chars("██░")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_names_a_jobs_holder_and_whether_it_was_resumed() {
        let held = |first| State::Held(Holder { vm: "vm-4".into(), first, moved: true });
        let states = [State::Waiting, held(0), held(17), State::Interrupted, State::Finished];
        let remarks = ["", "on vm-4", "on vm-4, resumed at 17", "interrupted", "done"];
        assert_eq!(states.each_ref().map(remark), remarks);
    }

    #[test]
    fn released_jobs_are_counted() {
        let line = |held, abandoned| {
            let report =
                Drained { held, abandoned, released_after_ms: 14, quiesced_after_ms: 14, work_lost_ms: 0 };
            released("vm-1", &report)
        };
        assert_eq!(line(1, 0), "vm-1: released its job 14 ms after reading the notice");
        assert_eq!(line(2, 0), "vm-1: released its 2 jobs 14 ms after reading the notice");
        assert_eq!(line(2, 1), "vm-1: released 1 of its 2 jobs 14 ms after reading the notice");
        assert_eq!(line(0, 0), "vm-1: read the notice; held no job");
    }

    #[test]
    fn a_bar_that_wraps_takes_the_room_of_several() {
        let sizes = [(24, 80), (24, 40), (10, 40), (5, 20), (60, 200), (0, 0)];
        assert_eq!(sizes.map(|(rows, columns)| room(rows, columns)), [16, 8, 1, 1, 52, 1]);
    }
}
