//! The lines that a process writes.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The lines read so far from a pipe. A thread reads until the pipe is closed.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Reads `pipe`.
    #[must_use]
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let kept = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                kept.lock().push(line);
            }
        });
        lines
    }

    /// Returns the lines so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// Returns the first line for which `matches` returns true, if it has been read.
    pub fn find(&self, matches: impl Fn(&str) -> bool) -> Option<String> {
        self.lock().iter().find(|line| matches(line)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
