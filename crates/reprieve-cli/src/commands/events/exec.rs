//! Runs a command for each change, one at a time and in order, but urgent ones beside slow ones, and ends
//! it with all that it starts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use reprieve::clock::wall_now;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::change::{ChangeReport, Urgency};
use crate::format::duration;

/// How many commands run at once. Evictions have a line each, and a service that lists hundreds of them
/// must not make this VM start as many processes.
const RUNNING_MAX: usize = 16;

/// The command, and the changes it has still to be run for. Changes of urgent events have lines of their
/// own, so that no slow command delays them.
#[derive(Debug)]
pub(super) struct Hook {
    command: String,
    /// The longest run.
    limit: Duration,
    /// The first ones start first. Empty ones are removed.
    lines: BTreeMap<LineKey, Line>,
    /// The lines of events that are or were urgent: later changes of them are, too.
    urgent: HashMap<String, LineKey>,
    /// One for each line at most.
    running: JoinSet<Ran>,
    /// Tells the running commands to end.
    end: watch::Sender<bool>,
}

/// Which changes share a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LineKey {
    /// Those of one event that ends this VM, by its id.
    Final(String),
    Soon,
    Ordinary,
}

impl LineKey {
    fn of(change: &ChangeReport) -> Self {
        match change.urgency() {
            Urgency::Ordinary => Self::Ordinary,
            Urgency::Soon => Self::Soon,
            Urgency::Final => Self::Final(change.id.clone()),
        }
    }
}

/// Changes for which the command is run one at a time and in order.
#[derive(Debug, Default)]
struct Line {
    /// Unbounded: an event changes a handful of times in its life, and each change counts.
    waiting: VecDeque<ChangeReport>,
    running: Option<Id>,
}

/// A run of the command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) change: ChangeReport,
    /// `Err` goes on from "the command for it …".
    pub(super) result: Result<(), String>,
}

impl Hook {
    pub(super) fn new(command: &str, limit: Duration) -> Self {
        Self {
            command: command.to_owned(),
            limit,
            lines: BTreeMap::new(),
            urgent: HashMap::new(),
            running: JoinSet::new(),
            end: watch::Sender::default(),
        }
    }

    /// Runs the command for `change` when those before it in its line are done. True when it has to
    /// wait for that.
    pub(super) fn push(&mut self, change: ChangeReport) -> bool {
        let before = self.urgent.get(&change.id).cloned().unwrap_or(LineKey::Ordinary);
        let key = LineKey::of(&change).min(before.clone());
        if key != before {
            self.urgent.insert(change.id.clone(), key.clone());
            self.transfer(&change.id, &before, &key);
        }
        if change.what.has_ended() {
            self.urgent.remove(&change.id);
        }
        self.lines.entry(key.clone()).or_default().waiting.push_back(change);
        self.start_next();
        self.lines.get(&key).is_some_and(|line| !line.waiting.is_empty())
    }

    /// Puts the waiting changes of an event into another line: they come before its later ones.
    fn transfer(&mut self, id: &str, from: &LineKey, to: &LineKey) {
        let Some(line) = self.lines.get_mut(from) else { return };
        let waiting = std::mem::take(&mut line.waiting).into_iter();
        let (earlier, others) = waiting.partition(|waiting: &ChangeReport| waiting.id == id);
        line.waiting = others;
        self.lines.entry(to.clone()).or_default().waiting.extend::<VecDeque<_>>(earlier);
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Drops the waiting changes and returns their number.
    pub(super) fn forget_waiting(&mut self) -> usize {
        self.lines.values_mut().map(|line| std::mem::take(&mut line.waiting).len()).sum()
    }

    /// Ends the running commands.
    pub(super) fn end_running(&self) {
        self.end.send_replace(true);
    }

    /// The end of a running command; pending while none runs. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Ran {
        loop {
            let ended = match self.running.join_next_with_id().await {
                Some(ended) => ended,
                None => std::future::pending().await,
            };
            let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            for line in self.lines.values_mut() {
                line.running.take_if(|running| *running == id);
            }
            self.start_next();
            // A task that panicked is a bug; the next command runs all the same.
            if let Ok((_, ran)) = ended {
                return ran;
            }
        }
    }

