//! The journal: the steps that the workers really do, written past the code under test.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use reprieve::clock::unix_millis;

/// A journal event of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepEvent {
    Began,
    Done,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at_unix_ms: i64,
    pub(crate) vm: String,
    /// The job's number.
    pub(crate) job: usize,
    /// Which delivery of the job: one for each owner.
    pub(crate) delivery: u32,
    pub(crate) step: u32,
    pub(crate) what: StepEvent,
}

/// The journal as one worker writes it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    vm: String,
}

impl Journal {
    /// Adds to the journal at `path` on behalf of `vm`.
    pub(crate) fn open(path: &Path, vm: String) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).create(true).open(path)?, vm })
    }

    /// Adds a line. It is one write to a file that is open for appending, so it is whole though
    /// other workers write too, and though this one may be killed the next moment.
    pub(crate) fn note(&self, job: usize, delivery: u32, step: u32, what: StepEvent) -> io::Result<()> {
        let entry = Entry { at_unix_ms: unix_millis(), vm: self.vm.clone(), job, delivery, step, what };
        let line = entry.line();
        let written = (&self.file).write(line.as_bytes())?;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

impl Entry {
    fn line(&self) -> String {
        let Self { at_unix_ms, vm, job, delivery, step, what } = self;
        let what = match what {
            StepEvent::Began => "began",
            StepEvent::Done => "done",
        };
        format!("{at_unix_ms} {vm} {job} {delivery} {step} {what}\n")
    }

    /// Reads a line; `None` for anything else.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let entry = Self {
            at_unix_ms: words.next()?.parse().ok()?,
            vm: words.next()?.to_owned(),
            job: words.next()?.parse().ok()?,
            delivery: words.next()?.parse().ok()?,
            step: words.next()?.parse().ok()?,
            what: match words.next()? {
                "began" => StepEvent::Began,
                "done" => StepEvent::Done,
                _ => return None,
            },
        };
        words.next().is_none().then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_entries_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::open(&path, "vm-1".into()).unwrap().note(7, 2, 39, StepEvent::Began).unwrap();
        Journal::open(&path, "vm-2".into()).unwrap().note(7, 3, 39, StepEvent::Done).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let read: Vec<_> = text.lines().map(|line| Entry::read(line).unwrap()).collect();
        assert!(read[0].at_unix_ms > 0 && read[0].at_unix_ms <= read[1].at_unix_ms);
        let first = Entry {
            at_unix_ms: read[0].at_unix_ms,
            vm: "vm-1".into(),
            job: 7,
            delivery: 2,
            step: 39,
            what: StepEvent::Began,
        };
        assert_eq!(read[0], first);
        assert_eq!((read[1].vm.as_str(), read[1].what), ("vm-2", StepEvent::Done));
    }

    #[test]
    fn an_invalid_line_is_no_entry() {
        for line in ["", "1 vm-1 2 3 4", "1 vm-1 2 3 4 ended", "1 vm-1 2 3 4 done x", "x vm-1 2 3 4 done"] {
            assert_eq!(Entry::read(line), None, "{line:?}");
        }
    }
}
