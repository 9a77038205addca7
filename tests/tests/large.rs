//! Jobs with large data: their worker's memory is bounded, and what was killed continues with the
//! same bytes.

use std::path::Path;
use std::time::Duration;

use reprieve_tests::{Measured, RETURN_MEMORY, Sandbox, Worker, until};
use serde_json::{Value, json};
use tokio::time::sleep;

const MIB: u64 = 1 << 20;

fn worker(sandbox: &Sandbox, environment: &[(&str, &str)]) -> Worker {
    let arguments = ["--metadata-url", "off", "--concurrency", "1", "--checkpoint-every", "0s"];
    Worker::start_with(sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments, environment)
}

/// Runs the job on workers that are killed or stopped after these times, and then to its end.
async fn run(
    kind: &str,
    args: Value,
    disturbances: &[(u64, bool)],
    environment: &[(&str, &str)],
) -> Measured {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue(kind, vec![args]).await.remove(0);
    for (after_ms, kill) in disturbances {
        let mut disturbed = worker(&sandbox, environment);
        sleep(Duration::from_millis(*after_ms)).await;
        if *kill {
            disturbed.kill();
        } else {
            disturbed.stop().await;
        }
    }
    let last = worker(&sandbox, environment);
    let limit = Duration::from_secs(90);
    until("the queue is empty", limit, async || (sandbox.depth().await.total == 0).then_some(())).await;
    assert_eq!(sandbox.depth().await.poisoned, Some(0), "{:?}", sandbox.dead_letters().await);
    last.stop().await;
    sandbox.result(&job).await.expect("the job has a result")
}

#[tokio::test]
async fn a_state_of_20_mb_takes_bounded_memory_and_comes_back_bit_for_bit() {
    let args = |saves: bool| json!({"floats": 2_500_000, "steps": 6, "saves": saves});
    let undisturbed = run("bulky", args(false), &[], &[]).await;
    let disturbed = run("bulky", args(false), &[(2_500, false), (2_500, true)], &RETURN_MEMORY).await;
    let saving = run("bulky", args(true), &[(2_500, true)], &RETURN_MEMORY).await;
    println!("{undisturbed:?}, {disturbed:?}, {saving:?}");
    assert_eq!([disturbed.digest, saving.digest], [undisturbed.digest; 2]);
    // 2.5 million floats of 9 bytes.
    let encoded = 2_500_000 * 9;
    for (measured, kept) in [(undisturbed, 32 * MIB), (disturbed, 0), (saving, 0)] {
        let peak = measured.peak_kib * 1024;
        assert!(peak <= 2 * encoded + 16 * MIB + kept, "{} MiB", peak / MIB);
    }
    assert!(disturbed.delivery > 1, "{disturbed:?}");
}

#[tokio::test]
async fn a_stream_takes_the_same_memory_at_any_size_and_survives_kills() {
    let args = json!({"bytes": 96 * MIB + 17, "copies": 3});
    let measured = run("copier", args, &[(1_500, true), (1_500, false)], &[]).await;
    println!("{measured:?}");
    assert_eq!(measured.digest, 96 * MIB + 17);
    assert!(measured.peak_kib * 1024 <= 64 * MIB, "{} MiB", measured.peak_kib / 1024);
}

#[tokio::test]
async fn an_attachment_takes_the_same_memory_at_any_size_and_survives_kills() {
    let args = json!({"bytes": 256 * MIB + 17, "steps": 8});
    let measured = run("attacher", args, &[(4_000, true), (4_000, false)], &[]).await;
    println!("{measured:?}");
    assert_eq!(measured.digest, 8);
    assert!(measured.peak_kib * 1024 <= 64 * MIB, "{} MiB", measured.peak_kib / 1024);
}