    fn start_next(&mut self) {
        self.lines.retain(|_, line| line.running.is_some() || !line.waiting.is_empty());
        for line in self.lines.values_mut().filter(|line| line.running.is_none()) {
            if self.running.len() >= RUNNING_MAX {
                return;
            }
            if let Some(change) = line.waiting.pop_front() {
                // The time left is counted from the start of the command.
                let change = change.with_time_left_at(wall_now());
                let run = run(self.command.clone(), change, self.limit, self.end.subscribe());
                line.running = Some(self.running.spawn(run).id());
            }
        }
    }
}

async fn run(command: String, change: ChangeReport, limit: Duration, mut end: watch::Receiver<bool>) -> Ran {
    let started = change
        .environment()
        .map_err(|error| error.to_string())
        .and_then(|variables| Shell::start(&command, variables).map_err(|error| error.to_string()));
    let result = match started {
        Ok(shell) => finish(shell, limit, &mut end).await,
        Err(error) => Err(format!("could not be started: {error}")),
    };
    Ran { change, result }
}

async fn finish(mut shell: Shell, limit: Duration, end: &mut watch::Receiver<bool>) -> Result<(), String> {
    let why = tokio::select! {
        result = shell.wait() => return result,
        () = sleep(limit) => format!("did not end within {} and was ended", duration(limit)),
        _ = end.wait_for(|ends| *ends) => "was still running and was ended".to_owned(),
    };
    shell.end().await;
    Err(why)
}

/// The time between asking a command to end and killing it.
const GRACE: Duration = Duration::from_secs(5);

/// The longest wait for the end of what was killed.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// How often the end of a command's processes is looked for.
#[cfg(unix)]
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running command. Dropped before its end, it is killed.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    /// Its process group, which outlives its leader.
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
    /// Whether its end has not been observed.
    running: bool,
}

impl Shell {
    /// Starts `command` with these variables besides this process's own. It has no input, and both
    /// of its outputs go to this process's stderr: stdout is for data.
    pub(super) fn start(command: &str, variables: Vec<(&'static str, String)>) -> io::Result<Self> {
        let mut command = shell(command);
        command.envs(variables).stdin(Stdio::null()).stdout(io::stderr()).stderr(Stdio::inherit());
        let child = command.kill_on_drop(true).spawn()?;
        #[cfg(unix)]
        let group = child.id().and_then(|id| id.try_into().ok()).and_then(rustix::process::Pid::from_raw);
        Ok(Self {
            child,
            #[cfg(unix)]
            group,
            running: true,
        })
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

    /// Asks it to end, and after a while kills what is left of it.
    pub(super) async fn end(&mut self) {
        self.signal(End::Asked);
        if timeout(GRACE, self.all_ended()).await.is_err() {
            self.signal(End::Killed);
            // Orphans are gone when the system has collected them.
            let _gone = timeout(GONE_WITHIN, self.all_ended()).await;
        }
        // It can't refuse that, and how it ended is known.
        let _ended = self.wait().await;
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
        use rustix::process::{Signal, kill_process_group};
        let signal = if end == End::Asked { Signal::TERM } else { Signal::KILL };
        if let Some(group) = self.group {
            // The group may have ended just now.
            let _ended = kill_process_group(group, signal);
        }
    }

    /// Waits for the end of the whole group: a shell may end before a child that ignores the signal.
    async fn all_ended(&mut self) {
        // How it ended is known.
        let _ended = self.child.wait().await;
        while self.group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok()) {
            sleep(LOOK_EVERY).await;
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

    async fn all_ended(&mut self) {
        // How it ended is known.
        let _ended = self.child.wait().await;
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
