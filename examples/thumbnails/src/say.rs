//! What is said to people: how far things are, as a bar on a terminal and a line now and then elsewhere; and results.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// How often a log is told.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far something is.
#[derive(Debug)]
pub(crate) struct Bar {
    on_terminal: ProgressBar,
    doing: &'static str,
    next_line: Instant,
}

impl Bar {
    /// Of `total` in all; `doing` says what is being done.
    pub(crate) fn new(doing: &'static str, total: usize) -> Self {
        let bar = ProgressBar::new(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(doing);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { on_terminal: bar, doing, next_line: Instant::now() + LINE_EVERY }
    }

    /// Sets how many are done, and what else there is to say. Never goes back: what was done stays done.
    pub(crate) fn set(&mut self, done: usize, remark: &str) {
        self.on_terminal.set_position(self.on_terminal.position().max(done as u64));
        self.on_terminal.set_message(remark.to_owned());
        if self.on_terminal.is_hidden() && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINE_EVERY;
            let total = self.on_terminal.length().unwrap_or_default();
            note(format!("{} {}/{total} {remark}", self.doing, self.on_terminal.position()).trim_end());
        }
    }

    /// Takes it off the terminal.
    pub(crate) fn clear(&self) {
        self.on_terminal.finish_and_clear();
    }
}

/// A line about what goes on.
#[expect(clippy::print_stderr, reason = "what is no result goes to stderr")]
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

/// A line of the result.
#[expect(clippy::print_stdout, reason = "results are what stdout is for")]
pub(crate) fn result(line: &str) {
    println!("{line}");
}

/// `1 job`, `2 jobs`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
