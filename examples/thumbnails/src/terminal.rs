//! Prints results to stdout, and messages and progress to stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// The interval of progress lines, where stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A progress bar. Where stderr is not a terminal, it prints a line now and then instead.
#[derive(Debug)]
pub(crate) struct Bar {
    inner: ProgressBar,
    activity: &'static str,
    next_line: Instant,
}

impl Bar {
    /// Shows a bar from 0 to `total`. `activity` is its label.
    pub(crate) fn new(activity: &'static str, total: usize) -> Self {
        let bar = ProgressBar::new(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(activity);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { inner: bar, activity, next_line: Instant::now() + LINE_EVERY }
    }

    /// Sets the progress and a remark. The bar never moves back, even when a worker is killed and
    /// its jobs' pictures no longer count.
    pub(crate) fn set(&mut self, done: usize, remark: &str) {
        self.inner.set_position(self.inner.position().max(done as u64));
        self.inner.set_message(remark.to_owned());
        if self.inner.is_hidden() && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINE_EVERY;
            let total = self.inner.length().unwrap_or_default();
            note(format!("{} {}/{total} {remark}", self.activity, self.inner.position()).trim_end());
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn clear(&self) {
        self.inner.finish_and_clear();
    }
}

/// Prints a message to stderr.
#[expect(clippy::print_stderr, reason = "only results belong on stdout")]
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

/// Prints a line of the result to stdout.
#[expect(clippy::print_stdout, reason = "results belong on stdout")]
pub(crate) fn result(line: &str) {
    println!("{line}");
}

/// Formats a count with its noun: `1 job`, `2 jobs`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
