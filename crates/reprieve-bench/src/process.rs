//! A process under measurement. It starts in its own process group, is observed through `/proc`,
//! and is killed with all its children when it is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The time limit for a killed process to exit, or for a stopped one: a drain takes ten seconds.
const ENDING: Duration = Duration::from_secs(30);

/// A process and its children.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    log: PathBuf,
}

/// The resources that a process has used since its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) resident_bytes_peak: f64,
    pub(crate) threads: f64,
}

impl Process {
    /// Starts `command` with its output in `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("{} can't be made", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        Self::spawn(command, log)
    }

    /// Starts `command` with a piped standard output, and with its stderr in `log`.
    pub(crate) fn start_piped(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("{} can't be made", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        Self::spawn(command, log)
    }

    fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let program = command.as_std().get_program().to_owned();
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        Ok(Self { child, pid: pid.context("a process without an id")?, log: log.to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the standard output ends, and returns it.
    pub(crate) async fn output(&mut self, limit: Duration) -> Result<String> {
        let mut output = String::new();
        let mut stdout = self.child.stdout.take().context("its output is not piped")?;
        let read = timeout(limit, stdout.read_to_string(&mut output)).await;
        read.with_context(|| format!("it was not done after {limit:?}"))??;
        let status = self.ended(ENDING).await?;
        if !status.success() {
            bail!("it ended with {status}: {}", self.log_tail());
        }
        Ok(output)
    }

    /// Waits for the first line of the standard output, and discards it.
    pub(crate) async fn first_line(&mut self, limit: Duration) -> Result<()> {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.take().context("its output is not piped")?);
        let read = timeout(limit, stdout.read_line(&mut line)).await;
        if read.with_context(|| format!("it printed nothing within {limit:?}"))?? == 0 {
            bail!("it ended at once: {}", self.log_tail());
        }
        // Keep the pipe open: writing to a closed pipe kills a process.
        self.child.stdout = Some(stdout.into_inner());
        Ok(())
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = timeout(limit, self.child.wait()).await;
        Ok(ended.with_context(|| format!("it had not ended after {limit:?}: {}", self.log_tail()))??)
    }

    /// Sends a signal to the process and all its children, as a service manager or a vanishing
    /// machine does.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<()> {
        kill_process_group(self.pid, signal).context("the process to signal is gone")
    }

    /// Kills the process and its children, and waits until it has ended.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.signal_all(Signal::KILL)?;
        self.ended(ENDING).await?;
        Ok(())
    }

    /// Asks the process to stop, and waits until it has ended successfully.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        kill_process(self.pid, Signal::TERM).context("the process to stop is gone")?;
        let status = self.ended(ENDING).await?;
        if !status.success() {
            bail!("it stopped with {status}: {}", self.log_tail());
        }
        Ok(())
    }

    /// Returns the first line of the JSON log with this message; `None` while there is none.
    pub(crate) fn logged(&self, message: &str) -> Result<Option<Value>> {
        let log = fs::read(&self.log).with_context(|| format!("{} can't be read", self.log.display()))?;
        let log = String::from_utf8_lossy(&log);
        // The last line may be half written.
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.find(|line| line["message"] == message))
    }

    /// Returns the resources used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        usage(&format!("/proc/{}", self.pid()))
    }

    /// Returns the end of the log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        last_lines(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After the wait the id may belong to another process.
        if self.child.id().is_some() {
            // It may have ended by itself already.
            let _gone = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Returns the resources that this process has used so far.
pub(crate) fn own_usage() -> Result<Usage> {
    usage("/proc/self")
}

fn usage(proc: &str) -> Result<Usage> {
    let read = |file: &str| {
        fs::read_to_string(format!("{proc}/{file}"))
            .with_context(|| format!("{proc}/{file} can't be read; this needs Linux and a running process"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    parse_usage(&stat, &status, clock_ticks_per_second())
        .with_context(|| format!("{proc} is not as expected"))
}

/// <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
fn parse_usage(stat: &str, status: &str, ticks_per_second: u64) -> Option<Usage> {
    // The second field is the program's name in parentheses; it may contain spaces and parentheses.
    let mut after_name = stat.rsplit_once(')')?.1.split_whitespace();
    let user: u32 = after_name.nth(11)?.parse().ok()?;
    let system: u32 = after_name.next()?.parse().ok()?;
    let ticks_per_second = u32::try_from(ticks_per_second).ok()?;
    let kib = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    Some(Usage {
        cpu_seconds: (f64::from(user) + f64::from(system)) / f64::from(ticks_per_second),
        resident_bytes: kib("VmRSS")? * 1024.0,
        resident_bytes_peak: kib("VmHWM")? * 1024.0,
        threads: kib("Threads")?,
    })
}

/// Returns the end of a log, on one line.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_a_name_with_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 6 0 1 1 1";
        let status = "Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t6\n";
        let usage = parse_usage(stat, status, 100).unwrap();
        assert!((usage.cpu_seconds - 3.0).abs() < 1e-9, "{usage:?}");
        assert!((usage.resident_bytes - 1_048_576.0).abs() < 1e-9, "{usage:?}");
        assert!((usage.resident_bytes_peak - 2_097_152.0).abs() < 1e-9, "{usage:?}");
        assert!((usage.threads - 6.0).abs() < 1e-9, "{usage:?}");
        assert!(parse_usage("42 (gone", status, 100).is_none());
    }

    #[tokio::test]
    async fn children_are_gone_with_their_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let log = directory.path().join("log");
        let process = Process::start(command, &log).unwrap();
        let second = Duration::from_secs(10);
        let child = crate::wait::until("the child is named", second, Duration::from_millis(5), || {
            Ok(fs::read_to_string(&log)?.trim().parse::<u32>().ok())
        });
        let child = child.await.unwrap();
        assert!(runs(child));
        drop(process);
        let gone = crate::wait::until("the child is gone", second, Duration::from_millis(5), || {
            Ok((!runs(child)).then_some(()))
        });
        gone.await.unwrap();
    }

    #[tokio::test]
    async fn a_process_that_fails_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo it is too late >&2; exit 3"]);
        let mut process = Process::start_piped(command, &directory.path().join("log")).unwrap();
        let error = process.output(Duration::from_secs(10)).await.unwrap_err().to_string();
        assert_eq!(error, "it ended with exit status: 3: it is too late");
    }
}
