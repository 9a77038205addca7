//! A worker process: started, signalled, killed, and never left behind.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use reprieve_core::ports::WorkerReport;
use reprieve_testkit::{Process, Signal, until};

use crate::log::Log;
use crate::sandbox::Sandbox;

/// The time limit of starting or ending an undisturbed process: this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lets glibc return large buffers to the system when they are freed, as docs/service.md advises.
/// Otherwise each thread keeps up to 32 MiB of them.
pub const RETURN_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "1048576"), ("MALLOC_TRIM_THRESHOLD_", "1048576")];

/// A running worker; killed when dropped. When the test fails, the end of its log is printed.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    log: Log,
}

impl Worker {
    /// Starts `program` on the sandbox's store, with `arguments` and the flags of every test's
    /// worker. The environment is empty.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn start<A: AsRef<OsStr>>(
        sandbox: &Sandbox,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::start_with(sandbox, program, arguments, &[])
    }

    /// Starts `program` like [`start`](Self::start), with these environment variables.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn start_with<A: AsRef<OsStr>>(
        sandbox: &Sandbox,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.iter().copied());
        sandbox.point(&mut command);
        Self::spawn(command, sandbox.directory())
    }

    /// Starts `program` in `directory`, on the store at `address`, which may be a secret, with
    /// `arguments`, these environment variables, and the flags of every test's worker.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn start_on<A: AsRef<OsStr>>(
        address: &str,
        directory: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(environment.iter().copied()).env("REPRIEVE_STORE", address);
        Self::spawn(command, directory)
    }

    fn spawn(mut command: Command, directory: &Path) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = Log::new(directory.join(format!("worker-{number}.log")));
        let file = File::create(log.path()).expect("a log file");
        command
            .args(["--log-format", "json"])
            .current_dir(directory)
            .env("REPRIEVE_LOG", "info,reprieve_core=debug,thumbnails=debug,cache_aside=debug")
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log file"))
            .stderr(file);
        Self { process: Process::start(&mut command), log }
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the log.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Sends the process a signal.
    ///
    /// # Panics
    /// When it has been waited for already.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the process, with SIGKILL where there are signals, and waits until it has ended.
    ///
    /// # Panics
    /// When it has ended by itself: then the test would prove nothing.
    pub fn kill(&mut self) {
        let ended = self.process.try_ended();
        assert_eq!(ended, None, "the worker ended before it was killed:\n{}", self.log.text());
        self.process.kill();
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Panics
    /// When it has not within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        self.process.ended(limit).await
    }

    /// Returns whether the process has ended by itself.
    ///
    /// # Panics
    /// When the operating system can't tell.
    pub fn has_ended(&mut self) -> bool {
        self.process.try_ended().is_some()
    }

    /// Asks an endpoint of a worker that was started with `--listen 127.0.0.1:0`. Returns the whole
    /// answer; `None` if there is none.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<String> {
        let address = self.log.lines("listening for health checks").pop()?.text("address").to_owned();
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Asks the process to stop, and waits until it has ended successfully.
    ///
    /// # Panics
    /// When it does not end in time.
    pub async fn stop(mut self) {
        // Before its first log line it does not handle signals yet, and one would kill it.
        let speaks = async || (!self.log.text().is_empty()).then_some(());
        until("the worker has begun", PATIENCE, speaks).await;
        self.signal(Signal::TERM);
        let status = self.ended(PATIENCE).await;
        assert!(status.success(), "a stopped worker ended with {status}:\n{}", self.log.text());
    }

    /// Waits for a report of the worker that meets `condition`, and returns it.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn reports(
        &self,
        sandbox: &Sandbox,
        what: &str,
        condition: impl Fn(&WorkerReport) -> bool,
    ) -> WorkerReport {
        until(what, PATIENCE, async || sandbox.report(self.pid()).await.filter(&condition)).await
    }

    /// Waits until the worker takes jobs.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn started(&self, sandbox: &Sandbox) {
        self.reports(sandbox, "the worker takes work", |report| report.stage == "start").await;
    }
}

impl Drop for Worker {
    #[expect(clippy::print_stderr, reason = "a failed test is of no use without its workers' logs")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.log.text();
            let from = text.lines().count().saturating_sub(40);
            let end: Vec<_> = text.lines().skip(from).collect();
            eprintln!("--- the end of {}:\n{}", self.log.path().display(), end.join("\n"));
        }
    }
}
