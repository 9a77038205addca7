//! Jobs that do not survive, and what the kit says about them.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_core::testing::Harness;
use reprieve_core::{JobError, Step};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::support::{Steps, found, sleep_really};

#[derive(Default, Serialize, Deserialize)]
struct Skipping {
    next: u64,
    #[serde(skip)]
    sum: u64,
}

/// The sum is lost with the worker.
#[test]
fn a_field_that_is_not_saved_is_found() {
    let job: Steps<u64, Skipping, u64> = Steps::new(Skipping::default, |_, to, at| {
        Box::pin(async move {
            let at = Skipping { next: at.next + 1, sum: at.sum + at.next };
            Ok(if at.next > *to { Step::Done(at.sum) } else { Step::Continue(at) })
        })
    });
    let difference = found(Harness::new(job).args(&5).evicted_at_every_step());
    let message = difference.to_string();
    assert!(
        message.starts_with("the job \"steps\", evicted at the end of step 1 of 6: the result differs\n"),
        "{message}"
    );
    assert!(message.contains("\n  expected: 15\n  seen:     14\n"), "{message}");
    assert!(message.contains("Between two steps a job is its checkpoint alone."), "{message}");
    assert_eq!(difference.step(), Some(1));
}

/// A float that is saved with fewer bits.
#[derive(Serialize, Deserialize)]
struct Lossy(#[serde(with = "single")] f64);

mod single {
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    #[expect(clippy::cast_possible_truncation, reason = "this is the mistake")]
    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f32(*value as f32)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        f32::deserialize(deserializer).map(f64::from)
    }
}

#[test]
fn a_float_that_loses_bits_is_found() {
    let job: Steps<u32, (u32, Lossy), f64> = Steps::new(
        || (0, Lossy(0.0)),
        |_, to, (at, Lossy(sum))| {
            Box::pin(async move {
                let sum = sum + 0.1;
                Ok(if at == *to { Step::Done(sum) } else { Step::Continue((at + 1, Lossy(sum))) })
            })
        },
    );
    let message = found(Harness::new(job).args(&5).evicted_at_every_step()).to_string();
    assert!(message.contains("evicted at the end of step 1 of 6: the result differs"), "{message}");
    assert!(message.contains("expected: 0.60000000149"), "{message}");
}

