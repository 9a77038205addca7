//! The journal: where the test jobs say which steps they really did, past everything that is under test.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that any number of processes add lines to.
#[derive(Debug, Clone)]
pub struct Journal(PathBuf);

/// A step that was done, or at least begun.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stepped {
    /// The job.
    pub job: String,
    /// Which of its steps.
    pub step: u64,
    /// The process that did it.
    pub pid: u32,
}

impl Journal {
    /// The journal in `file`.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self(file.into())
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds a line for this process, whole even if it is killed the next moment: it is one write.
    ///
    /// # Errors
    /// The file's.
    pub fn note(&self, job: &str, step: u64) -> io::Result<()> {
        let mut file = File::options().append(true).create(true).open(&self.0)?;
        file.write_all(format!("{job} {step} {}\n", std::process::id()).as_bytes())
    }

    /// All that was noted so far, in that order.
    ///
    /// # Panics
    /// When a line is not whole.
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

    /// How many steps were done again, by whichever process.
    #[must_use]
    pub fn redone(&self) -> usize {
        let all = self.read();
        let distinct: BTreeSet<_> = all.iter().map(|stepped| (&stepped.job, stepped.step)).collect();
        all.len() - distinct.len()
    }
}
