//! Standard output, which may be closed at any time, and lines for standard error.

use std::io::{self, BufWriter, ErrorKind as IoErrorKind, Write};

use reprieve::{Error, ErrorKind, Result};
use serde::Serialize;

/// Buffered standard output. When its reader has closed the pipe (`| head`), the rest is dropped
/// silently.
#[derive(Debug)]
pub(crate) struct Out {
    to: BufWriter<io::Stdout>,
    closed: bool,
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { to: BufWriter::new(io::stdout()), closed: false }
    }

    /// Whether the reader has closed the pipe.
    pub(crate) const fn closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let written = self.to.write_all(bytes);
        self.note(written)
    }

    /// A JSON document on one line, without its end.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<()> {
        self.serialised(serde_json::to_string(document))
    }

    /// A JSON document for people, without the end of its last line.
    pub(crate) fn pretty_json(&mut self, document: &impl Serialize) -> Result<()> {
        self.serialised(serde_json::to_string_pretty(document))
    }

    fn serialised(&mut self, json: serde_json::Result<String>) -> Result<()> {
        let json = json.map_err(|error| {
            Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
        })?;
        self.text(&json)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.note(flushed)
    }

    fn note(&mut self, result: io::Result<()>) -> Result<()> {
        match result {
            Err(error) if error.kind() == IoErrorKind::BrokenPipe => self.closed = true,
            Err(error) => {
                return Err(
                    Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
                );
            }
            Ok(()) => {}
        }
        Ok(())
    }
}

/// Prints a command's whole output: `document` as JSON on one line, or else the text of `page`.
pub(crate) fn answer(json: bool, document: &impl Serialize, page: impl FnOnce() -> String) -> Result<()> {
    let mut out = Out::new();
    if json {
        out.json(document)?;
        out.text("\n")?;
    } else {
        out.text(&page())?;
    }
    out.flush()
}

/// Prints a line on stderr.
pub(crate) fn print_stderr(line: &str) {
    crate::stderr::print(line);
}
