//! Observes the workers by what they write: the journal of their steps, and their logs.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use reprieve::{Error, ErrorKind, Result};

use crate::directory::{self, DemoDirectory};
use crate::journal::Entry;
use crate::log::{LogEvent, Logged};
use crate::progress::{Progress, Update};

/// Everything that was written so far.
#[derive(Debug)]
pub(crate) struct Observer {
    logs: PathBuf,
    journal: TailedFile,
    /// The log of each VM, also of those that are gone.
    by_vm: Vec<(String, TailedFile)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) logged: Vec<Logged>,
}

impl Observer {
    /// Observes the workers in `directory`.
    pub(crate) fn new(directory: &DemoDirectory) -> Self {
        Self {
            logs: directory.logs(),
            journal: TailedFile::new(directory.journal()),
            by_vm: Vec::new(),
            entries: Vec::new(),
            logged: Vec::new(),
        }
    }

    /// Watches `vm`, too.
    pub(crate) fn add(&mut self, vm: &str) {
        self.by_vm.push((vm.to_owned(), TailedFile::new(directory::log(&self.logs, vm))));
    }

    /// Applies new lines to `progress` and returns the updates to show. Logs come first: a VM
    /// released a job before another resumed it.
    pub(crate) fn look(&mut self, progress: &mut Progress) -> Result<Vec<Update>> {
        let mut news = Vec::new();
        for (vm, log) in &mut self.by_vm {
            for line in log.read().map_err(failed)? {
                let Some(logged) = Logged::read(vm, &line) else { continue };
                news.extend(progress.logged(&logged));
                self.logged.push(logged);
            }
        }
        for line in self.journal.read().map_err(failed)? {
            let Some(entry) = Entry::read(&line) else {
                let message = format!("{line:?} in the journal is not an entry");
                return Err(Error::new(ErrorKind::Corrupt, "watch the workers", message));
            };
            news.extend(progress.entered(&entry));
            self.entries.push(entry);
        }
        Ok(news)
    }

    /// Whether `vm` has drained.
    pub(crate) fn has_drained(&self, vm: &str) -> bool {
        self.logged.iter().any(|logged| logged.vm == vm && matches!(logged.what, LogEvent::Drained(_)))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "watch the workers", error.to_string()).with_source(error)
}

/// A file that grows. It need not be there yet.
#[derive(Debug)]
pub(crate) struct TailedFile {
    path: PathBuf,
    file: Option<File>,
    /// The text after the last whole line.
    rest: Vec<u8>,
}

impl TailedFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// The lines that were added since, without their ends. Half a line is kept until the rest of
    /// it is there, which is never when its writer was killed.
    pub(crate) fn read(&mut self) -> io::Result<Vec<String>> {
        let file = match &mut self.file {
            Some(file) => file,
            none => match File::open(&self.path) {
                Ok(file) => none.insert(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        file.read_to_end(&mut self.rest)?;
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Ok(Vec::new()) };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tailed = TailedFile::new(path.clone());
        assert_eq!(tailed.read().unwrap(), [""; 0]);
        let mut file = File::create(path).unwrap();
        for (written, read) in
            [("one\ntw", &["one"][..]), ("", &[]), ("o\nthree\n", &["two", "three"]), ("fo", &[])]
        {
            file.write_all(written.as_bytes()).unwrap();
            assert_eq!(tailed.read().unwrap(), read, "{written:?}");
        }
    }
}
