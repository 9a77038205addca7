//! The log: on stderr, as text for people and JSON for machines. Logging never blocks the worker.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{panic, thread};

use reprieve_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::{FormatFields, JsonFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::job_spans::JobSpans;
use crate::settings::{LogFormat, LogSettings};

/// How many lines may wait to be written. More are dropped and counted. Some megabytes at most.
const WAITING_MAX: usize = 4096;

/// The longest line of JSON, in bytes. rsyslog cuts a message at 8 KiB with its header, and nothing can
/// read an object that was cut.
/// <https://www.rsyslog.com/doc/rainerscript/global.html>
const JSON_LINE_MAX: usize = 7 * 1024;

/// How many lines are kept once they are written, for a diagnosis: at most a megabyte in JSON.
const RECENT_MAX: usize = 150;

/// How long the process waits at its end for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The running log. Dropping it waits for unwritten lines, up to [`FLUSH_TIMEOUT`].
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Lines>,
    spans: JobSpans,
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
        let (handle, spans) = (Handle(Arc::clone(&lines)), JobSpans::default());
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || handle.clone());
        let begun = match format {
            LogFormat::Text => log.with_ansi(terminal).finish().with(spans.clone()).try_init(),
            LogFormat::Json => {
                // All spans: in one of the job's own, the job's id is in another.
                let log = log.json().flatten_event(true);
                log.fmt_fields(SpanFields::default()).finish().with(spans.clone()).try_init()
            }
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
        Ok(Self { lines, spans })
    }

    /// Returns what knows the spans that jobs have open.
    pub(crate) fn spans(&self) -> JobSpans {
        self.spans.clone()
    }

    /// Returns the last lines that were written.
    pub(crate) fn recent(&self) -> Recent {
        Recent(Arc::clone(&self.lines))
    }
}

/// A view of the last lines of the log.
#[derive(Debug, Clone)]
pub(crate) struct Recent(Arc<Lines>);

impl Recent {
    /// That of a program that logs elsewhere.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self(Arc::default())
    }

    /// Returns the last lines, oldest first, [`RECENT_MAX`] at most.
    #[cfg(target_os = "linux")]
    pub(crate) fn lines(&self) -> Vec<String> {
        let written = |line: &Vec<u8>| String::from_utf8_lossy(line).trim_end().to_owned();
        self.0.state().recent.iter().map(written).collect()
    }
}

/// Writes the fields of a span as JSON. Each job has a span, and most jobs log nothing in it; tracing-subscriber's
/// own format collects the fields in a map first, which takes several times as long.
#[derive(Debug, Default)]
struct SpanFields(JsonFields);

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        // Written once: the text behind the writer begins empty, and would grow with each part.
        let mut object = Object { text: String::with_capacity(FIELDS_USUAL), is_empty: true };
        object.text.push('{');
        fields.record(&mut object);
        object.text.push('}');
        writer.write_str(&object.text)
    }

    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        let mut merged = FormattedFields::<JsonFields>::new(std::mem::take(&mut current.fields));
        let added = self.0.add_fields(&mut merged, fields);
        current.fields = merged.fields;
        added
    }
}

/// The usual length of a span's fields.
const FIELDS_USUAL: usize = 128;

/// A JSON object that is being written.
struct Object {
    text: String,
    is_empty: bool,
}

impl Object {
    fn push_text(&mut self, text: &str) {
        self.text.push('"');
        self.push_escaped(text);
        self.text.push('"');
    }

    fn push_escaped(&mut self, text: &str) {
        // No end before the text's: so many bytes are looked at at once.
        let escapes = |byte| u8::from(byte < b' ' || byte == b'"' || byte == b'\\');
        let is_plain = text.bytes().fold(0, |any, byte| any | escapes(byte)) == 0;
        if is_plain {
            self.text.push_str(text);
        } else {
            let quoted = Value::from(text).to_string();
            self.text.push_str(&quoted[1..quoted.len() - 1]);
        }
    }

