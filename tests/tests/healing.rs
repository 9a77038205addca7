//! Faults of a slot and of a VM, injected into real processes. Each test prints how long it took to see the fault and to
//! mend it: `cargo test -p reprieve-tests --test healing -- --nocapture`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, Worker, saw_nothing, until};
use serde_json::{Value, json};
use tokio::time::Instant;

const JOBS: &str = env!("CARGO_BIN_EXE_test-jobs");

/// A fault of a disk is proven in half a minute, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

const OWN_MOUNTS: [&str; 3] = ["--user", "--map-root-user", "--mount"];

/// Returns whether a process may have mounts of its own here.
fn may_mount() -> bool {
    let tried =
        Command::new("unshare").args(OWN_MOUNTS).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    let why = match tried {
        Ok(tried) if tried.status.success() => return true,
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
        Err(error) => format!("unshare does not run: {error}"),
    };
    saw_nothing("REPRIEVE_TESTS_NEED_NAMESPACES", &format!("no mount namespace: {why}"));
    false
}

/// A worker on a VM of its own, whose state directory is a disk of two megabytes.
struct Vm {
    worker: Worker,
    disk: PathBuf,
}

impl Vm {
    async fn start(sandbox: &Sandbox, metadata: &MetadataServer, name: &str) -> Self {
        let disk = sandbox.path(name);
        std::fs::create_dir(&disk).expect("a directory");
        let own = format!("mount -t tmpfs -o size=2m tmpfs '{}' && exec \"$0\" \"$@\"", disk.display());
        let url = metadata.vm_url(name);
        let flags = ["--metadata-url", &url, "--listen", "127.0.0.1:0", "--concurrency", "1"];
        let arguments = OWN_MOUNTS.iter().copied().chain(["sh", "-c", &own, JOBS]).chain(flags);
        let directory = disk.to_str().expect("a path");
        let environment = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("STATE_DIRECTORY", directory)];
        let worker = Worker::start_with(sandbox, Path::new("unshare"), arguments, &environment);
        until("it watches its disk", PATIENCE, async || {
            worker.log().lines("watching the disks of this VM").pop().map(drop)
        })
        .await;
        Self { worker, disk }
    }

    /// Runs a shell command among the worker's mounts, with its disk as `$0`.
    fn inside(&self, command: &str) -> bool {
        let target = format!("--target={}", self.worker.pid());
        let enter = [target.as_str(), "--user", "--preserve-credentials", "--mount", "sh", "-c", command];
        Command::new("nsenter").args(enter).arg(&self.disk).status().expect("nsenter runs").success()
    }

    fn health(&self) -> Option<String> {
        let answer = self.worker.get("/healthz")?;
        assert!(answer.starts_with("HTTP/1.0 200"), "any other status is Unknown: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).expect("JSON");
        Some(body["ApplicationHealthState"].as_str().expect("a state").to_owned())
    }

    async fn is(&self, state: &str) {
        until(state, PATIENCE, async || (self.health()? == state).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_whose_disk_became_read_only_is_reported_and_one_whose_disk_is_full_is_not() {
    if !may_mount() {
        return;
    }
    let storage =
        StorageServer::start(reprieve_sim::storage::Config::default()).await.expect("a storage double");
    let sandbox = Sandbox::in_account(&storage.connection_string(), 1).await;
    let metadata = MetadataServer::start(Config::with_vms(["full", "ill", "well"])).await.expect("a mock");
    let walk = json!({"steps": 2_000, "each_ms": 100, "journal": sandbox.journal().path()});
    sandbox.enqueue("walk", vec![walk; 3]).await;
    let [full, ill, well] = [
        Vm::start(&sandbox, &metadata, "full").await,
        Vm::start(&sandbox, &metadata, "ill").await,
        Vm::start(&sandbox, &metadata, "well").await,
    ];
    for vm in [&full, &ill, &well] {
        vm.worker.reports(&sandbox, "it holds a job", |report| report.in_flight.len() == 1).await;
    }
    assert!(!full.inside("dd if=/dev/zero of=$0/all bs=64k"), "the disk is full");

    let broken = Instant::now();
    assert!(ill.inside("mount -o remount,ro $0"));
    ill.is("Unhealthy").await;
    println!("read-only: reported after {} ms", broken.elapsed().as_millis());
    let drain = ill.worker.log().lines("drained").remove(0);
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("abandoned")), (1, 1, 0));
    for vm in [&full, &well] {
        assert_eq!(vm.health().as_deref(), Some("Healthy"));
    }
    let diagnosis = sandbox.blob("diagnoses/ill.json").await.expect("a diagnosis");
    let text = String::from_utf8(diagnosis).expect("text");
    let read: Value = serde_json::from_str(&text).expect("JSON");
    let disk = ill.disk.display().to_string();
    assert_eq!((&read["fault"], &read["place"]), (&"read-only file system".into(), &disk.clone().into()));
    let mount = format!("tmpfs {disk} ro");
    let mounts = read["mounts"].as_array().expect("a list");
    assert!(mounts.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(&mount))), "{mounts:?}");
    assert!(!read["log"].as_array().expect("a list").is_empty());
    assert!(!text.contains("AccountKey") && text.len() < 256 * 1024, "{} bytes", text.len());

    let mended = Instant::now();
    assert!(ill.inside("mount -o remount,rw $0"));
    ill.is("Healthy").await;
    ill.worker.reports(&sandbox, "it works again", |report| report.stage == "start").await;
    println!("mended: works again after {} ms", mended.elapsed().as_millis());
    assert_eq!(full.worker.log().lines("drained").len() + well.worker.log().lines("drained").len(), 0);
    for vm in [full, ill, well] {
        vm.worker.stop().await;
    }
}

