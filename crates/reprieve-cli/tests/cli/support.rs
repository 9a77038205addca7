//! A directory with a store, the command in it, and a worker inside the test.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clap::Parser;
use reprieve::worker::{Monitor, Stopper, Worker, stopping};
use reprieve::{Client, Job, JobContext, JobError, Step, StoreArgs, async_trait};
use reprieve_testkit::Process;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// The time limit of any wait. Far longer than needed, because test machines are busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A test's directory.
#[derive(Debug)]
pub(crate) struct Place {
    dir: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    /// The command, in this directory and without the caller's settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
        command.current_dir(&self.dir).args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REPRIEVE_"))
        {
            command.env_remove(name);
        }
        command
    }

    /// Starts the command. Its output is piped.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::start(&mut self.command(args))
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().expect("the command runs").into()
    }

    pub(crate) fn run_with_stdin(&self, args: &[&str], stdin: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("the command runs");
        child.stdin.take().expect("a pipe").write_all(stdin.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends").into()
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn succeeds(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{args:?}: {}", ran.out);
        ran.out
    }

    pub(crate) async fn client(&self) -> Client {
        Self::client_of(&self.store()).await
    }

    /// The address of the store.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path("reprieve.db").display())
    }

    /// Opens the store at this address.
    pub(crate) async fn client_of(store: &str) -> Client {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            store: StoreArgs,
        }
        Client::open(&Cli::parse_from(["test", "--store", store]).store).await.expect("a store")
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let ran = Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran
    }
}

/// A job that reports progress 3 of 8 and stays there.
#[derive(Debug)]
pub(crate) struct Stay;

#[async_trait]
impl Job for Stay {
    const KIND: &'static str = "stay";
    type Args = serde_json::Value;
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, _: &serde_json::Value) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, _: &serde_json::Value, at: u32) -> Result<Step<u32, ()>, JobError> {
        cx.progress(3, 8);
        if at > 0 {
            cx.interrupted().await;
        }
        Ok(Step::Continue(at + 1))
    }
}

/// A worker inside the test.
#[derive(Debug)]
pub(crate) struct Working {
    stopper: Stopper,
    running: JoinHandle<reprieve::worker::Stopped>,
    pub(crate) monitor: Monitor,
}

impl Working {
    pub(crate) fn on(client: &Client) -> Self {
        let worker =
            Worker::builder(client.store().clone()).vm("workers_7").job(Stay).build().expect("a worker");
        let (monitor, (stopper, stopping)) = (worker.monitor(), stopping());
        Self { stopper, running: tokio::spawn(worker.run(stopping)), monitor }
    }

    pub(crate) async fn stop(self) {
        self.stopper.stop();
        self.running.await.expect("no panic");
    }
}

/// Waits until `condition` returns a value, within the common limit.
pub(crate) async fn until<T>(what: &str, condition: impl AsyncFnMut() -> Option<T>) -> T {
    reprieve_testkit::until(what, LONG, condition).await
}