/// Pushes a row in each step, also when the step is run again.
fn pushing(rows: &Arc<Mutex<Vec<u64>>>, pause: Duration) -> Steps<u64, u64, ()> {
    let rows = Arc::clone(rows);
    Steps::new(
        || 0,
        move |_, to, at| {
            let rows = Arc::clone(&rows);
            Box::pin(async move {
                sleep(pause).await;
                rows.lock().unwrap().push(at);
                Ok(if at == *to { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    )
}

#[test]
fn a_step_that_is_not_safe_to_repeat_is_found_by_what_is_observed() {
    let rows = Arc::default();
    let harness = Harness::new(pushing(&rows, Duration::ZERO)).args(&3).killed_at_every_step();
    let message = found(harness.observe(|_| mem::take(&mut *rows.lock().unwrap()))).to_string();
    assert_eq!(
        message,
        "the job \"steps\", killed at the end of step 1 of 4, with all before it saved: what is observed, \
         at `[1]`, differs\n  expected: [0,1,2,3]\n  seen:     [0,0,1,2,3]\nWhat ran since the last \
         checkpoint ran again: every effect of a step must be safe to repeat."
    );
}

#[test]
fn a_step_that_is_not_safe_to_repeat_is_found_by_its_result() {
    let rows: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (outside, reset) = (Arc::clone(&rows), Arc::clone(&rows));
    let job: Steps<u64, u64, usize> = Steps::new(
        || 0,
        move |_, to, at| {
            let rows = Arc::clone(&outside);
            Box::pin(async move {
                let length = {
                    let mut rows = rows.lock().unwrap();
                    rows.push(at);
                    rows.len()
                };
                Ok(if at == *to { Step::Done(length) } else { Step::Continue(at + 1) })
            })
        },
    );
    let harness = Harness::new(job).args(&3).before_each_run(move || reset.lock().unwrap().clear());
    let difference = found(harness.killed_at_every_step());
    assert_eq!((difference.what(), difference.expected(), difference.seen()), ("the result", "4", "5"));
}

/// The step looks whether its own row is the last one, which holds when only one step is repeated.
#[test]
fn an_effect_that_is_safe_to_repeat_only_at_once_is_found_with_nothing_saved() {
    let rows: Arc<Mutex<Vec<u64>>> = Arc::default();
    let outside = Arc::clone(&rows);
    let job: Steps<u64, u64, ()> = Steps::new(
        || 0,
        move |_, to, at| {
            let rows = Arc::clone(&outside);
            Box::pin(async move {
                let mut rows = rows.lock().unwrap();
                if rows.last() != Some(&at) {
                    rows.push(at);
                }
                Ok(if at == *to { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    );
    let harness = Harness::new(job).args(&3).killed_at_every_step();
    let difference = found(harness.observe(|_| mem::take(&mut *rows.lock().unwrap())));
    assert_eq!(difference.disturbance(), "killed at the end of step 2 of 4, with nothing saved");
}

#[test]
fn an_effect_of_a_frozen_worker_is_found() {
    let rows = Arc::default();
    let harness = Harness::new(pushing(&rows, Duration::from_secs(1))).args(&3).frozen();
    let difference = found(harness.observe(|_| mem::take(&mut *rows.lock().unwrap())));
    assert!(difference.disturbance().starts_with("frozen at await 1 in step 1 of 4"), "{difference}");
    assert!(difference.to_string().contains("refused by `cx.fence()`"), "{difference}");
}

/// A register outside, which a step sets after it has waited. Repeating a step is safe; going on with one after
/// another worker has run later ones is not.
#[test]
fn a_frozen_step_goes_on_where_it_was_and_overwrites_what_came_later() {
    for wait in ["a timer", "a call", "a thread", "nothing"] {
        let register: Arc<AtomicU32> = Arc::default();
        let (outside, look) = (Arc::clone(&register), Arc::clone(&register));
        let job: Steps<(), u32, ()> = Steps::new(
            || 0,
            move |cx, (), at| {
                let register = Arc::clone(&outside);
                Box::pin(async move {
                    match wait {
                        "a timer" => sleep(Duration::from_secs(1)).await,
                        "a call" => drop(cx.exists("anything").await?),
                        "a thread" => cx.compute(|| sleep_really(Duration::from_millis(20))).await,
                        _ => tokio::task::yield_now().await,
                    }
                    register.store(at, Relaxed);
                    Ok(if at == 3 { Step::Done(()) } else { Step::Continue(at + 1) })
                })
            },
        );
        let harness = Harness::new(job).frozen().observe(|_| look.load(Relaxed));
        let difference = found(harness);
        // A call is another await before it answers.
        let number = if wait == "a call" { 2 } else { 1 };
        let at = format!("frozen at await {number} in step 1");
        assert!(difference.disturbance().starts_with(&at), "{wait}: {difference}");
        assert_eq!((difference.expected(), difference.seen()), ("3", "0"), "{wait}: {difference}");
    }
}

/// A step that looks whether it should yield, and then returns a state that lacks what it has done.
#[test]
fn a_step_that_saves_itself_is_asked_to_yield_at_each_of_its_saves() {
    let asked: Arc<AtomicU32> = Arc::default();
    let noted = Arc::clone(&asked);
    let job: Steps<(), (u64, u64), u64> = Steps::new(
        || (0, 0),
        move |cx, (), (mut epoch, mut sum)| {
            let asked = Arc::clone(&noted);
            Box::pin(async move {
                while epoch < 10 {
                    sum += epoch;
                    if cx.is_interrupted() {
                        asked.fetch_add(1, Relaxed);
                        return Ok(Step::Continue((epoch, sum)));
                    }
                    epoch += 1;
                    cx.save::<Steps<(), (u64, u64), u64>>(&(epoch, sum)).await?;
                }
                Ok(Step::Done(sum))
            })
        },
    );
    let difference = found(Harness::new(job).evicted_at_every_step());
    assert_eq!(difference.disturbance(), "evicted at await 1 in step 1 of 1");
    assert_eq!(
        (difference.expected(), difference.seen(), asked.load(Relaxed)),
        ("45", "46", 1),
        "{difference}"
    );
}

/// What pays and notes it in the store, in this order or the other.
fn paying(pays: &Arc<Mutex<Vec<u64>>>, notes_first: bool) -> Steps<u64, u64, ()> {
    let pays = Arc::clone(pays);
    Steps::new(
        || 0,
        move |cx, to, at| {
            let pays = Arc::clone(&pays);
            Box::pin(async move {
                let note = format!("paid-{at}");
                if !cx.exists(&cx.output_name(&note)?).await? {
                    if notes_first {
                        cx.put_output(&note, Vec::new()).await?;
                    }
                    pays.lock().unwrap().push(at);
                    if !notes_first {
                        cx.put_output(&note, Vec::new()).await?;
                    }
                }
                Ok(if at == *to { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    )
}

#[test]
fn a_kill_between_an_effect_and_its_note_in_the_store_is_found() {
    for (notes_first, seen) in [(false, "[0,0,1,2]"), (true, "[1,2]")] {
        let pays = Arc::default();
        let harness = Harness::new(paying(&pays, notes_first)).args(&2).killed_at_every_step();
        let difference = found(harness.observe(|_| mem::take(&mut *pays.lock().unwrap())));
        assert!(difference.disturbance().contains("in step 1 of 3"), "{difference}");
        assert_eq!((difference.expected(), difference.seen()), ("[0,1,2]", seen));
    }
}

/// The state says that it was paid, before it was.
#[test]
fn a_kill_between_a_save_and_the_effect_after_it_is_found() {
    let pays: Arc<Mutex<u32>> = Arc::default();
    let outside = Arc::clone(&pays);
    let job: Steps<(), bool, ()> = Steps::new(
        || false,
        move |cx, (), is_paid| {
            let pays = Arc::clone(&outside);
            Box::pin(async move {
                if !is_paid {
                    cx.save::<Steps<(), bool, ()>>(&true).await?;
                    *pays.lock().unwrap() += 1;
                }
                Ok(Step::Done(()))
            })
        },
    );
    let harness = Harness::new(job).killed_at_every_step();
    let difference = found(harness.observe(|_| mem::take(&mut *pays.lock().unwrap())));
    assert_eq!((difference.expected(), difference.seen()), ("1", "0"), "{difference}");
}

/// One of twenty awaits is the window in which a kill repeats the effect.
#[test]
fn a_window_at_any_of_many_awaits_is_found() {
    for window in [1, 5, 11, 15, 20] {
        let (sent, known): (Arc<Mutex<u32>>, Arc<Mutex<bool>>) = Default::default();
        let (outside, reset) = ((Arc::clone(&sent), Arc::clone(&known)), Arc::clone(&known));
        let job: Steps<(), (), ()> = Steps::new(
            || (),
            move |_, (), ()| {
                let (sent, known) = outside.clone();
                Box::pin(async move {
                    for number in 1..=20 {
                        let sends = number == window && !*known.lock().unwrap();
                        *sent.lock().unwrap() += u32::from(sends);
                        sleep(Duration::from_millis(5)).await;
                        *known.lock().unwrap() |= sends;
                    }
                    Ok(Step::Done(()))
                })
            },
        );
        let harness = Harness::new(job).killed_at_every_step();
        let harness = harness.before_each_run(move || *reset.lock().unwrap() = false);
        let difference = found(harness.observe(|_| mem::take(&mut *sent.lock().unwrap())));
        assert!(difference.disturbance().starts_with(&format!("killed at await {window} ")), "{difference}");
    }
}

/// The result says how often the step ran, in the lowest digit of a number of 128 bits.
#[test]
fn a_result_that_differs_beyond_the_digits_of_a_float_is_found() {
    let runs: Arc<AtomicU32> = Arc::default();
    let (outside, reset) = (Arc::clone(&runs), Arc::clone(&runs));
    let job: Steps<(), (), u128> = Steps::new(
        || (),
        move |_, (), ()| {
            let runs = outside.fetch_add(1, Relaxed);
            Box::pin(async move { Ok(Step::Done(u128::MAX - u128::from(runs))) })
        },
    );
    let harness = Harness::new(job).before_each_run(move || reset.store(0, Relaxed));
    let difference = found(harness.killed_at_every_step());
    assert_eq!(difference.what(), "the result");
    assert!(difference.expected().contains("211455") && difference.seen().contains("211454"), "{difference}");
}

/// An output that shows who wrote it.
#[test]
fn a_blob_that_differs_is_shown() {
    let job: Steps<(), u32, ()> = Steps::new(
        || 0,
        |cx, (), at| {
            Box::pin(async move {
                let text = format!("{{\"step\": {at}, \"delivery\": {}}}", cx.delivery());
                cx.put_output(&format!("out/{at}"), text.into_bytes()).await?;
                Ok(if at == 2 { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    );
    let difference = found(Harness::new(job).evicted_at_every_step());
    assert_eq!(difference.what(), "the blob \"jobs/job-1/out/0\", at `delivery`,");
    assert_eq!(difference.disturbance(), "evicted before step 1 of 3");
}

/// Each process has a memory of its own.
#[test]
fn a_job_that_relies_on_its_memory_is_found_where_each_worker_has_its_own() {
    let job = || -> Steps<(), u32, u32> {
        let memory = Arc::new(AtomicU32::new(0));
        Steps::new(
            || 0,
            move |_, (), at| {
                let sum = memory.fetch_add(at, Relaxed) + at;
                Box::pin(async move { Ok(if at == 3 { Step::Done(sum) } else { Step::Continue(at + 1) }) })
            },
        )
    };
    let difference = found(Harness::with(job).evicted_at_every_step());
    assert_eq!(difference.what(), "the result");
    assert_eq!(difference.step(), Some(2));
}

#[test]
fn a_job_that_is_another_one_each_time_is_not_compared_any_further() {
    let runs = Arc::new(AtomicU32::new(0));
    let job: Steps<(), (), u32> = Steps::new(
        || (),
        move |_, (), ()| {
            let run = runs.fetch_add(1, Relaxed);
            Box::pin(async move { Ok(Step::Done(run)) })
        },
    );
    let message = found(Harness::new(job)).to_string();
    assert!(message.starts_with("the job \"steps\", undisturbed: the result differs"), "{message}");
    assert!(message.contains("Two undisturbed runs must be the same"), "{message}");
}

#[test]
fn a_job_that_fails_undisturbed_is_shown_with_its_reason() {
    let job: Steps<(), (), ()> =
        Steps::new(|| (), |_, (), ()| Box::pin(async move { Err(JobError::fatal("no such customer")) }));
    let difference = found(Harness::new(job));
    assert_eq!(
        difference.to_string(),
        "the job \"steps\", undisturbed: how it ends differs\n  expected: done\n  seen:     dead-lettered: \
         no such customer"
    );
    let job: Steps<u32, (), ()> = Steps::new(|| (), |_, _, ()| Box::pin(async move { Ok(Step::Done(())) }));
    let message = found(Harness::new(job).args("seven")).to_string();
    assert!(message.contains("the arguments do not fit kind \"steps\""), "{message}");
}

#[test]
fn a_job_that_does_not_end_is_given_up() {
    let job: Steps<(), (), ()> = Steps::new(
        || (),
        |_, (), ()| {
            Box::pin(async move {
                sleep(Duration::from_secs(600)).await;
                Ok(Step::Continue(()))
            })
        },
    );
    let difference = found(Harness::new(job).within(Duration::from_hours(1)));
    let seen = difference.seen();
    assert!(seen.starts_with("not done: its time is over, after 7 steps; see `Harness::within`"), "{seen}");
}

#[test]
#[should_panic(expected = "evicted before step 1 of 2: how it ends differs")]
fn a_check_panics_with_the_message() {
    let job: Steps<(), u32, ()> = Steps::new(
        || 0,
        |cx, (), at| {
            let delivery = cx.delivery();
            Box::pin(async move {
                assert!(at == 0 || delivery == 1, "step {at} in delivery {delivery}");
                Ok(if at == 1 { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    );
    Harness::new(job).evicted_at_every_step().check();
}

/// A thread that waits for its step, while the step waits for the store: the thread holds the clock.
#[test]
fn a_run_that_stands_still_is_given_up_in_real_time() {
    let job: Steps<(), (), u64> = Steps::new(
        || (),
        |cx, (), ()| {
            Box::pin(async move {
                let (send, mut take) = tokio::sync::mpsc::channel::<u64>(1);
                let adding = tokio::task::spawn_blocking(move || {
                    let mut sum = 0;
                    while let Some(next) = take.blocking_recv() {
                        sum += next;
                    }
                    sum
                });
                sleep(Duration::from_secs(1)).await;
                cx.put_output("out", vec![1]).await?;
                send.send(3).await.map_err(JobError::fatal)?;
                drop(send);
                Ok(Step::Done(adding.await.map_err(JobError::fatal)?))
            })
        },
    );
    let difference = found(Harness::new(job).frozen().patience(Duration::from_secs(3)));
    assert!(difference.to_string().contains("no step moved for 3s of real time"), "{difference}");
    assert!(difference.to_string().contains("A thread that waits for its step"), "{difference}");
}

/// A permit that all workers of the run share, and that the frozen step holds.
#[test]
fn a_disturbed_job_that_does_not_end_gets_its_own_advice() {
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    let job: Steps<(), (), ()> = Steps::new(
        || (),
        move |cx, (), ()| {
            let permits = Arc::clone(&permits);
            Box::pin(async move {
                let _permit = permits.acquire().await.map_err(JobError::fatal)?;
                cx.exists("anything").await?;
                Ok(Step::Done(()))
            })
        },
    );
    let difference = found(Harness::new(job).within(Duration::from_secs(600)).frozen());
    assert!(difference.seen().starts_with("not done: "), "{difference}");
    assert!(
        difference.to_string().contains("A lock or a permit that a step on another worker holds"),
        "{difference}"
    );
}

#[test]
fn what_is_observed_may_have_any_number_of_digits() {
    let job: Steps<(), (), ()> = Steps::new(|| (), |_, (), ()| Box::pin(async { Ok(Step::Done(())) }));
    let report = Harness::new(job).observe(|_| u128::MAX).killed_at_every_step().check();
    assert_eq!(report.steps(), 1);
}

#[test]
#[ignore = "ends its process, for the test below"]
fn a_step_blocks_the_thread_of_the_test() {
    let connections = Arc::new(std::sync::Mutex::new(()));
    let job: Steps<(), (), ()> = Steps::new(
        || (),
        move |_, (), ()| {
            let connections = Arc::clone(&connections);
            Box::pin(async move {
                // A pool of one connection, which a thread keeps.
                let (held, is_held) = std::sync::mpsc::channel();
                let pool = Arc::clone(&connections);
                std::thread::spawn(move || {
                    let connection = pool.lock().unwrap();
                    held.send(()).unwrap();
                    std::thread::park();
                    drop(connection);
                });
                is_held.recv().map_err(JobError::fatal)?;
                drop(connections.lock().unwrap());
                Ok(Step::Done(()))
            })
        },
    );
    Harness::new(job).patience(Duration::from_secs(2)).check();
}

#[test]
fn a_step_that_blocks_the_thread_of_the_test_for_ever_ends_the_process_with_a_line() {
    let this = std::env::current_exe().unwrap();
    let blocked = ["found::a_step_blocks_the_thread_of_the_test", "--exact", "--ignored", "--nocapture"];
    let ended = std::process::Command::new(this).args(blocked).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(101), "{said}");
    assert!(said.contains("a step has blocked its thread for"), "{said}");
}

/// Ten steps that each take so long on the thread of the test.
fn busy(each: Duration) -> Steps<(), u32, ()> {
    Steps::new(
        || 0,
        move |cx, (), at| {
            Box::pin(async move {
                sleep_really(each);
                cx.exists("anything").await?;
                Ok(if at == 9 { Step::Done(()) } else { Step::Continue(at + 1) })
            })
        },
    )
}

#[test]
fn whatever_the_patience_a_job_that_moves_is_not_given_up() {
    for patience in [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(1), Duration::MAX] {
        Harness::new(busy(Duration::from_millis(250)))
            .evicted_at_every_step()
            .points(1)
            .patience(patience)
            .check();
    }
}

#[cfg(unix)]
#[test]
#[ignore = "stops its process, for the test below"]
fn a_process_is_stopped_for_a_while() {
    let stops = format!("sleep 1; kill -STOP {0}; sleep 5; kill -CONT {0}", std::process::id());
    let mut stopping = std::process::Command::new("sh").args(["-c", &stops]).spawn().unwrap();
    // Longer than that.
    Harness::new(busy(Duration::from_millis(400)))
        .evicted_at_every_step()
        .points(1)
        .patience(Duration::from_secs(2))
        .check();
    assert!(stopping.wait().unwrap().success());
}

/// By a debugger, or in a container that is paused.
#[cfg(unix)]
#[test]
fn a_process_that_is_stopped_and_continued_is_not_taken_for_blocked() {
    let this = std::env::current_exe().unwrap();
    let stopped = ["found::a_process_is_stopped_for_a_while", "--exact", "--ignored", "--nocapture"];
    let ended = std::process::Command::new(this).args(stopped).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A step that does not end, or one that begins in the same state again and again.
type Nowhere = fn(&reprieve_core::JobContext) -> futures_util::future::BoxFuture<'_, Option<Step<u32, ()>>>;

#[test]
fn a_job_that_moves_and_gets_nowhere_is_given_up_in_real_time() {
    let ways: [(&str, Nowhere); 8] = [
        ("saves the same", |cx| {
            Box::pin(async {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    cx.save::<Steps<(), u32, ()>>(&7).await.ok()?;
                }
            })
        }),
        ("polls", |_| {
            Box::pin(async {
                loop {
                    sleep(Duration::from_secs(1)).await;
                }
            })
        }),
        ("polls the store", |cx| {
            Box::pin(async {
                while !cx.exists("anything").await.ok()? {
                    sleep(Duration::from_millis(10)).await;
                }
                None
            })
        }),
        ("asks the store at once", |cx| {
            Box::pin(async {
                while !cx.exists("anything").await.ok()? {}
                None
            })
        }),
        ("yields", |_| {
            Box::pin(async {
                loop {
                    tokio::task::yield_now().await;
                }
            })
        }),
        ("writes and deletes an output", |cx| {
            Box::pin(async {
                loop {
                    cx.put_output("out", Vec::new()).await.ok()?;
                    cx.delete_output("out").await.ok()?;
                }
            })
        }),
        ("goes on", |_| Box::pin(async { Some(Step::Continue(7)) })),
        ("waits", |_| Box::pin(async { Some(Step::Wait(7, Duration::from_secs(1))) })),
    ];
    for (how, way) in ways {
        let job: Steps<(), u32, ()> = Steps::new(
            || 0,
            move |cx, (), _| Box::pin(async move { way(cx).await.ok_or_else(|| JobError::fatal("it came")) }),
        );
        let message = found(Harness::new(job).patience(Duration::from_secs(2))).to_string();
        assert!(message.contains("it moves and gets nowhere, for 2s of real time"), "{how}: {message}");
        assert!(message.contains("s of simulated time, await "), "{how}: {message}");
        assert!(message.contains("Perhaps it only takes longer"), "{how}: {message}");
        assert!(message.contains("it polls for what never comes"), "{how}: {message}");
    }
}

/// One that always waits for something real, or works, may take ten times as long.
#[test]
fn a_step_that_works_or_looks_for_a_file_without_end_is_given_up() {
    let ways: [(&str, Nowhere); 2] = [
        ("looks for a file", |_| {
            Box::pin(async {
                // An answer before the await is none that a step waits for, and a machine with one core may give it.
                let look = || {
                    sleep_really(Duration::from_millis(1));
                    std::path::Path::new("/not/there").exists()
                };
                while !tokio::task::spawn_blocking(look).await.ok()? {
                    sleep(Duration::from_secs(1)).await;
                }
                None
            })
        }),
        ("works", |_| {
            Box::pin(async {
                loop {
                    sleep_really(Duration::from_millis(10));
                    tokio::task::yield_now().await;
                }
            })
        }),
    ];
    for (how, way) in ways {
        let job: Steps<(), u32, ()> = Steps::new(
            || 0,
            move |cx, (), _| Box::pin(async move { way(cx).await.ok_or_else(|| JobError::fatal("it came")) }),
        );
        let message = found(Harness::new(job).patience(Duration::from_secs(1))).to_string();
        assert!(message.contains("it moves and gets nowhere, for 10s of real time"), "{how}: {message}");
        assert!(message.contains("Perhaps it only takes longer"), "{how}: {message}");
    }
}

#[test]
#[ignore = "takes long, and prints, for the test below"]
fn a_job_gets_somewhere_slowly() {
    Harness::new(busy(Duration::from_millis(400)))
        .evicted_at_every_step()
        .points(1)
        .patience(Duration::from_secs(2))
        .check();
}

#[test]
fn a_run_that_takes_long_prints_how_far_it_is() {
    let this = std::env::current_exe().unwrap();
    let slow = ["found::a_job_gets_somewhere_slowly", "--exact", "--ignored", "--nocapture"];
    let ended = std::process::Command::new(this).args(slow).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("the job \"steps\" still moves after 2 s of real time in one run: "), "{said}");
}