/// A worker that answers health checks is asked whether it and its VM are well.
fn is_well(worker: &Worker) -> bool {
    let answers =
        |path: &str, expected: &str| worker.get(path).is_some_and(|answer| answer.contains(expected));
    answers("/healthz", r#"{"ApplicationHealthState":"Healthy"}"#) && answers("/livez", "200")
}

async fn storage() -> StorageServer {
    StorageServer::start(reprieve_sim::storage::Config::default()).await.expect("a storage double")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_storage_and_metadata_service_is_well_and_goes_on_when_they_answer() {
    let storage = storage().await;
    let sandbox = Sandbox::in_account(&storage.connection_string(), 1).await;
    let metadata = MetadataServer::start(Config::with_vms(["vm"])).await.expect("a mock");
    let url = metadata.vm_url("vm");
    let flags = [
        "--metadata-url",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--concurrency",
        "1",
        "--lease",
        "6s",
        "--budget",
        "3s",
    ];
    let mut worker = Worker::start(&sandbox, Path::new(JOBS), flags);
    let walk = json!({"steps": 400, "each_ms": 50, "journal": sandbox.journal().path()});
    sandbox.enqueue("walk", [walk]).await;
    let steps = || sandbox.journal().read().len();
    until("some steps", PATIENCE, async || (steps() > 10).then_some(())).await;

    let began = Instant::now();
    drop(metadata);
    for operation in Operation::ALL {
        storage.add_fault(Rule::new(Action::Hang { applied: false }).on(operation)).expect("a fault");
    }
    until("the outage is logged", PATIENCE, async || {
        let lost = "the job's lease was lost; the job is cancelled and nothing is settled";
        worker.log().lines(lost).pop().map(drop)
    })
    .await;
    println!("storage partition: seen after {} ms", began.elapsed().as_millis());
    // Long enough for a watchdog and for several health checks to fail, if they would.
    until("half a minute of it", PATIENCE, async || {
        assert!(is_well(&worker) && !worker.has_ended());
        (began.elapsed() > Duration::from_secs(30)).then_some(())
    })
    .await;
    let (mended, before) = (Instant::now(), steps());
    storage.clear_faults();
    until("it goes on", PATIENCE, async || (steps() > before).then_some(())).await;
    println!("storage partition: goes on {} ms after its end", mended.elapsed().as_millis());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_that_jumps_changes_nothing() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    if !Path::new(LIBRARY).exists() {
        return saw_nothing("REPRIEVE_TESTS_NEED_FAKETIME", "libfaketime is not installed");
    }
    let storage = storage().await;
    let sandbox = Sandbox::in_account(&storage.connection_string(), 1).await;
    let clock = sandbox.path("clock");
    std::fs::write(&clock, "+0").expect("a file");
    let environment = [
        ("LD_PRELOAD", LIBRARY),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("a path")),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let flags = [
        "--metadata-url",
        "off",
        "--listen",
        "127.0.0.1:0",
        "--concurrency",
        "1",
        "--lease",
        "6s",
        "--budget",
        "3s",
    ];
    let worker = Worker::start_with(&sandbox, Path::new(JOBS), flags, &environment);
    let walk = json!({"steps": 300, "each_ms": 50, "journal": sandbox.journal().path()});
    let job = sandbox.enqueue("walk", [walk]).await.remove(0);
    let steps = || sandbox.journal().read().len();
    for (jump, from) in [("+3h", 20), ("-3h", 150)] {
        until("some steps", PATIENCE, async || (steps() >= from).then_some(())).await;
        std::fs::write(&clock, jump).expect("a file");
    }
    let done = async || sandbox.result::<Value>(&job).await;
    let walked = until("the job is done", PATIENCE, done).await;
    assert_eq!((&walked["delivery"], sandbox.journal().redone()), (&1.into(), 0));
    assert!(is_well(&worker));
    // The line about the end of the job is written after it.
    let has_jumped = async || {
        let text = worker.log().text();
        let times: Vec<_> = text.lines().filter_map(|line| line.get(..27)).collect();
        (times.iter().max() > times.last()).then_some(())
    };
    until("the log shows that its clock did jump", PATIENCE, has_jumped).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_the_kernel_kills_for_its_memory_is_succeeded_and_its_jobs_are_done() {
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("reprieve-healing-{}", std::process::id()));
    if !group.parent().is_some_and(|memory| memory.join("memory.limit_in_bytes").exists())
        || std::fs::create_dir(&group).is_err()
    {
        return saw_nothing(
            "REPRIEVE_TESTS_NEED_CGROUPS",
            "there is no memory controller of cgroups v1 to write to",
        );
    }
    let sandbox = Sandbox::new().await;
    let flags = ["--metadata-url", "off", "--concurrency", "2"];
    let mut first = Worker::start(&sandbox, Path::new(JOBS), flags);
    first.started(&sandbox).await;
    std::fs::write(group.join("memory.limit_in_bytes"), (64 << 20).to_string()).expect("a limit");
    std::fs::write(group.join("cgroup.procs"), first.pid().to_string()).expect("a member");
    let walk = json!({"steps": 100, "each_ms": 50, "journal": sandbox.journal().path()});
    let walk = sandbox.enqueue("walk", [walk]).await.remove(0);
    until("some steps", PATIENCE, async || (sandbox.journal().read().len() > 20).then_some(())).await;
    // 80 MB of state, for which the next worker has room.
    let bulky = json!({"floats": 10_000_000, "steps": 1, "saves": false});
    let bulky = sandbox.enqueue("bulky", [bulky]).await.remove(0);
    let began = Instant::now();
    let status = first.ended(PATIENCE).await;
    assert!(!status.success(), "{status}");
    let killed = Instant::now();
    let second = Worker::start(&sandbox, Path::new(JOBS), flags);
    let steps_of = |pid: u32| sandbox.journal().read().iter().filter(|stepped| stepped.pid == pid).count();
    until("it goes on", PATIENCE, async || (steps_of(second.pid()) > 0).then_some(())).await;
    println!(
        "out of memory: killed after {} ms, the next worker goes on after {} ms, {} steps done again",
        (killed - began).as_millis(),
        killed.elapsed().as_millis(),
        sandbox.journal().redone()
    );
    for job in [&walk, &bulky] {
        until("the job is done", PATIENCE, async || sandbox.result::<Value>(job).await).await;
    }
    assert_eq!(sandbox.depth().await.poisoned, Some(0));
    second.stop().await;
    std::fs::remove_dir(&group).expect("the group is empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_slots_are_stuck_ends_with_3_and_the_next_one_does_the_other_jobs() {
    let sandbox = Sandbox::new().await;
    std::fs::write(sandbox.path("reprieve.toml"), "[kinds.spin]\nstep-timeout = '1s'\nattempts = 1\n")
        .expect("a file");
    let flags = ["--metadata-url", "off", "--concurrency", "2"];
    let mut first = Worker::start(&sandbox, Path::new(JOBS), flags);
    let began = Instant::now();
    sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 600_000})]).await;
    let walk = json!({"steps": 2_000, "each_ms": 50, "journal": sandbox.journal().path()});
    let other = sandbox.enqueue("walk", [walk]).await.remove(0);
    let status = first.ended(PATIENCE).await;
    println!("half of the slots stuck: ended after {} ms, {status}", began.elapsed().as_millis());
    assert_eq!(status.code(), Some(3));
    let drain = first.log().lines("drained").remove(0);
    assert_eq!(
        (drain.number("held"), drain.number("saved")),
        (1, 1),
        "the other job is released with its progress"
    );
    assert!(drain.number("quiesced_after_ms") < 2_000, "the stuck thread is not waited for");
    let ended = Instant::now();
    let second = Worker::start(&sandbox, Path::new(JOBS), flags);
    let holds =
        |report: &reprieve_core::ports::WorkerReport| report.in_flight.iter().any(|it| it.job == other);
    second.reports(&sandbox, "it goes on", holds).await;
    println!("the next worker goes on after {} ms", ended.elapsed().as_millis());
    assert_eq!(sandbox.journal().redone(), 0);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_of_the_fleet_that_a_stuck_thread_holds_is_free_for_others_when_its_worker_has_ended() {
    let sandbox = Sandbox::new().await;
    let limits = "[kinds.spin]\nstep-timeout = '1s'\nattempts = 1\nin-fleet = 1\n";
    std::fs::write(sandbox.path("reprieve.toml"), limits).expect("a file");
    let flags = ["--metadata-url", "off", "--concurrency", "4", "--lease", "10s", "--budget", "5s"];
    let mut first = Worker::start(&sandbox, Path::new(JOBS), flags);
    let began = Instant::now();
    sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 600_000})]).await;
    let runs = async || (!first.log().lines("the job runs").is_empty()).then_some(());
    until("the job runs", PATIENCE, runs).await;
    let short = sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 5})]).await.remove(0);
    let second = Worker::start(&sandbox, Path::new(JOBS), flags);
    let status = first.ended(PATIENCE).await;
    println!("a stuck slot of the fleet: ended after {} ms, {status}", began.elapsed().as_millis());
    assert_eq!(status.code(), Some(3));
    let ended = Instant::now();
    until("the next job is done", PATIENCE, async || sandbox.result::<Value>(&short).await).await;
    println!("another worker has done the next job after {} ms", ended.elapsed().as_millis());
    second.stop().await;
}
