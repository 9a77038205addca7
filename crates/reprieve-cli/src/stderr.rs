//! Standard error, written by a thread of its own: a full pipe blocks its writer, and a watch must go
//! on.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use reprieve::{Error, ErrorKind, Result};

/// How many lines may wait for the reader. More are dropped and counted.
const WAITING_MAX: usize = 1024;

/// How long the process waits at its end for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LINES: OnceLock<Lines> = OnceLock::new();

/// From now on a thread writes the lines of stderr. Dropping it waits for them, up to
/// [`FLUSH_TIMEOUT`].
#[derive(Debug)]
pub(crate) struct Background(());

impl Background {
    pub(crate) fn begin() -> Result<Self> {
        let lines = LINES.get_or_init(Lines::default);
        let thread = thread::Builder::new().name("reprieve-stderr".to_owned());
        thread.spawn(|| lines.write_to(io::stderr())).map_err(|error| {
            Error::new(ErrorKind::Internal, "write to stderr", error.to_string()).with_source(error)
        })?;
        Ok(Self(()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(lines) = LINES.get() {
            lines.flush(FLUSH_TIMEOUT);
        }
    }
}

/// Prints a line: at once, or by the thread if there is one.
pub(crate) fn print(line: &str) {
    match LINES.get() {
        Some(lines) => lines.push(line),
        // When stderr is closed, the command goes on.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// The lines between those that print and the thread that writes.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<String>,
    writing: bool,
    dropped: u64,
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &str) {
        let mut state = self.state();
        if state.waiting.len() < WAITING_MAX {
            state.waiting.push_back(format!("{line}\n"));
            self.changed.notify_all();
        } else {
            state.dropped += 1;
        }
    }

    /// Writes lines until the process ends.
    fn write_to(&self, mut out: impl Write) {
        loop {
            let (line, dropped) = self.next();
            if dropped > 0 {
                self.push(&format!("{dropped} lines were dropped, because nobody read stderr"));
            }
            // When stderr is closed, the command goes on.
            drop(out.write_all(line.as_bytes()));
        }
    }

    fn next(&self) -> (String, u64) {
        let mut state = self.state();
        loop {
            state.writing = false;
            if let Some(line) = state.waiting.pop_front() {
                state.writing = true;
                return (line, std::mem::take(&mut state.dropped));
            }
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn flush(&self, timeout: Duration) {
        let unwritten = |state: &mut State| state.writing || !state.waiting.is_empty();
        drop(self.changed.wait_timeout_while(self.state(), timeout, unwritten));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a line only when it is allowed to.
    struct Reader {
        read: mpsc::Sender<String>,
        allowed: mpsc::Receiver<()>,
    }

    impl Write for Reader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let allowed = self.allowed.recv().is_ok();
            let sent = self.read.send(String::from_utf8_lossy(line).into_owned()).is_ok();
            if allowed && sent { Ok(line.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let lines: &'static Lines = Box::leak(Box::default());
        let ((read, lines_read), (allow, allowed)) = (mpsc::channel(), mpsc::channel());
        thread::spawn(move || lines.write_to(Reader { read, allowed }));
        lines.push("first");
        lines.flush(Duration::from_millis(20));
        // The thread holds the first line.
        for _ in 0..WAITING_MAX + 7 {
            lines.push("line");
        }
        for _ in 0..WAITING_MAX + 2 {
            allow.send(()).unwrap();
        }
        lines.flush(Duration::from_secs(60));
        let read: Vec<_> = lines_read.try_iter().collect();
        assert_eq!((read.len(), &*read[0], &*read[1]), (WAITING_MAX + 2, "first\n", "line\n"));
        let dropped: Vec<_> = read.iter().filter(|line| line.contains("lines were dropped")).collect();
        assert_eq!(dropped.len(), 1, "{dropped:?}");
    }
}
