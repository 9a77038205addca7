//! The log: on stderr, as text for people and JSON for machines. Logging never blocks the worker.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{panic, thread};

use reprieve_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, LogSettings};

/// How many lines may wait to be written. More are dropped and counted. Some megabytes at most.
const WAITING_MAX: usize = 4096;

/// The longest line of JSON, in bytes. rsyslog cuts a message at 8 KiB with its header, and nothing can
/// read an object that was cut.
/// <https://www.rsyslog.com/doc/rainerscript/global.html>
const JSON_LINE_MAX: usize = 7 * 1024;

/// How long the process waits at its end for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The running log. Dropping it waits for unwritten lines, up to [`FLUSH_TIMEOUT`].
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Lines>,
}

impl Log {
    /// Starts logging, unless the program has installed a `tracing` subscriber of its own.
    ///
    /// A separate thread writes the lines: a pipe that is not read blocks its writer, and would
    /// otherwise block the control thread with every lease and notice.
    pub(crate) fn begin(LogSettings { filter, format }: LogSettings) -> Result<Self> {
        let terminal = io::stderr().is_terminal();
        let format = format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
        let lines = Arc::new(Lines::default());
        let handle = Handle(Arc::clone(&lines));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || handle.clone());
        let begun = match format {
            LogFormat::Text => log.with_ansi(terminal).finish().try_init(),
            LogFormat::Json => log.json().flatten_event(true).with_span_list(false).finish().try_init(),
        };
        if begun.is_ok() {
            let lines = Arc::clone(&lines);
            let thread = thread::Builder::new().name("reprieve-log".to_owned());
            thread.spawn(move || lines.write_to(io::stderr())).map_err(|error| {
                Error::new(ErrorKind::Internal, "start the log", error.to_string()).with_source(error)
            })?;
        } else {
            tracing::debug!("the program has installed its own tracing subscriber, which is used");
        }
        log_panics();
        Ok(Self { lines })
    }
}

/// Logs panics as everything else is logged, with their place; with `RUST_BACKTRACE=1` also the stack.
fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        reprieve_core::panics::note(panic);
        let text = panic.payload_as_str().unwrap_or("(no message)");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = thread::current();
        let (thread, backtrace) = (thread.name().unwrap_or_default(), Backtrace::capture());
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!(thread, place, panic = text, %backtrace, "a thread panicked");
        } else {
            tracing::error!(thread, place, panic = text, "a thread panicked");
        }
    }));
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.flush(FLUSH_TIMEOUT);
    }
}

/// The buffer between the threads that log and the thread that writes.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    writing: bool,
    lost: u64,
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line without ever waiting for the writer.
    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push_back(line.to_vec());
            self.changed.notify_all();
        } else {
            state.lost += 1;
        }
    }

    /// Writes lines until the process ends.
    fn write_to(&self, mut out: impl Write) {
        loop {
            let (line, lost) = self.next();
            if lost > 0 {
                tracing::warn!(lost, "log lines were dropped, because they were not read fast enough");
            }
            // There is no other place to report a log that can't be written.
            let _unwritable = out.write_all(&fitted(line));
        }
    }

    fn next(&self) -> (Vec<u8>, u64) {
        let mut state = self.state();
        loop {
            state.writing = false;
            if let Some(line) = state.waiting.pop_front() {
                state.writing = true;
                return (line, std::mem::take(&mut state.lost));
            }
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn flush(&self, timeout: Duration) {
        let unwritten = |state: &mut State| state.writing || !state.waiting.is_empty();
        let waited = self.changed.wait_timeout_while(self.state(), timeout, unwritten);
        // The process ends now, whether all lines are written or the time is over.
        drop(waited);
    }
}

/// Shortens the longest fields of a JSON line that is longer than [`JSON_LINE_MAX`].
fn fitted(mut line: Vec<u8>) -> Vec<u8> {
    if line.len() <= JSON_LINE_MAX {
        return line;
    }
    // A line of text is for people, who read it whole.
    let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(&line) else { return line };
    while line.len() > JSON_LINE_MAX {
        let texts = fields.values_mut().filter_map(|field| match field {
            Value::String(text) => Some(text),
            _ => None,
        });
        let Some(longest) = texts.max_by_key(|text| text.len()).filter(|text| text.len() > 8) else { break };
        longest.truncate(longest.floor_char_boundary(longest.len() / 2));
        longest.push('…');
        let Ok(shorter) = serde_json::to_vec(&fields) else { break };
        line = shorter;
        line.push(b'\n');
    }
    line
}

/// The subscriber's writer: one write per event.
#[derive(Debug, Clone)]
struct Handle(Arc<Lines>);

impl Write for Handle {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.push(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use serde_json::json;

    use super::*;

    /// Reports each line that is written to it, and takes the next line only when it is allowed to.
    struct Reader {
        written: mpsc::Sender<String>,
        allowed: mpsc::Receiver<()>,
    }

    impl Write for Reader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let allowed = self.allowed.recv().is_ok();
            let sent = self.written.send(String::from_utf8_lossy(line).into_owned()).is_ok();
            if allowed && sent { Ok(line.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_read_by() -> (Arc<Lines>, mpsc::Receiver<String>, mpsc::Sender<()>) {
        let (lines, (written, lines_read), (allow, allowed)) =
            (Arc::new(Lines::default()), mpsc::channel(), mpsc::channel());
        let writing = Arc::clone(&lines);
        std::thread::spawn(move || writing.write_to(Reader { written, allowed }));
        (lines, lines_read, allow)
    }

    #[test]
    fn a_flush_waits_for_lines_in_their_order_but_not_without_limit() {
        let (lines, read, allow) = lines_read_by();
        lines.push(b"one");
        lines.push(b"two");
        lines.flush(Duration::from_millis(20));
        assert!(read.try_recv().is_err(), "nothing was read, and the flush still ended");
        allow.send(()).unwrap();
        allow.send(()).unwrap();
        lines.flush(Duration::from_secs(60));
        assert_eq!(read.try_iter().collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_long_line_of_json_is_shortened_and_still_read() {
        let event =
            json!({ "level": "WARN", "error": "ä\n".repeat(20_000), "stack": "s".repeat(9_000), "step": 7 });
        let whole = fitted(format!("{event}\n").into_bytes());
        assert!(whole.len() <= JSON_LINE_MAX && whole.len() > 2_000, "{}", whole.len());
        assert_eq!(whole.last(), Some(&b'\n'));
        let read: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!((&read["level"], &read["step"]), (&event["level"], &event["step"]));
        for field in ["error", "stack"] {
            let start = read[field].as_str().unwrap().trim_end_matches('…');
            assert!(!start.is_empty() && event[field].as_str().unwrap().starts_with(start), "{field}");
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        let numbers = format!("{}\n", json!({ "sizes": vec![1; 9_000] }));
        for line in ["{\"a\":1}\n".to_owned(), "text ".repeat(9_000), numbers] {
            assert_eq!(fitted(line.clone().into_bytes()), line.into_bytes());
        }
    }

    #[test]
    fn lines_that_are_not_read_are_counted_and_do_not_wait() {
        let (lines, _read, _allow) = lines_read_by();
        // The thread holds one line at most.
        for _ in 0..WAITING_MAX + 10 {
            lines.push(b"line");
        }
        let lost = lines.state().lost;
        assert!((9..=10).contains(&lost), "{lost}");
    }
}
