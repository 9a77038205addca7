//! Real worker processes of the examples, their logs, and HTTP as a probe speaks it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
use reprieve::{Client, StoreArgs};
use reprieve_testkit::{Lines, Process, Signal, eventually};
use serde_json::Value;
use tempfile::TempDir;

/// The time limit of any wait. Far longer than needed, because test machines are busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A directory with a store in it, for workers to run in.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    /// A command that runs one of the examples here, without the caller's settings.
    pub(crate) fn command(&self, example: &str, args: &[&str]) -> Command {
        let mut command = Command::new(executable(example));
        command.current_dir(&self.dir).args(args).stdin(Stdio::null());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REPRIEVE_"))
        {
            command.env_remove(name);
        }
        command
    }

    /// Starts a worker without metadata service.
    pub(crate) fn worker(&self, example: &str, args: &[&str]) -> Worker {
        Worker::start(self.command(example, &[&["--metadata-url", "off"], args].concat()))
    }

    /// Runs a worker that ends by itself, and returns its exit code and its stderr.
    pub(crate) fn fails(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command("hello", args).output().expect("the example runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    }

    pub(crate) async fn client(&self) -> Client {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            store: StoreArgs,
        }
        let store = format!("--store=sqlite:{}", self.dir.path().join("reprieve.db").display());
        Client::open(&Cli::parse_from(["test", &store]).store).await.expect("a store")
    }
}

/// Cargo builds a package's examples beside its tests.
fn executable(example: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    path.join("examples").join(example)
}

/// A running worker and its log.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    log: Lines,
    /// The number of log lines that [`logs`](Self::logs) has read.
    read: usize,
}

impl Worker {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let log = Lines::of(process.stderr());
        Self { process, log, read: 0 }
    }

    /// Waits for the next line of the log with this message.
    pub(crate) fn logs(&mut self, message: &str) -> Value {
        let mut found = None;
        eventually(&format!("the worker logs {message:?}, not only {:#?}", self.log), LONG, || {
            for line in self.log.all().iter().skip(self.read) {
                self.read += 1;
                let line: Value = serde_json::from_str(line).expect("the log is JSON");
                if line["message"] == message {
                    found = Some(line);
                    return true;
                }
            }
            false
        });
        found.expect("the line that was waited for")
    }

    /// Waits until the worker is in a stage.
    pub(crate) fn reaches(&mut self, stage: &str) {
        while self.logs("stage changed")["to"] != stage {}
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end and returns its exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        self.process.wait(LONG).code()
    }
}

/// An answer to a GET request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the endpoints listen");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Waits until `condition` returns a value, within the common limit.
pub(crate) async fn until<T>(what: &str, condition: impl AsyncFnMut() -> Option<T>) -> T {
    reprieve_testkit::until(what, LONG, condition).await
}
