//! A child process that ends with its test.

use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output};
use std::time::Duration;

use crate::wait::{eventually, until};

/// A child process; killed when dropped.
#[derive(Debug)]
pub struct Process(Option<Child>);

impl Process {
    /// Starts `command`.
    ///
    /// # Panics
    /// When there is no such program.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn();
        let program = command.get_program().display();
        Self(Some(child.unwrap_or_else(|error| panic!("{program} did not start: {error}"))))
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Takes its standard input, which must be a pipe.
    ///
    /// # Panics
    /// When it is none, or was taken before.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child_mut().stdin.take().expect("a pipe to standard input")
    }

    /// Takes its standard output, which must be a pipe.
    ///
    /// # Panics
    /// When it is none, or was taken before.
    pub fn stdout(&mut self) -> ChildStdout {
        self.child_mut().stdout.take().expect("a pipe from standard output")
    }

    /// Takes its standard error, which must be a pipe.
    ///
    /// # Panics
    /// When it is none, or was taken before.
    pub fn stderr(&mut self) -> ChildStderr {
        self.child_mut().stderr.take().expect("a pipe from standard error")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has been waited for already.
    #[cfg(unix)]
    pub fn signal(&self, signal: rustix::process::Signal) {
        use rustix::process::{Pid, kill_process};
        kill_process(Pid::from_child(self.child()), signal).expect("a process to signal");
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    ///
    /// # Panics
    /// When it can't be killed.
    pub fn kill(&mut self) {
        let child = self.child_mut();
        child.kill().expect("a child to kill");
        child.wait().expect("a child that was killed");
    }

    /// Returns its exit status if it has ended.
    ///
    /// # Panics
    /// When the operating system does not know it.
    pub fn try_ended(&mut self) -> Option<ExitStatus> {
        self.child_mut().try_wait().expect("a child")
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it has not within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        until("the process has ended", limit, async || self.try_ended()).await
    }

    /// Does the same and blocks the thread, for tests without a runtime.
    ///
    /// # Panics
    /// When it has not ended within `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut ended = None;
        eventually("the process has ended", limit, || {
            ended = self.try_ended();
            ended.is_some()
        });
        ended.expect("the status that was waited for")
    }

    /// Waits until it has ended by itself, and returns what it wrote to its pipes.
    ///
    /// # Panics
    /// When the operating system does not know it.
    #[must_use]
    pub fn output(mut self) -> Output {
        self.0.take().expect("a child").wait_with_output().expect("its end")
    }

    fn child(&self) -> &Child {
        self.0.as_ref().expect("a child")
    }

    fn child_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("a child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended already.
            let _gone = (child.kill(), child.wait());
        }
    }
}
