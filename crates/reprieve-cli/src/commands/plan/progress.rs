//! The progress bar of simulated runs: on a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for the runs of all tables.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    tables: u64,
}

impl Progress {
    /// Shows a bar for so many tables.
    pub(super) fn new(tables: usize) -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("simulating  {bar:30} {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("██░"));
        }
        Self { bar, tables: tables as u64 }
    }

    /// Counts a run of a table with so many. Tables have about as many runs each.
    pub(super) fn count(&self, of: u64) {
        let all = of.saturating_mul(self.tables);
        if self.bar.length() != Some(all) {
            self.bar.set_length(all);
        }
        self.bar.inc(1);
    }

    /// Takes the bar off the terminal.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
