//! The kinds of thread: the control thread, the job threads, and threads for a store's connections.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

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
