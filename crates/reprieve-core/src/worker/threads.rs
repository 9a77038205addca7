//! The two kinds of thread: one that keeps promises, and those that run jobs.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// The runtimes of a worker process. The watcher, the lease keeper, the drain and every wait on a timer live on the
/// control runtime, which is the thread that calls [`block_on`](Self::block_on); jobs have threads of their own. A job
/// that blocks every job thread can't cost a lease or a notice.
#[derive(Debug)]
pub struct Threads {
    control: Runtime,
    jobs: Runtime,
}

impl Threads {
    /// Starts both; `job_threads` of them for jobs, at least one.
    ///
    /// # Errors
    /// The operating system's, when it gives no more threads.
    pub fn start(job_threads: usize) -> io::Result<Self> {
        let control = Builder::new_current_thread().enable_all().build()?;
        let jobs = Builder::new_multi_thread()
            .worker_threads(job_threads.max(1))
            .thread_name("reprieve-job")
            .enable_all()
            .build()?;
        Ok(Self { control, jobs })
    }

    /// Where jobs run: for [`WorkerBuilder::jobs_on`](super::WorkerBuilder::jobs_on).
    #[must_use]
    pub fn jobs(&self) -> Handle {
        self.jobs.handle().clone()
    }

    /// Runs `main` on the calling thread, as the control thread, and then ends both runtimes without waiting for jobs
    /// that never yield: what they held is released, so they may end with the process.
    pub fn block_on<T>(self, main: impl Future<Output = T>) -> T {
        let result = self.control.block_on(main);
        self.control.shutdown_background();
        self.jobs.shutdown_background();
        result
    }
}
