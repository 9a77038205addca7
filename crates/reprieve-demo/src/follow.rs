//! Follows files that other processes write line by line, the journal and the logs: each line once, and only when it is whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// A file that grows. It need not be there yet.
#[derive(Debug)]
pub(crate) struct Followed {
    path: PathBuf,
    file: Option<File>,
    /// What was read after the last whole line.
    rest: Vec<u8>,
}

impl Followed {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// The lines that were added since, without their ends. Half a line is kept until the rest of it is there, which is
    /// never when its writer was killed.
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
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut followed = Followed::new(path.clone());
        assert_eq!(followed.read().unwrap(), [""; 0]);
        let mut file = File::create(path).unwrap();
        for (written, read) in
            [("one\ntw", &["one"][..]), ("", &[]), ("o\nthree\n", &["two", "three"]), ("fo", &[])]
        {
            file.write_all(written.as_bytes()).unwrap();
            assert_eq!(followed.read().unwrap(), read, "{written:?}");
        }
    }
}
