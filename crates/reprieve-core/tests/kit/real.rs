//! Steps that wait for something real: no timer fires early meanwhile.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use reprieve_core::testing::Harness;
use reprieve_core::{Job, JobContext, JobError, NewJob, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Steps, sleep_really};

/// Simulated seconds pass in microseconds where nothing holds the clock.
const LIMIT: Duration = Duration::from_secs(2);

/// How long the real thing takes: longer than the clock stands still at a wait that is not known.
const SLOW: Duration = Duration::from_millis(250);

/// A server on a thread, which answers slowly with what it is sent.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 5];
                if stream.read_exact(&mut buffer).is_ok() {
                    sleep_really(SLOW);
                    // The client of a killed step is gone.
                    let _sent = stream.write_all(&buffer);
                }
            });
        }
    });
    address
}

/// Does this in a step, between two sleeps, and fails if a timer of the step fires early.
fn check(work: impl Fn() -> BoxFuture<'static, io::Result<()>> + Send + Sync + 'static) {
    let job: Steps<(), u32, ()> = Steps::new(
        || 0,
        move |_, (), at| {
            let work = work();
            Box::pin(async move {
                if at == 1 {
                    return Ok(Step::Done(()));
                }
                sleep(Duration::from_secs(30)).await;
                let began = Instant::now();
                match timeout(LIMIT, work).await {
                    Ok(done) => done.map_err(JobError::fatal)?,
                    Err(_) => return Err(JobError::fatal("the timeout ended early")),
                }
                if began.elapsed() >= LIMIT {
                    return Err(JobError::fatal(format!("it took {:?}", began.elapsed())));
                }
                sleep(Duration::from_secs(30)).await;
                Ok(Step::Continue(at + 1))
            })
        },
    );
    Harness::new(job).evicted_at_every_step().killed_at_every_step().points(3).check();
}

#[test]
fn a_tcp_connection_holds_the_clock() {
    let address = echo();
    check(move || {
        Box::pin(async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"hello").await?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"hello");
            Ok(())
        })
    });
}

/// As an HTTP client does: a task of its own has the connection.
#[test]
fn a_connection_of_another_task_holds_the_clock() {
    let address = echo();
    check(move || {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(b"hello").await?;
                let mut buffer = [0; 5];
                stream.read_exact(&mut buffer).await?;
                let _waits = answer.send(buffer);
                io::Result::Ok(())
            });
            assert_eq!(&answered.await.map_err(io::Error::other)?, b"hello");
            Ok(())
        })
    });
}

#[test]
fn a_thread_that_answers_over_a_channel_holds_the_clock() {
    check(|| {
        Box::pin(async {
            let (answer, answered) = oneshot::channel();
            thread::spawn(move || {
                sleep_really(SLOW);
                let _waits = answer.send(());
            });
            answered.await.map_err(io::Error::other)
        })
    });
}

#[test]
fn a_blocking_task_holds_the_clock() {
    check(|| {
        Box::pin(async { tokio::task::spawn_blocking(|| sleep_really(SLOW)).await.map_err(io::Error::other) })
    });
}

/// Its one step takes longer than a run may stand still, and moves meanwhile.
#[test]
fn a_long_step_that_saves_and_waits_is_not_given_up() {
    let job: Steps<(), u32, ()> = Steps::new(
        || 0,
        |cx, (), mut at| {
            Box::pin(async move {
                while at < 8 {
                    cx.compute(|| sleep_really(Duration::from_millis(300))).await;
                    at += 1;
                    cx.save::<Steps<(), u32, ()>>(&at).await?;
                    sleep(Duration::from_mins(10)).await;
                }
                Ok(Step::Done(()))
            })
        },
    );
    Harness::new(job).patience(Duration::from_secs(2)).points(1).killed_at_every_step().check();
}

