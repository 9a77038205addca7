//! Reads arguments of jobs, one JSON document per line, in batches of bounded size.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use reprieve::{Error, ErrorKind, Result};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// The most lines in one batch.
const BATCH_LINES_MAX: usize = 500;

/// The bytes after which a batch is closed.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The longest line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The read buffer: about a batch of short lines.
const READ_BYTES: usize = 64 << 10;

/// The operation that errors name.
pub(super) const OPERATION: &str = "enqueue the jobs";

/// A batch of arguments, or the error that ends the input.
pub(super) type Batch = Result<Vec<Box<RawValue>>>;

/// Opens a file, or stdin for `-`, and returns it with its name for messages.
pub(super) fn open(path: &Path) -> Result<(Box<dyn Read + Send>, String)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), "stdin".to_owned()));
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((Box::new(file), name)),
        Err(error) => {
            Err(Error::new(ErrorKind::Invalid, OPERATION, format!("{name} can't be opened: {error}"))
                .with_source(error))
        }
    }
}

/// How deep arguments may be nested: `serde_json`, which jobs read them with, takes no more.
const LEVELS_MAX: usize = 127;

/// Checks one JSON document; `name` is its name in errors.
pub(super) fn parse(name: &str, text: &str) -> Result<Box<RawValue>> {
    // Not owned: the document without the white space around it.
    let parsed: serde_json::Result<&RawValue> = serde_json::from_str(text);
    let json = parsed.map_err(|error| {
        let (line, column, text) = (error.line(), error.column(), error.to_string());
        let what = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let at = if line > 1 { format!("line {line} column {column}") } else { format!("column {column}") };
        Error::new(ErrorKind::Invalid, OPERATION, format!("{name} is not JSON: {what} at {at}"))
    })?;
    if levels(json.get()) > LEVELS_MAX {
        let message = format!("{name} is nested more than {LEVELS_MAX} levels deep; no job could read it");
        return Err(Error::new(ErrorKind::Invalid, OPERATION, message));
    }
    Ok(json.to_owned())
}

/// How many lists and objects of the JSON are within each other.
fn levels(json: &str) -> usize {
    let (mut levels, mut deepest, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                levels += 1;
                deepest = deepest.max(levels);
            }
            b']' | b'}' if !in_text => levels -= 1,
            _ => {}
        }
    }
    deepest
}

/// Reads on its own thread, while earlier batches are enqueued. The first error ends it, after all
/// lines before it.
///
/// A batch is closed early when the next line has not arrived yet, so a slow writer's lines are not
/// held back.
pub(super) fn read(from: Box<dyn Read + Send>, name: String) -> mpsc::Receiver<Batch> {
    let (batches, receiver) = mpsc::channel(2);
    std::thread::spawn(move || {
        let mut lines = Lines { from: BufReader::with_capacity(READ_BYTES, from), name, number: 0 };
        loop {
            let (batch, end) = lines.batch();
            let last = end.is_some();
            let full = (!batch.is_empty()).then_some(Ok(batch));
            let fault = end.and_then(Result::err).map(Err);
            // The receiver is closed when the command has failed.
            let sent = full.into_iter().chain(fault).all(|one| batches.blocking_send(one).is_ok());
            if last || !sent {
                return;
            }
        }
    });
    receiver
}

struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    name: String,
    number: u64,
}

impl Lines {
    /// The next lines, and the end if it is reached: well, or with a fault.
    fn batch(&mut self) -> (Vec<Box<RawValue>>, Option<Result<()>>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX {
            match self.next() {
                Ok(Some(line)) => {
                    bytes += line.get().len();
                    batch.push(line);
                }
                Ok(None) => return (batch, Some(Ok(()))),
                Err(fault) => return (batch, Some(Err(fault))),
            }
            if !self.from.buffer().contains(&b'\n') {
                break;
            }
        }
        (batch, None)
    }

