//! Runs a command for each change, one at a time and in order, and ends it with all that it starts.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use reprieve::clock::wall_now;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::change::ChangeReport;
use crate::format::duration;

/// The command, and the changes it has still to be run for.
#[derive(Debug)]
pub(super) struct Hook {
    command: String,
    /// The longest run; `None`: no limit.
    limit: Option<Duration>,
    /// Unbounded: an event changes a handful of times in its life, and each change counts.
    waiting: VecDeque<ChangeReport>,
    /// At most one.
    running: JoinSet<Ran>,
    /// Tells the running command to end.
    end: Arc<Notify>,
}

/// A run of the command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) change: ChangeReport,
    /// `Err` goes on from "the command for it …".
    pub(super) result: Result<(), String>,
}

impl Hook {
    pub(super) fn new(command: &str, limit: Option<Duration>) -> Self {
        Self {
            command: command.to_owned(),
            limit,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            end: Arc::default(),
        }
    }

    /// Runs the command for `change` when those before it are done. True when it has to wait for
    /// that.
    pub(super) fn push(&mut self, change: ChangeReport) -> bool {
        self.waiting.push_back(change);
        self.start_next();
        !self.waiting.is_empty()
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Drops the waiting changes and returns their number.
    pub(super) fn forget_waiting(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }

    /// Ends the running command.
    pub(super) fn end_running(&self) {
        self.end.notify_one();
    }

    /// The end of the running command; pending while none runs. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Ran {
        loop {
            match self.running.join_next().await {
                Some(Ok(ran)) => {
                    self.start_next();
                    return ran;
                }
                // The task panicked, which is a bug; the next command runs all the same.
                Some(Err(_)) => self.start_next(),
                None => std::future::pending().await,
            }
        }
    }

    fn start_next(&mut self) {
        if self.is_running() {
            return;
        }
        if let Some(change) = self.waiting.pop_front() {
            // The time left is counted from the start of the command.
            let change = change.with_time_left_at(wall_now());
            self.running.spawn(run(self.command.clone(), change, self.limit, Arc::clone(&self.end)));
        }
    }
}

async fn run(command: String, change: ChangeReport, limit: Option<Duration>, end: Arc<Notify>) -> Ran {
    let started = change
        .environment()
        .map_err(|error| error.to_string())
        .and_then(|variables| Shell::start(&command, variables).map_err(|error| error.to_string()));
    let result = match started {
        Ok(shell) => finish(shell, limit, &end).await,
        Err(error) => Err(format!("could not be started: {error}")),
    };
    Ran { change, result }
}

async fn finish(mut shell: Shell, limit: Option<Duration>, end: &Notify) -> Result<(), String> {
    let over = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        result = shell.wait() => return result,
        () = over => format!("did not end within {} and was ended", limit.map(duration).unwrap_or_default()),
        () = end.notified() => "was still running and was ended".to_owned(),
    };
    shell.end().await;
    Err(why)
}

/// The time between asking a command to end and killing it.
const GRACE: Duration = Duration::from_secs(5);

/// A running command. Dropped before its end, it is killed.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    /// Whether its end has not been observed.
    running: bool,
}

impl Shell {
    /// Starts `command` with these variables besides this process's own. It has no input, and both
    /// of its outputs go to this process's stderr: stdout is for data.
    pub(super) fn start(command: &str, variables: Vec<(&'static str, String)>) -> io::Result<Self> {
        let mut command = shell(command);
        command.envs(variables).stdin(Stdio::null()).stdout(io::stderr()).stderr(Stdio::inherit());
        Ok(Self { child: command.kill_on_drop(true).spawn()?, running: true })
    }

    /// Waits for its end; `Err` is the failure. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Result<(), String> {
        let ended = self.child.wait().await;
        self.running = false;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failure(status)),
            Err(error) => Err(format!("failed to wait for it: {error}")),
        }
    }

    /// Asks it to end, and after a while kills it.
    pub(super) async fn end(&mut self) {
        self.signal(End::Asked);
        if timeout(GRACE, self.wait()).await.is_err() {
            self.signal(End::Killed);
            // It can't refuse that, and how it ended is known.
            let _killed = self.wait().await;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if self.running {
            self.signal(End::Killed);
        }
    }
}

/// The way to end a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Asked,
    Killed,
}

#[cfg(unix)]
impl Shell {
    /// Signals the group, because a shell that ends leaves behind what it was waiting for.
    fn signal(&self, end: End) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let signal = if end == End::Asked { Signal::TERM } else { Signal::KILL };
        let pid = self.child.id().and_then(|id| id.try_into().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The group may have ended just now.
            let _ended = kill_process_group(pid, signal);
        }
    }
}

#[cfg(windows)]
impl Shell {
    /// Windows has no way to ask a process without a window.
    fn signal(&mut self, _end: End) {
        // It may have ended just now.
        let _ended = self.child.start_kill();
    }
}

#[cfg(unix)]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    // In a group of its own, so that a Ctrl-C for this process is not one for the command, too.
    shell.arg("-c").arg(command).process_group(0);
    shell
}

#[cfg(windows)]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("cmd");
    // cmd removes the outer quotes and takes the rest as it is; it does not use the usual quoting
    // rules.
    shell.args(["/D", "/S", "/C"]).raw_arg(format!("\"{command}\""));
    shell
}

#[cfg(unix)]
fn failure(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => format!("ended otherwise: {status}"),
    }
}

#[cfg(windows)]
fn failure(status: ExitStatus) -> String {
    status
        .code()
        .map_or_else(|| format!("ended otherwise: {status}"), |code| format!("ended with exit code {code}"))
}