/// So many steps that only compute, for so long each.
fn computes(steps: u64, each: Duration) -> Steps<(), u64, u64> {
    Steps::new(
        || 0,
        move |_, (), at| {
            Box::pin(async move {
                sleep_really(each);
                Ok(if at == steps { Step::Done(at) } else { Step::Continue(at + 1) })
            })
        },
    )
}

#[test]
fn a_job_whose_steps_only_compute_blocks_no_thread() {
    let job = computes(40, Duration::from_millis(100));
    Harness::new(job).patience(Duration::from_secs(2)).points(1).evicted_at_every_step().check();
}

/// The first worker is killed with nothing saved, so the second comes to the same states.
#[test]
fn a_killed_job_that_begins_anew_gets_somewhere() {
    let job = computes(30, Duration::from_millis(100));
    Harness::new(job).patience(Duration::from_secs(2)).points(2).killed_at_every_step().check();
}

#[derive(Debug)]
struct Nothing;

#[async_trait]
impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Args = u32;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u32) {}

    async fn step(&self, _: &JobContext, _: &u32, (): ()) -> Result<Step<(), ()>, JobError> {
        Ok(Step::Done(()))
    }
}

/// Thirty items of 100 ms in one step, each with a call that needs no time, and none of which leaves anything new.
#[test]
fn a_long_step_that_works_and_calls_the_store_or_yields_is_not_given_up() {
    for call in ["reads", "enqueues", "yields"] {
        let job: Steps<(), (), ()> = Steps::new(
            || (),
            move |cx, (), ()| {
                Box::pin(async move {
                    for number in 0..30 {
                        sleep_really(Duration::from_millis(100));
                        match call {
                            "reads" => drop(cx.input("in").await?),
                            "enqueues" => {
                                cx.enqueue(vec![NewJob::of::<Nothing>(&number)?]).await?;
                            }
                            _ => tokio::task::yield_now().await,
                        }
                    }
                    Ok(Step::Done(()))
                })
            },
        );
        let harness = Harness::new(job).also(Nothing).input("in", [1]).patience(Duration::from_secs(2));
        harness.points(1).evicted_at_every_step().check();
    }
}

/// Works off what a service has, one in each step, with no state of its own: over 300 moves in the same state.
#[test]
fn a_job_that_works_in_the_same_state_is_not_given_up() {
    let left = Arc::new(AtomicU32::new(0));
    let (outside, reset, look) = (Arc::clone(&left), Arc::clone(&left), Arc::clone(&left));
    let job: Steps<(), (), ()> = Steps::new(
        || (),
        move |_, (), ()| {
            let left = Arc::clone(&outside);
            Box::pin(async move {
                if left.load(Relaxed) == 0 {
                    return Ok(Step::Done(()));
                }
                sleep_really(Duration::from_millis(15));
                tokio::task::yield_now().await;
                left.fetch_sub(1, Relaxed);
                Ok(Step::Continue(()))
            })
        },
    );
    let harness = Harness::new(job).before_each_run(move || reset.store(200, Relaxed));
    let harness = harness.observe(move |_| look.load(Relaxed)).patience(Duration::from_secs(2));
    harness.points(1).evicted_at_every_step().check();
}

/// Twenty items of 150 ms, each with an output, without a state.
#[test]
fn a_step_that_computes_and_writes_outputs_or_sleeps_gets_somewhere() {
    for writes in [true, false] {
        let job: Steps<(), (), ()> = Steps::new(
            || (),
            move |cx, (), ()| {
                Box::pin(async move {
                    for number in 0..20 {
                        sleep_really(Duration::from_millis(150));
                        if writes {
                            cx.put_output(&format!("item-{number}"), vec![number]).await?;
                        } else {
                            sleep(Duration::from_millis(10)).await;
                        }
                    }
                    Ok(Step::Done(()))
                })
            },
        );
        Harness::new(job).patience(Duration::from_secs(2)).points(1).evicted_at_every_step().check();
    }
}
