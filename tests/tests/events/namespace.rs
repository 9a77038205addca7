//! A worker without any settings for its VM, on a machine with a metadata service at Azure's own
//! address.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reprieve_tests::{Sandbox, Worker, binary, saw_nothing, until};
use serde_json::json;

use crate::support::{PATIENCE, drained, works};

/// A network with only the mock, at the real service's address. Removed when dropped.
struct Network {
    mock: Child,
    reprieve: PathBuf,
}

impl Network {
    /// Returns `None` where namespaces can't be created.
    fn new() -> Option<Self> {
        let own = ["--user", "--map-root-user", "--net"];
        let possible = Command::new("unshare").args(own).args(["ip", "link", "set", "lo", "up"]).output();
        match possible {
            Ok(tried) if tried.status.success() => {}
            Ok(tried) => {
                let why = String::from_utf8_lossy(&tried.stderr);
                saw_nothing(
                    "REPRIEVE_TESTS_NEED_NAMESPACES",
                    &format!("no network namespace: {}", why.trim()),
                );
                return None;
            }
            Err(error) => {
                saw_nothing("REPRIEVE_TESTS_NEED_NAMESPACES", &format!("unshare does not run: {error}"));
                return None;
            }
        }
        let reprieve = binary("reprieve");
        let serve = "ip link set lo up && ip address add 169.254.169.254/32 dev lo && exec \"$0\" \"$@\"";
        let mut mock = Command::new("unshare")
            .args(own)
            .args(["sh", "-c", serve])
            .arg(&reprieve)
            .args(["metadata", "serve", "--listen", "169.254.169.254:80"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a mock in a namespace of its own");
        let mut line = String::new();
        BufReader::new(mock.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert!(line.contains("http://169.254.169.254"), "it serves elsewhere: {line:?}");
        Some(Self { mock, reprieve })
    }

    /// Returns the arguments that run `program` in it.
    fn inside(&self, program: &Path) -> Vec<PathBuf> {
        let target = format!("--target={}", self.mock.id());
        let words = [&target, "--user", "--preserve-credentials", "--net", "--"].map(PathBuf::from);
        words.into_iter().chain([program.to_owned()]).collect()
    }

    /// Runs `reprieve` in it.
    fn reprieve(&self, arguments: &[&str]) {
        let ran = Command::new("nsenter").args(self.inside(&self.reprieve)).args(arguments).output();
        let ran = ran.expect("nsenter, which comes with unshare");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.mock.kill();
        let _gone = self.mock.wait();
    }
}

#[tokio::test]
async fn a_worker_without_settings_is_evicted_as_in_azure() {
    let Some(network) = Network::new() else { return };
    let sandbox = Sandbox::new().await;
    let jobs = network.inside(Path::new(env!("CARGO_BIN_EXE_test-jobs")));
    let worker = Worker::start(&sandbox, Path::new("nsenter"), jobs);
    works(&worker).await;
    assert_eq!(
        worker.log().lines("worker started")[0].text("vm"),
        "workers_0",
        "the name is the metadata service's"
    );
    let walk = json!({"steps": 100_000, "each_ms": 50, "journal": sandbox.journal().path()});
    sandbox.enqueue("walk", [walk]).await;
    until("some steps are done", PATIENCE, async || (sandbox.journal().read().len() > 3).then_some(())).await;

    network.reprieve(&["metadata", "evict", "--vm", "workers_0", "--url", "http://169.254.169.254"]);
    let drain = drained(&worker).await;
    assert_eq!((drain.text("notice"), drain.number("held"), drain.number("saved")), ("Preempt", 1, 1));
    assert_eq!(sandbox.depth().await.ready, Some(1));
    worker.stop().await;
}
