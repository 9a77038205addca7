//! One command of the system's shell, with all that it starts: begun, waited for, and ended when it must.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a command may take to end when it is asked to, before it is made to.
const GRACE: Duration = Duration::from_secs(5);

/// A running command. Dropped before its end, it is killed.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    /// Whether it has not been seen to end.
    running: bool,
}

impl Shell {
    /// Starts `command` with these variables besides this process's own. It has no input, and both of its outputs go to
    /// this process's stderr: stdout is for data.
    pub(super) fn start(command: &str, variables: Vec<(&'static str, String)>) -> io::Result<Self> {
        let mut command = shell(command);
        command.envs(variables).stdin(Stdio::null()).stdout(io::stderr()).stderr(Stdio::inherit());
        Ok(Self { child: command.kill_on_drop(true).spawn()?, running: true })
    }

    /// Waits for its end; `Err` says how it failed. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Result<(), String> {
        let ended = self.child.wait().await;
        self.running = false;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failure(status)),
            Err(error) => Err(format!("could not be waited for: {error}")),
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

/// How a command is ended.
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
    // cmd takes the outer quotes off and the rest as it stands; others' quoting rules are not its own.
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
