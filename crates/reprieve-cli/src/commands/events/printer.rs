//! Prints changes, each on a line of its own, without waiting for whoever reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use jiff::tz::TimeZone;
use reprieve::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::change::Told;
use crate::out::Out;

/// A reader that stands still fills the pipe, and whoever writes more of it stands still, too. So a thread of its own
/// does: neither polls nor commands nor the signal to stop are to wait for it.
#[derive(Debug)]
pub(super) struct Printer {
    /// Unbounded, because an event changes a handful of times in its life.
    lines: mpsc::Sender<String>,
    /// What has become of the lines, when all are written or none will be.
    written: oneshot::Receiver<Result<()>>,
    unread: Arc<AtomicBool>,
    json: bool,
    /// Whether it is said whose an event is, because it may be others'.
    all: bool,
    /// The system's.
    zone: TimeZone,
}

impl Printer {
    pub(super) fn new(json: bool, all: bool) -> Result<Self> {
        let (lines, to_write) = mpsc::channel();
        let (done, written) = oneshot::channel();
        let unread = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&unread);
        let write = move || {
            let result = write(&to_write, &shared);
            shared.store(true, Ordering::Relaxed);
            // Nobody asks when the watch has ended by a fault.
            let _nobody_asks = done.send(result);
        };
        thread::Builder::new().name("reprieve-out".to_owned()).spawn(write).map_err(|error| {
            Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
        })?;
        Ok(Self { lines, written, unread, json, all, zone: TimeZone::system() })
    }

    pub(super) fn print(&self, told: &Told) -> Result<()> {
        let line = if self.json {
            let json = serde_json::to_string(told).map_err(|error| {
                Error::new(ErrorKind::Internal, "write the output", error.to_string()).with_source(error)
            })?;
            json + "\n"
        } else {
            told.line(&self.zone, self.all)
        };
        // It fails when nothing can be written any more, which `finish` says.
        let _unwritten = self.lines.send(line);
        Ok(())
    }

    /// Whether nobody reads any more, or nothing can be written.
    pub(super) fn unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Waits until all is written, for as long as it takes.
    pub(super) async fn finish(self) -> Result<()> {
        drop(self.lines);
        self.written.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "write the output", "its thread has ended by a fault"))
        })
    }
}

/// Writes lines until there will be none, or nobody reads them.
fn write(lines: &mpsc::Receiver<String>, unread: &AtomicBool) -> Result<()> {
    let mut out = Out::new();
    for line in lines {
        out.text(&line)?;
        out.flush()?;
        unread.store(out.unread(), Ordering::Relaxed);
    }
    Ok(())
}
