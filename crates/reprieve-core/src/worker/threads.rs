//! The kinds of thread: the control thread, the job threads, and threads for a store's connections.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio::runtime::{self, Builder, Handle, Runtime};
use tokio::task;

use crate::codec::STACK_BYTES;

/// The runtimes of a worker process. The watcher, the guardians, the drain and all timers run on
/// the control runtime, which is the thread that calls [`block_on`](Self::block_on). Jobs have
/// threads of their own. A job that blocks every job thread delays no lease renewal and no notice. A
/// store that is reached over a network may have threads for its connections, so that the control thread
/// does not encode and encrypt every request.
#[derive(Debug)]
pub struct Threads {
    control: Runtime,
    jobs: Runtime,
    io: Option<Runtime>,
}

impl Threads {
    /// Starts the runtimes, with `job_threads` threads for jobs, at least one, and `io_threads` for
    /// connections.
    ///
    /// # Errors
    /// Any error of the operating system when it starts no more threads.
    pub fn start(job_threads: usize, io_threads: usize) -> io::Result<Self> {
        let control = Builder::new_current_thread().enable_all().build()?;
        let jobs = Builder::new_multi_thread()
            .worker_threads(job_threads.max(1))
            .thread_name("reprieve-job")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        let io = || {
            Builder::new_multi_thread()
                .worker_threads(io_threads)
                .thread_name("reprieve-io")
                .enable_all()
                .build()
        };
        Ok(Self { control, jobs, io: (io_threads > 0).then(io).transpose()? })
    }

    /// Returns the runtime for connections, if there is one.
    #[must_use]
    pub fn io(&self) -> Option<Handle> {
        self.io.as_ref().map(|io| io.handle().clone())
    }

    /// Returns the runtime for jobs, for [`WorkerBuilder::jobs_on`](super::WorkerBuilder::jobs_on).
    #[must_use]
    pub fn jobs(&self) -> Handle {
        self.jobs.handle().clone()
    }

    /// Runs `main` on the calling thread, which becomes the control thread, and then ends all
    /// runtimes. It does not wait for jobs that never yield: their messages are released, so they
    /// may end with the process.
    pub fn block_on<T>(self, main: impl Future<Output = T>) -> T {
        let result = self.control.block_on(main);
        self.control.shutdown_background();
        self.jobs.shutdown_background();
        if let Some(io) = self.io {
            io.shutdown_background();
        }
        result
    }
}

/// Runs the future of a job so that no job waits for the thread of another one.
///
/// Tokio keeps the task that another task woke last for the same thread, where no idle thread may take
/// it: <https://docs.rs/tokio/1/tokio/runtime/index.html#multi-threaded-runtime-behavior-at-the-time-of-writing>.
/// A job may compute for minutes without yielding, and what waits for a lock that it has released would
/// wait for all of that time. So a wake by another job goes by the `control` thread.
pub(super) async fn on_any_thread<F: Future>(future: F, control: Handle) -> F::Output {
    let mut future = pin!(future);
    let mut known: Option<(Waker, Waker)> = None;
    poll_fn(move |cx| {
        let same = known.take().filter(|(task, _)| task.will_wake(cx.waker()));
        let (_, waker) = known.insert(same.unwrap_or_else(|| {
            let (job, runtime) = (task::try_id(), Handle::try_current().ok().map(|runtime| runtime.id()));
            let waker = JobWaker { task: cx.waker().clone(), job, runtime, control: control.clone() };
            (cx.waker().clone(), Arc::new(waker).into())
        }));
        future.as_mut().poll(&mut Context::from_waker(waker))
    })
    .await
}

/// Wakes a job.
struct JobWaker {
    task: Waker,
    job: Option<task::Id>,
    /// The runtime for jobs.
    runtime: Option<runtime::Id>,
    control: Handle,
}

impl JobWaker {
    fn is_called_by_another_job(&self) -> bool {
        let runtime = || Handle::try_current().ok().map(|runtime| runtime.id());
        task::try_id().is_some_and(|task| Some(task) != self.job) && runtime() == self.runtime
    }
}

impl Wake for JobWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_called_by_another_job() {
            let job = self.task.clone();
            self.control.spawn(async move { job.wake() });
        } else {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::Mutex;

    use super::*;

    #[test]
    fn what_a_job_wakes_does_not_wait_until_that_job_yields() {
        let threads = Threads::start(4, 0).unwrap();
        let jobs = threads.jobs();
        let (ends, has_ended) = mpsc::channel();
        threads.block_on(async {
            let lock = Arc::new(Mutex::new(()));
            let (held, is_held) = tokio::sync::oneshot::channel();
            let (first, second) = (Arc::clone(&lock), lock);
            let blocks = jobs.spawn(on_any_thread(
                async move {
                    let guard = first.lock().await;
                    held.send(()).unwrap();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    drop(guard);
                    // Until the other one has the lock: for ever, if it waits for this thread.
                    has_ended.recv_timeout(Duration::from_secs(20)).is_ok()
                },
                Handle::current(),
            ));
            is_held.await.unwrap();
            let waits = async move {
                drop(second.lock().await);
                ends.send(()).unwrap();
            };
            jobs.spawn(on_any_thread(waits, Handle::current())).await.unwrap();
            assert!(blocks.await.unwrap(), "it had its turn only when the other one yielded");
        });
    }
}
