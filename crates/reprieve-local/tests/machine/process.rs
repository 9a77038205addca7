//! Processes for tests: the test binary starts itself, and says over stdin what the child is to do.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};

/// What the child's `#[ignore]`d test reads: its orders, one line. Empty when somebody ran that test by hand.
pub(crate) fn orders() -> Vec<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// A child that is killed when it is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts this test binary again, at its test `child`, and hands it `orders`.
    pub(crate) fn start(orders: &[&str]) -> Self {
        Self::start_under(&[], orders)
    }

    /// The same under another program, such as a shell that mounts something first.
    pub(crate) fn start_under(wrapper: &[&str], orders: &[&str]) -> Self {
        let this = std::env::current_exe().unwrap();
        let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([this.as_os_str()]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--ignored", "--exact", "child", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{}", orders.join(" ")).unwrap();
        Self(child)
    }

    /// SIGKILL, and the wait until the kernel has taken the process down.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// What it said before it ended by itself; `None` while it runs.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let status = self.0.try_wait().unwrap()?;
        let mut words = format!("{status}\n");
        self.0.stdout.take().unwrap().read_to_string(&mut words).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        Some(words)
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }

    /// Waits for its end, which must be a good one, and returns what it printed.
    pub(crate) fn finish(mut self) -> Output {
        let nothing = Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let child = std::mem::replace(&mut self.0, nothing);
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
