//! Runs a command for each change, one at a time and in order, beside whatever else goes on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use reprieve::clock::wall_now;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::shell::Shell;
use super::told::{Told, span};

/// The command, and the changes it has still to be run for.
#[derive(Debug)]
pub(super) struct Hook {
    command: String,
    /// How long one run may take; `None`: as long as it likes.
    limit: Option<Duration>,
    /// Unbounded: an event changes a handful of times in its life, and each change counts.
    waiting: VecDeque<Told>,
    /// At most one.
    running: JoinSet<Ran>,
    /// Tells the running one that it must end.
    end: Arc<Notify>,
}

/// A run of the command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) told: Told,
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

    /// Runs the command for `told` when those before it are done. True when it has to wait for that.
    pub(super) fn push(&mut self, told: Told) -> bool {
        self.waiting.push_back(told);
        self.start_next();
        !self.waiting.is_empty()
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Forgets what waits, and says how much that was.
    pub(super) fn forget_waiting(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }

    /// Asks the running command to end, and then makes it.
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
                // Nothing of ours panics or is aborted while somebody waits; the next one is not to suffer for it.
                Some(Err(_)) => self.start_next(),
                None => std::future::pending().await,
            }
        }
    }

    fn start_next(&mut self) {
        if self.is_running() {
            return;
        }
        if let Some(told) = self.waiting.pop_front() {
            // What was left of the time when it was noticed is no news after a wait.
            let told = told.with_time_left_at(wall_now());
            self.running.spawn(run(self.command.clone(), told, self.limit, Arc::clone(&self.end)));
        }
    }
}

async fn run(command: String, told: Told, limit: Option<Duration>, end: Arc<Notify>) -> Ran {
    let started = told
        .environment()
        .map_err(|error| error.to_string())
        .and_then(|variables| Shell::start(&command, variables).map_err(|error| error.to_string()));
    let result = match started {
        Ok(shell) => finish(shell, limit, &end).await,
        Err(error) => Err(format!("could not be started: {error}")),
    };
    Ran { told, result }
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
        () = over => format!("did not end within {}, so it was ended", limit.map(span).unwrap_or_default()),
        () = end.notified() => "was still running, so it was ended".to_owned(),
    };
    shell.end().await;
    Err(why)
}
