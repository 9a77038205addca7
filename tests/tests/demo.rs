//! `reprieve demo --store azurite`: the same promises on the storage emulator, and no leftovers
//! there.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::{ErrorKind, QueueName};
use reprieve_tests::azurite::{Azurite, azurite, unique};
use reprieve_tests::{Process, binary, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A small demo: about fifteen seconds, and the lease of killed workers' jobs.
const SMALL: &str =
    "demo --store azurite --jobs 4 --vms 2 --evictions 1 --kills 1 --notice 2s --seed 1 --json";

/// A demo on an Azurite.
struct Demo {
    directory: TempDir,
    connection_string: String,
    process: Process,
}

impl Demo {
    fn start(connection_string: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(binary("reprieve"));
        command
            .args(SMALL.split(' '))
            .current_dir(&directory)
            .env_clear()
            .env("REPRIEVE_STORE", connection_string)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = Process::start(&mut command);
        Self { directory, connection_string: connection_string.to_owned(), process }
    }

    /// Waits until its workers are busy.
    async fn works(&self) {
        let journal = self.directory.path().join("reprieve-demo/journal");
        let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        until("the workers work", PATIENCE, async || (lines() > 4).then_some(())).await;
    }

    fn interrupt(&self) {
        self.process.signal(Signal::INT);
    }

    /// Waits for its end. Its directory still exists then.
    fn end(self) -> (Ended, TempDir) {
        let Output { status, stdout, stderr } = self.process.output();
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let ended = Ended { code: status.code(), out: text(stdout), err: text(stderr) };
        let secret = key(&self.connection_string);
        assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "it printed the key: {ended:?}");
        (ended, self.directory)
    }
}

/// The exit code and output of a demo.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// Returns the name of its queue and container.
    fn name(&self) -> &str {
        let from = self.err.find(" demo-").expect("a name") + 1;
        let name = &self.err[from..];
        name.split_once(',').expect("the end of a name").0
    }
}

/// Returns the account's key.
fn key(connection_string: &str) -> &str {
    let mut parts = connection_string.split(';');
    parts.find_map(|part| part.strip_prefix("AccountKey=")).expect("a key")
}

/// Checks that neither a queue nor a container `name` exists any more.
async fn check_gone(connection_string: &str, name: &str) {
    let address = Address::parse(connection_string).expect("an address");
    let options = |queue: &str, container: &str| {
        let queue = QueueName::parse(queue).expect("a queue's name");
        Options::new(vec![queue]).container(ContainerName::parse(container).expect("a container's name"))
    };
    // Opening a store needs both a queue and a container, so combine each with an own one.
    let own = unique("demo-test");
    AzureStore::open(&address, options(&own, &own)).await.expect("a store");
    for (queue, container, there) in
        [(own.as_str(), own.as_str(), true), (name, &own, false), (&own, name, false)]
    {
        let opened = AzureStore::open(&address, options(queue, container).existing()).await;
        let missing = opened.as_ref().err().map(reprieve_core::Error::kind);
        assert_eq!(missing, (!there).then_some(ErrorKind::Invalid), "{queue} and {container}: {opened:?}");
    }
    AzureStore::destroy(&address, &options(&own, &own)).await.expect("its removal");
}

/// Checks that no file of the demo contains the key.
fn check_silent(directory: &Path, key: &str) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            check_silent(&path, key);
        } else {
            let bytes = fs::read(&path).expect("a file");
            assert!(!String::from_utf8_lossy(&bytes).contains(key), "{} has the key in it", path.display());
        }
    }
}

#[tokio::test]
async fn a_small_demo_on_azurite_loses_nothing_and_leaves_nothing_there() {
    let Some(azurite) = azurite() else { return };
    let (ended, directory) = Demo::start(azurite.connection_string()).end();
    println!("{}", ended.err);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: Value = serde_json::from_str(ended.out.lines().last().expect("a line")).expect("JSON");
    for (what, count) in [
        ("jobs", 4),
        ("completed", 4),
        ("lost", 0),
        ("duplicated", 0),
        ("different", 0),
        ("evictions", 1),
        ("kills", 1),
        ("missed", 0),
        ("left_over", 0),
        ("steps_total", 160),
        ("lease_ms", 6_000),
    ] {
        assert_eq!(summary[what], count, "{what}: {summary}");
    }
    assert_eq!(summary["store"], "azurite");
    assert_eq!(summary["output_digest"], summary["reference_digest"], "{summary}");
    assert!(ended.err.contains("leases of 6 s had to end"), "{ended:?}");
    let report = fs::read_to_string(directory.path().join("reprieve-demo/report.html")).expect("a report");
    assert!(report.contains("the emulator Azurite"));
    check_gone(azurite.connection_string(), ended.name()).await;
    check_silent(directory.path(), key(azurite.connection_string()));
}

#[tokio::test]
async fn ctrl_c_deletes_the_demos_data_on_azurite() {
    let Some(azurite) = azurite() else { return };
    let demo = Demo::start(azurite.connection_string());
    demo.works().await;
    demo.interrupt();
    let (ended, _directory) = demo.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.ends_with("SIGINT stopped it; its files are in reprieve-demo\n"), "{ended:?}");
    check_gone(azurite.connection_string(), ended.name()).await;
}

#[tokio::test]
async fn data_that_could_not_be_deleted_is_named() {
    let Some(mut azurite) = Azurite::own() else { return };
    let demo = Demo::start(&azurite.connection_string());
    demo.works().await;
    azurite.stop();
    demo.interrupt();
    let (ended, _directory) = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let name = ended.name();
    let expected = format!(
        "failed to delete the queues {name} and {name}-poison and the container {name} on azurite at 127.0.0.1:"
    );
    assert!(ended.err.contains(&expected), "{ended:?}");
}
