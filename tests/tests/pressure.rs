//! Machines that run out of memory or disk: real cgroups and file systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reprieve_core::pressure::ActivePressure;
use reprieve_tests::{RETURN_MEMORY, Sandbox, Worker, saw_nothing, until};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(120);

const MIB: u64 = 1 << 20;

/// A cgroup with a limit of memory, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Returns `None` where this user can't create one.
    fn limited(name: &str, bytes: u64) -> Option<Self> {
        let name = format!("reprieve-{name}-{}", std::process::id());
        let group = Self(Path::new("/sys/fs/cgroup/memory").join(name));
        let limited = fs::create_dir(&group.0)
            .and_then(|()| fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()));
        match limited {
            Ok(()) => Some(group),
            Err(error) => {
                saw_nothing("REPRIEVE_TESTS_NEED_CGROUPS", &format!("no cgroup of version 1: {error}"));
                None
            }
        }
    }

    /// The most memory that was used in it so far, in bytes.
    fn most_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("memory.max_usage_in_bytes")).expect("the cgroup's file");
        text.trim().parse().expect("a number")
    }

    /// Starts a worker in the group, as docs/service.md advises.
    fn worker(&self, sandbox: &Sandbox, flags: &[&str]) -> Worker {
        let tasks = self.0.join("tasks").display().to_string();
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let program = ["-c", enter, &tasks, env!("CARGO_BIN_EXE_test-jobs")];
        let common = ["--metadata-url", "off", "--concurrency", "8", "--lease", "15s"];
        let arguments = program.iter().chain(&common).chain(flags);
        Worker::start_with(sandbox, Path::new("/bin/sh"), arguments, &RETURN_MEMORY)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It can't be removed before its last process is gone; then it only stays behind.
        let _left_behind = fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_memory_reserve_does_all_jobs_where_the_kernel_kills_one_without() {
    const LIMIT: u64 = 256 * MIB;
    let Some(group) = Group::limited("killed", LIMIT) else { return };
    let job = json!({"mib": 48, "lasts_ms": 4_000});
    let sandbox = Sandbox::new().await;
    sandbox.enqueue("hungry", vec![job.clone(); 8]).await;
    let mut killed = group.worker(&sandbox, &[]);
    let status = killed.ended(PATIENCE).await;
    assert!(!status.success(), "without a reserve: {status}");

    for (name, settings) in [("measured", ""), ("set", "[kinds.hungry]\nmemory = \"50MiB\"\n")] {
        let group = Group::limited(name, LIMIT).expect("another cgroup");
        let sandbox = Sandbox::new().await;
        fs::write(sandbox.path("reprieve.toml"), settings).expect("a settings file");
        let jobs = sandbox.enqueue("hungry", vec![job.clone(); 12]).await;
        let worker = group.worker(&sandbox, &["--memory-reserve", "50MiB"]);
        until("all jobs are done", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(())).await;
        for job in &jobs {
            assert!(sandbox.result::<u32>(job).await.is_some_and(|delivery| delivery >= 1), "{settings}");
        }
        assert!(!worker.log().text().contains("dead worker"), "no worker died");
        worker.stop().await;
        // Some of what is used may be taken back: what is cached of files.
        let most = group.most_bytes();
        assert!(most <= LIMIT - 50 * MIB + 16 * MIB, "{settings}: {} MiB were used", most / MIB);
    }
}

/// Starts a worker whose state directory is a file system of its own, in a namespace of its own. `None` where that
/// can't be.
fn on_own_disk(sandbox: &Sandbox, script: &str) -> Option<Worker> {
    let directory = sandbox.path("state").display().to_string();
    fs::create_dir(&directory).expect("a directory");
    let own = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let mount = "mount -t tmpfs -o size=16m tmpfs \"$0\"";
    let tried = Command::new("unshare").args(own).args([mount, &directory]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        saw_nothing("REPRIEVE_TESTS_NEED_NAMESPACES", "no file system can be mounted");
        return None;
    }
    let run = format!("{mount} || exit 1; ({script}) & exec \"$@\"");
    let flags = ["--state-dir", &directory, "--metadata-url", "off"];
    let program = [&directory, env!("CARGO_BIN_EXE_test-jobs")];
    let arguments = own.into_iter().chain([run.as_str()]).chain(program).chain(flags);
    Some(Worker::start(sandbox, Path::new("unshare"), arguments))
}

/// Waits until the worker reports pressure, and returns it.
async fn pressed(worker: &Worker, sandbox: &Sandbox) -> Vec<ActivePressure> {
    until("pressure", PATIENCE, async || {
        let report = sandbox.report(worker.pid()).await?;
        Some(report.machine?.pressure).filter(|pressure| !pressure.is_empty())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_filled_or_made_read_only_is_seen_and_an_idle_worker_goes_on() {
    let go = |sandbox: &Sandbox| sandbox.path("go").display().to_string();
    let wait = |sandbox: &Sandbox| format!("while ! [ -e '{}' ]; do sleep 0.1; done", go(sandbox));
    for (cause, deed) in [
        ("disk", "head -c 99999999 /dev/zero > \"$0/fill\" 2> /dev/null"),
        ("io-errors", "mount -o remount,ro \"$0\""),
    ] {
        let sandbox = Sandbox::new().await;
        let script = format!("{}; {deed}", wait(&sandbox));
        let Some(worker) = on_own_disk(&sandbox, &script) else { return };
        worker.started(&sandbox).await;
        fs::write(go(&sandbox), "").expect("a file");
        let found = pressed(&worker, &sandbox).await;
        assert_eq!(found[0].cause, cause, "{found:?}");
        assert!(found[0].why.contains("/state"), "{found:?}");
        sandbox.enqueue("hungry", vec![json!({"mib": 1, "lasts_ms": 10}); 4]).await;
        until("an idle worker goes on", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(()))
            .await;
        worker.stop().await;
    }
}