    /// The next line that is not blank.
    fn next(&mut self) -> Result<Option<Box<RawValue>>> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            let read = (&mut self.from).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line);
            read.map_err(|error| self.fault(&format!("can't be read: {error}")))?;
            if line.is_empty() {
                return Ok(None);
            }
            if line.len() > LINE_BYTES_MAX {
                return Err(self.fault(&format!("has more than {LINE_BYTES_MAX} bytes")));
            }
            let text = std::str::from_utf8(&line).map_err(|_| self.fault("is not UTF-8"))?;
            if !text.trim().is_empty() {
                return parse(&self.name_of_line(), text).map(Some);
            }
        }
    }

    fn name_of_line(&self) -> String {
        format!("{} line {}", self.name, self.number)
    }

    fn fault(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, OPERATION, format!("{} {what}", self.name_of_line()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batches as texts, and the error that ended them.
    fn all(from: impl Read + Send + 'static) -> (Vec<Vec<String>>, Option<String>) {
        let mut receiver = read(Box::new(from), "jobs.jsonl".to_owned());
        let mut batches = Vec::new();
        while let Some(batch) = receiver.blocking_recv() {
            match batch {
                Ok(batch) => batches.push(batch.iter().map(|line| line.get().to_owned()).collect()),
                Err(fault) => return (batches, Some(fault.to_string())),
            }
        }
        (batches, None)
    }

    #[test]
    fn lines_come_in_order_in_batches_with_blank_ones_left_out() {
        let text: String = (0..1_201).fold("\n \r\n".to_owned(), |text, n| text + &format!("{n}\r\n"));
        let (batches, fault) = all(io::Cursor::new(text.trim_end().to_owned()));
        assert_eq!(fault, None);
        assert!(batches.iter().all(|batch| (1..=BATCH_LINES_MAX).contains(&batch.len())));
        let all: Vec<_> = batches.concat();
        assert_eq!(all, (0..1_201).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_fault_names_its_line_and_follows_the_lines_before_it() {
        for (bad, expected) in [
            (&b"{\"a\": }"[..], "jobs.jsonl line 3 is not JSON: expected value at column 7"),
            (b"1 2", "jobs.jsonl line 3 is not JSON: trailing characters at column 3"),
            (b"\xff", "jobs.jsonl line 3 is not UTF-8"),
        ] {
            let text = [&b"1\n2\n"[..], bad, b"\n4\n"].concat();
            let (batches, fault) = all(io::Cursor::new(text));
            assert_eq!(batches.concat(), ["1", "2"]);
            assert_eq!(fault.as_deref(), Some(format!("{OPERATION}: {expected}").as_str()));
        }
    }

    #[test]
    fn arguments_that_no_job_could_read_are_refused() {
        let nested = |levels: usize| format!("{}\"[[{{\\\"[\"{}", "[".repeat(levels), "]".repeat(levels));
        for levels in [0, 1, 127] {
            let json = parse("--args", &nested(levels)).unwrap();
            serde_json::from_str::<serde_json::Value>(json.get()).unwrap();
        }
        let error = parse("--args", &nested(128)).unwrap_err().to_string();
        assert!(error.contains("--args is nested more than 127 levels deep"), "{error}");
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let (batches, fault) = all(io::Read::chain(&b"1\n"[..], io::repeat(b'7')));
        assert_eq!(batches.concat(), ["1"]);
        assert!(fault.is_some_and(|fault| fault.ends_with("line 2 has more than 16777216 bytes")));
    }

    #[test]
    fn a_slow_writers_lines_are_not_held_back() {
        /// Returns one line for each message on the channel.
        struct Slow(std::sync::mpsc::Receiver<&'static [u8]>);
        impl Read for Slow {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let Ok(line) = self.0.recv() else { return Ok(0) };
                into[..line.len()].copy_from_slice(line);
                Ok(line.len())
            }
        }
        let (write, lines) = std::sync::mpsc::channel();
        let mut batches = read(Box::new(Slow(lines)), "stdin".to_owned());
        for line in [&b"1\n"[..], b"2\n"] {
            write.send(line).unwrap();
            assert_eq!(batches.blocking_recv().unwrap().unwrap().len(), 1);
        }
        drop(write);
        assert!(batches.blocking_recv().is_none());
    }
}
