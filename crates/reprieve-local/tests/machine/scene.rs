//! Shared by the tests with processes: a store, children that share it, and their output.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_core::WorkerId;
use reprieve_core::ports::{NewMessage, Store};
use reprieve_local::{Durability, LocalStore, Options, QueueName};
use reprieve_testkit::Process;
use tokio::time::{Instant, sleep};

use crate::process;
use crate::{deaths, torture};

/// The time limit of any wait, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn open(path: &Path) -> Store {
    let options = Options::new(QueueName::parse("jobs").unwrap());
    LocalStore::open(path, options.owned_by(WorkerId::unique())).await.unwrap().store()
}

pub(crate) async fn send(store: &Store, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| NewMessage { body: vec![b'x'; 100], delay: Duration::ZERO }).collect();
    let ids = store.queue.send(messages).await.unwrap();
    ids.into_iter().map(|id| id.to_string()).collect()
}

/// Returns the children's output, one line each.
pub(crate) struct Log(pub(crate) PathBuf);

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub(crate) async fn wait_for(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.lines().iter().any(|logged| logged == line) {
            assert!(Instant::now() < deadline, "no child logged {line:?}: {:?}", self.lines());
            sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) struct Scene {
    pub(crate) directory: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("reprieve.db")
    }

    pub(crate) fn log(&self) -> Log {
        Log(self.directory.path().join("log"))
    }

    pub(crate) fn start(&self, role: &str, argument: &str) -> Process {
        process::start(&[role, self.directory.path().to_str().unwrap(), argument])
    }
}

/// A child's output.
pub(crate) struct Say(File);

impl Say {
    pub(crate) fn say(&self, line: &str) {
        // One write, so that lines of different processes never mix.
        (&self.0).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// The work of a child in these tests, until it is killed.
pub(crate) async fn play(role: &str, directory: &Path, argument: u64) {
    let owner = WorkerId::unique();
    let options = Options::new(QueueName::parse("jobs").unwrap()).owned_by(owner.clone());
    let path = directory.join("reprieve.db");
    let store = LocalStore::open(&path, options.durability(Durability::Process)).await.unwrap().store();
    let say = Say(File::options().create(true).append(true).open(directory.join("log")).unwrap());
    match role {
        "hold" => deaths::hold(&store, &say, owner, Duration::from_millis(argument)).await,
        "write" => deaths::write(&store, &say).await,
        "upload" => deaths::upload(&store, &say).await,
        "drain" => deaths::drain(&store, &say, &directory.join("go")).await,
        "produce" => {
            tokio::join!(
                torture::produce(&store, &say),
                torture::consume(&store, &say, argument),
                torture::consume(&store, &say, argument + 1)
            );
        }
        "consume" => {
            tokio::join!(
                torture::consume(&store, &say, argument),
                torture::consume(&store, &say, argument + 1)
            );
        }
        _ => panic!("unknown role {role}"),
    }
}
