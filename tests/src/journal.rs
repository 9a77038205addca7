//! The journal: the test jobs write their real steps to it, bypassing the code under test.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file to which any number of processes append lines.
#[derive(Debug, Clone)]
pub struct Journal(PathBuf);

/// A step that was at least begun.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stepped {
    /// The job's id.
    pub job: String,
    /// The number of the step.
    pub step: u64,
    /// The process of the step.
    pub pid: u32,
}

impl Journal {
    /// Opens the journal in `file`.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self(file.into())
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds a line for this process. It is one write, so it is complete even if the process is
    /// killed right after.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn note(&self, job: &str, step: u64) -> io::Result<()> {
        let mut file = File::options().append(true).create(true).open(&self.0)?;
        file.write_all(format!("{job} {step} {}\n", std::process::id()).as_bytes())
    }

    /// Reads all steps so far, in order.
    ///
    /// # Panics
    /// When a line is incomplete.
    #[must_use]
    pub fn read(&self) -> Vec<Stepped> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let line = |line: &str| -> Option<Stepped> {
            let mut words = line.split(' ');
            let job = words.next()?.to_owned();
            Some(Stepped { job, step: words.next()?.parse().ok()?, pid: words.next()?.parse().ok()? })
        };
        text.lines().map(|whole| line(whole).unwrap_or_else(|| panic!("half a line: {whole:?}"))).collect()
    }

    /// Returns the number of repeated steps, by any process.
    #[must_use]
    pub fn redone(&self) -> usize {
        let all = self.read();
        let distinct: BTreeSet<_> = all.iter().map(|stepped| (&stepped.job, stepped.step)).collect();
        all.len() - distinct.len()
    }
}
