//! Prints changes, one per line, without waiting for the reader of the output.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use jiff::tz::TimeZone;
use reprieve::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::change::ChangeReport;
use crate::out::Out;

/// Writes on its own thread: a reader that stops reading fills the pipe and blocks the writer, and
/// neither polls nor commands nor the signal to stop may wait for it.
#[derive(Debug)]
pub(super) struct Printer {
    /// Unbounded, because an event changes a handful of times in its life.
    lines: mpsc::Sender<String>,
    /// The result of writing, once all lines are written or writing failed.
    written: oneshot::Receiver<Result<()>>,
    closed: Arc<AtomicBool>,
    json: bool,
    /// Whether lines have the column `whose`, because events of other VMs are included.
    all: bool,
    /// The system's.
    zone: TimeZone,
}

impl Printer {
    pub(super) fn new(json: bool, all: bool) -> Result<Self> {
        let (lines, to_write) = mpsc::channel();
        let (done, written) = oneshot::channel();
        let closed = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&closed);
        let write = move || {
            let result = write(&to_write, &shared);
            shared.store(true, Ordering::Relaxed);
            // The receiver is dropped when the watch has failed.
            let _dropped = done.send(result);
        };
        thread::Builder::new().name("reprieve-out".to_owned()).spawn(write).map_err(|error| {
            Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
        })?;
        Ok(Self { lines, written, closed, json, all, zone: TimeZone::system() })
    }

    pub(super) fn print(&self, change: &ChangeReport) -> Result<()> {
        let line = if self.json {
            let json = serde_json::to_string(change).map_err(|error| {
                Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
            })?;
            json + "\n"
        } else {
            change.line(&self.zone, self.all)
        };
        // It fails when nothing can be written any more, which `finish` reports.
        let _unwritten = self.lines.send(line);
        Ok(())
    }

    /// Whether the output is closed or can't be written.
    pub(super) fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Waits until all is written, for as long as it takes.
    pub(super) async fn finish(self) -> Result<()> {
        drop(self.lines);
        self.written.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "write the output", "its thread ended unexpectedly"))
        })
    }
}

/// Writes lines until the sender is dropped.
fn write(lines: &mpsc::Receiver<String>, closed: &AtomicBool) -> Result<()> {
    let mut out = Out::new();
    for line in lines {
        out.text(&line)?;
        out.flush()?;
        closed.store(out.closed(), Ordering::Relaxed);
    }
    Ok(())
}
