//! A child process that runs for one step, reports its progress, and never outlives the step.
//!
//! The program must do the following:
//! - read its input from its arguments and its working directory;
//! - print its progress, one number a line;
//! - save and exit with [`EXIT_SAVED`] on SIGTERM;
//! - exit when its stdin is closed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Split};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The exit code of a program that saved and stopped early: `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const EXIT_SAVED: u8 = 75;

/// The number of bytes at the end of a program's stderr that an error quotes.
const STDERR_TAIL_BYTES: u64 = 1000;

/// A running program. It is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    pid: u32,
    child: Child,
    lines: Split<BufReader<ChildStdout>>,
    stderr: PathBuf,
    /// The write end of the program's stdin, which nothing writes to.
    ///
    /// A killed worker can't stop its programs, but the operating system closes this pipe, and the
    /// program exits. For a program that does not read its stdin, use a supervisor that kills all
    /// processes of a unit, such as systemd.
    _stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts `command` with additional `arguments` and `directory` as its working directory.
    ///
    /// Stderr is written to a file there, so that the program never blocks on a full pipe.
    pub(crate) fn start(command: &[OsString], arguments: &[String], directory: &Path) -> io::Result<Self> {
        let (program, first) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let stderr = directory.join("stderr.txt");
        let mut command = Command::new(program);
        command.args(first).args(arguments).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&stderr)?);
        command.kill_on_drop(true);
        // In a process group of its own, the program can be killed together with its children. A
        // terminal's Ctrl-C then reaches only the worker, which stops its programs in order.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        // Neither is ever missing: stdout is piped, and a child that was not waited for has an id.
        let missing = || io::Error::other("the program has no process id or no stdout");
        let (pid, stdout) = (child.id().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        // `Child::wait` would close a stdin that it still owns.
        let stdin = child.stdin.take();
        Ok(Self { pid, child, lines: BufReader::new(stdout).split(b'\n'), stderr, _stdin: stdin })
    }

    /// Returns the process id. On Unix it is also the id of the process group.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the program exits, and meanwhile passes its progress to `progress`. Cancel-safe.
    pub(crate) async fn run(&mut self, mut progress: impl FnMut(u64)) -> io::Result<ExitStatus> {
        let mut stdout_open = true;
        loop {
            tokio::select! {
                line = self.lines.next_segment(), if stdout_open => match line? {
                    Some(line) => parse_progress(&line).map_or((), &mut progress),
                    None => stdout_open = false,
                },
                // Don't wait for the end of stdout: a child of the program may hold it open.
                status = self.child.wait() => return status,
            }
        }
    }

    /// Asks the program to save and exit, and kills it when the grace period is over.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.terminate();
        if let Ok(status) = timeout(grace, self.run(|_| ())).await {
            return status;
        }
        tracing::warn!(pid = self.pid, ?grace, "the program did not exit in time; killing it");
        self.kill();
        self.child.wait().await
    }

    /// Returns the end of the program's stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.stderr)?;
            file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(STDERR_TAIL_BYTES)))?;
            let mut tail = Vec::new();
            file.take(STDERR_TAIL_BYTES).read_to_end(&mut tail)?;
            Ok(String::from_utf8_lossy(&tail).trim().to_owned())
        };
        read().unwrap_or_else(|error| format!("(failed to read its stderr: {error})"))
    }

    #[cfg(unix)]
    fn terminate(&self) {
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
            // SRCH: all processes of the group have ended.
            Some(Ok(()) | Err(Errno::SRCH)) => {}
            failed => tracing::warn!(pid = self.pid, ?failed, "failed to send a signal to the program"),
        }
    }

    /// Kills the program: this platform has no SIGTERM. The program loses its unsaved work.
    #[cfg(not(unix))]
    fn terminate(&mut self) {
        self.kill();
    }

    #[cfg(not(unix))]
    fn kill(&mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::warn!(pid = self.pid, %error, "failed to kill the program");
        }
    }
}

/// Parses a line of stdout that is a number. Other lines are ignored.
fn parse_progress(line: &[u8]) -> Option<u64> {
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Kills the whole process group, while `kill_on_drop` kills only the program. So no child of the
/// program is left, even if the program itself has exited.
///
/// The id of a process that was waited for can be reused. It is not reused here: systems assign ids
/// in order, and the drop follows the wait at once.
impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