    fn key(&mut self, field: &Field) {
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(',');
        }
        let name = field.name();
        self.push_text(name.strip_prefix("r#").unwrap_or(name));
        self.text.push(':');
    }

    fn number(&mut self, field: &Field, number: impl Into<Value>) {
        self.key(field);
        self.text.push_str(&number.into().to_string());
    }
}

/// Writes inside a JSON string.
impl fmt::Write for Object {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_escaped(text);
        Ok(())
    }
}

impl Visit for Object {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.key(field);
        self.push_text(value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.key(field);
        self.text.push('"');
        // A value that fails to write itself is cut.
        let _is_whole = write!(self, "{value:?}");
        self.text.push('"');
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, value);
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
    /// The last that were written.
    recent: VecDeque<Vec<u8>>,
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
            let line = fitted(line);
            let _unwritable = out.write_all(&line);
            self.keep(line);
        }
    }

    fn keep(&self, line: Vec<u8>) {
        let mut state = self.state();
        if state.recent.len() >= RECENT_MAX {
            state.recent.pop_front();
        }
        state.recent.push_back(line);
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
        let Some(longest) = longest_text(fields.values_mut()).filter(|text| text.len() > 8) else { break };
        longest.truncate(longest.floor_char_boundary(longest.len() / 2));
        longest.push('…');
        let Ok(shorter) = serde_json::to_vec(&fields) else { break };
        line = shorter;
        line.push(b'\n');
    }
    line
}

/// Returns the longest text among the values and in them.
fn longest_text<'a>(values: impl Iterator<Item = &'a mut Value>) -> Option<&'a mut String> {
    let texts = values.filter_map(|value| match value {
        Value::String(text) => Some(text),
        Value::Array(values) => longest_text(Box::new(values.iter_mut()) as Box<dyn Iterator<Item = _>>),
        Value::Object(fields) => longest_text(Box::new(fields.values_mut()) as Box<dyn Iterator<Item = _>>),
        _ => None,
    });
    texts.max_by_key(|text| text.len())
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
        let in_span =
            json!({ "message": "done", "span": { "args": "ä".repeat(20_000) }, "spans": [{ "id": "a" }] });
        let shorter: Value = serde_json::from_slice(&fitted(in_span.to_string().into_bytes())).unwrap();
        assert_eq!((&shorter["message"], &shorter["spans"]), (&in_span["message"], &in_span["spans"]));
        assert!(shorter.to_string().len() <= JSON_LINE_MAX);
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

    /// The subscriber with our fields of spans, and with its own: the same lines.
    #[test]
    fn fields_of_spans_are_logged_as_by_tracing_itself() {
        fn log() {
            let id = "a\"b\\c\u{1}ä";
            let span = tracing::error_span!("job", %id, kind = "k", r#type = 1, at = -2_i64, is = true, later = tracing::field::Empty);
            let _in_it = span.enter();
            tracing::error!("one");
            span.record("later", "now");
            let _inner = tracing::error_span!("inner", part = 0.5, whole = ?Some(3)).entered();
            tracing::error!("two");
            let _empty = tracing::error_span!("empty").entered();
            tracing::error!("three");
        }
        let lines = [false, true].map(|ours| {
            let lines = Arc::new(Lines::default());
            let handle = Handle(Arc::clone(&lines));
            let log_to = tracing_subscriber::fmt().with_writer(move || handle.clone()).without_time();
            let log_to = log_to.json().flatten_event(true);
            if ours {
                tracing::subscriber::with_default(log_to.fmt_fields(SpanFields::default()).finish(), log);
            } else {
                tracing::subscriber::with_default(log_to.finish(), log);
            }
            let waiting = std::mem::take(&mut lines.state().waiting);
            waiting.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(lines[0].len(), 3);
        assert_eq!(lines[0], lines[1]);
        assert_eq!(lines[1][1]["spans"][0]["later"], "now");
    }
}
