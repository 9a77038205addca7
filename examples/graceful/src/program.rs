//! Another program that runs for a step: its progress, its end, and that it never outlives the step.
//!
//! What is expected of it: it takes what it needs from its directory and its arguments; each line it prints is how far
//! it is; told to stop (SIGTERM), it saves and exits with [`SAVED`]; and it ends when its stdin does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Split};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The exit code that says: stopped before the end, and saved. `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const SAVED: u8 = 75;

/// How much of what a program wrote on stderr is told, in bytes.
const LAST_WORDS: u64 = 1000;

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    pid: u32,
    child: Child,
    lines: Split<BufReader<ChildStdout>>,
    stderr: PathBuf,
    /// Never written to. A worker that is killed can stop nothing any more, but then the operating system closes this,
    /// which is how the program learns of it. One that does not read its stdin needs a supervisor that kills all
    /// processes of a unit, as systemd does.
    _stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts `command` with more `arguments` in `directory`, which also gets its stderr: nothing has to read along there.
    pub(crate) fn start(command: &[OsString], arguments: &[String], directory: &Path) -> io::Result<Self> {
        let (program, first) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let stderr = directory.join("stderr.txt");
        let mut command = Command::new(program);
        command.args(first).args(arguments).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&stderr)?);
        command.kill_on_drop(true);
        // A group of its own, to be stopped with all that it starts itself; and so that Ctrl-C, which a terminal sends to
        // a whole group, reaches the worker only, which then stops its programs in order.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        // A pipe was asked for, and a program that has not been waited for has a process id.
        let gone = || io::Error::other("it ended while it was started");
        let (pid, stdout) = (child.id().ok_or_else(gone)?, child.stdout.take().ok_or_else(gone)?);
        // Out of the child's hands, which would close it as soon as they wait.
        let stdin = child.stdin.take();
        Ok(Self { pid, child, lines: BufReader::new(stdout).split(b'\n'), stderr, _stdin: stdin })
    }

    /// Its process id, which on Unix is its group's as well.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end, and tells how far it is meanwhile. Cancel-safe.
    pub(crate) async fn run(&mut self, mut progress: impl FnMut(u64)) -> io::Result<ExitStatus> {
        let mut talks = true;
        loop {
            tokio::select! {
                line = self.lines.next_segment(), if talks => match line? {
                    Some(line) => number(&line).map_or((), &mut progress),
                    None => talks = false,
                },
                // Not the end of its output: a process it left behind may hold that open.
                status = self.child.wait() => return status,
            }
        }
    }

    /// Asks it to save and end, and kills it when it has not after `grace`.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.ask();
        if let Ok(status) = timeout(grace, self.run(|_| ())).await {
            return status;
        }
        tracing::warn!(pid = self.pid, ?grace, "a program did not stop in time; it is killed");
        self.kill();
        self.child.wait().await
    }

    /// The end of what it wrote on stderr.
    pub(crate) fn last_words(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.stderr)?;
            file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(LAST_WORDS)))?;
            let mut words = Vec::new();
            file.take(LAST_WORDS).read_to_end(&mut words)?;
            Ok(String::from_utf8_lossy(&words).trim().to_owned())
        };
        read().unwrap_or_else(|error| format!("(its stderr can't be read: {error})"))
    }

    #[cfg(unix)]
    fn ask(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    #[cfg(unix)]
    fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        use rustix::io::Errno;
        use rustix::process::{Pid, kill_process_group};
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match group.map(|group| kill_process_group(group, signal)) {
            // A group without processes is what is wanted.
            Some(Ok(()) | Err(Errno::SRCH)) => {}
            failed => tracing::warn!(pid = self.pid, ?failed, "a program could not be signalled"),
        }
    }

    /// There is no such way to ask, so it loses what it has not saved by itself.
    #[cfg(not(unix))]
    fn ask(&mut self) {
        self.kill();
    }

    #[cfg(not(unix))]
    fn kill(&mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::warn!(pid = self.pid, %error, "a program could not be killed");
        }
    }
}

/// A line that is a number. Others are for people.
fn number(line: &[u8]) -> Option<u64> {
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// What `kill_on_drop` does, for the whole group: also for those that a program which ended well has left behind.
///
/// Once a program was waited for, its id is free for others. No other group can have it yet: the system gives ids out in
/// turn, and this comes in the same breath.
impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
