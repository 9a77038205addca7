//! Standard output, whose reader may go away at any time.

use std::io::{self, BufWriter, ErrorKind as IoErrorKind, Write};

use reprieve::{Error, ErrorKind, Result};
use serde::Serialize;

/// Buffered standard output. When its reader has gone (`| head`), the rest is dropped without a word.
#[derive(Debug)]
pub(crate) struct Out {
    to: BufWriter<io::Stdout>,
    unread: bool,
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { to: BufWriter::new(io::stdout()), unread: false }
    }

    /// Whether nobody reads any more.
    pub(crate) const fn unread(&self) -> bool {
        self.unread
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        if self.unread {
            return Ok(());
        }
        let written = self.to.write_all(text.as_bytes());
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
        if self.unread {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.note(flushed)
    }

    fn note(&mut self, result: io::Result<()>) -> Result<()> {
        match result {
            Err(error) if error.kind() == IoErrorKind::BrokenPipe => self.unread = true,
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

/// All that a command has to say: `document` as JSON on one line where that was asked for, or else the text of `page`.
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

/// A line for whoever runs the command, on stderr.
pub(crate) fn say(line: &str) {
    // When stderr is gone there is nobody to tell, and nothing depends on it.
    let _nobody_listens = writeln!(io::stderr(), "{line}");
}
