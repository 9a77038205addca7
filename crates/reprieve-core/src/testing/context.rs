//! A context to call a step by hand.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::child_ids::ChildIds;
use crate::clock::unix_millis;
use crate::codec;
use crate::context::{JobContext, JobRun};
use crate::deadline::{Deadline, SOFT_MARK};
use crate::dependency::Dependency;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, MessageId, WorkerId};
use crate::job::Job;
use crate::memory;
use crate::names::{input_blob, output_blob};
use crate::notice::{Notice, NoticeKind};
use crate::ports::{Progress, Store};
use crate::record::{Handle, Identity};
use crate::retry::FOREVER;
use crate::saving::StepSaves;
use crate::shared_state::SharedStates;
use crate::telemetry::Telemetry;
use crate::time_limit::TimeLimit;
use crate::turns::Turns;
use crate::watch;

/// A [`JobContext`] with an in-memory store behind it, to call a step by hand. It derefs to the
/// context.
///
/// It needs a Tokio runtime with a clock. For whole jobs use the [`Harness`](super::Harness).
///
/// # Example
/// ```
/// # use reprieve_core::{Job, JobContext, JobError, Step};
/// # struct Shout;
/// # #[async_trait::async_trait]
/// # impl Job for Shout {
/// #     const KIND: &'static str = "shout";
/// #     type Args = String;
/// #     type Checkpoint = ();
/// #     type Output = ();
/// #     fn begin(&self, _: &String) {}
/// #     async fn step(&self, cx: &JobContext, name: &String, (): ()) -> Result<Step<(), ()>, JobError> {
/// #         let text = String::from_utf8(cx.input(name).await?).map_err(JobError::fatal)?;
/// #         cx.put_output("loud.txt", text.to_uppercase().into_bytes()).await?;
/// #         Ok(Step::Done(()))
/// #     }
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let cx = JobContext::for_test::<Shout>();
/// cx.put_input("quiet.txt", "hello").await?;
///
/// let step = Shout.step(&cx, &"quiet.txt".to_owned(), ()).await.unwrap();
/// assert_eq!(step, Step::Done(()));
/// assert_eq!(cx.output("loud.txt").await?.unwrap(), b"HELLO");
/// # Ok::<(), reprieve_core::Error>(())
/// # }).unwrap();
/// ```
pub struct TestContext {
    cx: JobContext,
    store: Store,
}

impl JobContext {
    /// A context to call a step of the job `J` by hand, as that of a first delivery whose lease does
    /// not end. No worker stands behind it: nothing is claimed, and what the step returns is not
    /// saved.
    #[must_use]
    pub fn for_test<J: Job>() -> TestContext {
        TestContext::new::<J>()
    }
}

impl TestContext {
    fn new<J: Job>() -> Self {
        let store = memory::store();
        let job = JobId::unique();
        let identity = Identity {
            job: job.clone(),
            kind: J::KIND,
            schema: J::SCHEMA,
            message: MessageId::new("1"),
            count: 1,
            generation: 0,
            inserted_unix_ms: Some(unix_millis()),
            worker: WorkerId::unique(),
            number: 1,
            abandoned_after: FOREVER,
            own_id: None,
            own_since_unix_ms: 0,
        };
        let run = JobRun {
            job,
            kind: J::KIND,
            delivery: 1,
            generation: AtomicU32::new(0),
            record: AsyncMutex::new(Box::new(Handle::new(Arc::clone(&store.records), identity, Vec::new()))),
            store: Arc::new(store.clone()),
            drain_store: Arc::new(store.clone()),
            control: None,
            states: SharedStates::default(),
            dependencies: Arc::new([]),
            waits_for: OnceLock::new(),
            // Without a worker, work that a step gave up would keep its turn until it ends.
            computing: Arc::new(Turns::new(usize::MAX)),
            slots: OnceLock::new(),
            time_limit: TimeLimit::default(),
            children: ChildIds::default(),
            trace: None,
            telemetry: Arc::new(Telemetry::default()),
            interrupted: CancellationToken::new(),
            cancelled: CancellationToken::new(),
            revoked: CancellationToken::new(),
            deadline: Mutex::new(None),
            lease_ends: watch::Sender::new(Instant::now() + FOREVER),
            last_saved: Mutex::new(Instant::now()),
            unconfirmed: Mutex::new(None),
            saving: Mutex::new(None),
            began: Mutex::new(Some(Instant::now())),
            began_unix_ms: OnceLock::from(unix_millis()),
            since_unix_ms: unix_millis(),
            stalled_unix_ms: AtomicI64::new(0),
            moved_unix_ms: AtomicI64::new(0),
            hung: OnceLock::new(),
            blocks: AtomicBool::new(false),
            is_excused: AtomicBool::new(false),
            wait_time: Arc::default(),
            span: OnceLock::new(),
            escalated: OnceLock::new(),
            has_resumed: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            steps_at_load: AtomicU64::new(0),
            unsaved_steps: AtomicU32::new(0),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            estimate: Mutex::default(),
            saves: Box::new(StepSaves::kept()),
        };
        Self { cx: JobContext { run: Arc::new(run) }, store }
    }

    /// Stores an input blob for the step to read.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name.
    pub async fn put_input(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.store.blobs.put(&input_blob(name)?, bytes.into(), None).await
    }

    /// Shares a value with the job; see [`JobContext::shared`].
    ///
    /// # Panics
    /// While a step, or a stream that it opened, still has the context.
    pub fn share<T: Send + Sync + 'static>(&mut self, value: T) {
        let run = Arc::get_mut(&mut self.cx.run).expect("no step is running");
        run.states.push(value);
    }

    /// Adds something that the job depends on; see [`JobContext::dependency`]. It is probed as a worker's, until
    /// the runtime ends. One that is reached by a real socket is away where time is
    /// [paused](tokio::time::pause), as by `start_paused`: time passes at once while nothing but the socket is waited
    /// for, so every limit is over before the answer comes.
    ///
    /// # Panics
    /// When there is one of this name; while a step, or a stream that it opened, still has the context; outside of a
    /// Tokio runtime.
    pub fn add_dependency(&mut self, name: &str, dependency: Arc<dyn Dependency>) {
        let is_there = self.cx.run.dependencies.iter().any(|handle| handle.name() == name);
        assert!(!is_there, "the context has a dependency {name:?} already; give each a name of its own");
        let run = Arc::get_mut(&mut self.cx.run).expect("no step is running");
        let handle = super::dependency(name, dependency);
        run.dependencies = run.dependencies.iter().cloned().chain([handle]).collect();
    }

    /// Returns an output, as the step has written it, by the name that the step used; `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name.
    pub async fn output(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.blobs.get(&output_blob("read an output", self.cx.job(), name)?).await
    }

    /// Returns the progress that the step has reported last, as done and total.
    #[must_use]
    pub fn reported(&self) -> (u64, u64) {
        let Progress { done, total } = self.cx.run.progress();
        (done, total)
    }

    /// Returns the states that the step has saved with [`JobContext::save`], oldest first.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when a state can't be read as one of `J`.
    pub fn saved<J: Job>(&self) -> Result<Vec<J::Checkpoint>> {
        let invalid = |why| Error::new(ErrorKind::Invalid, "read a checkpoint", why);
        let decode = |state: &codec::Encoded| codec::decode_state(state.bytes()).map_err(invalid);
        self.cx.run.saves.all_kept().iter().map(decode).collect()
    }

    /// Makes a save due, as at the end of the checkpoint interval.
    pub fn make_save_due(&self) {
        self.cx.run.saves.set_due(Instant::now());
    }

    /// Asks the step to yield, as a notice of an eviction does: it has until `left` from now on.
    pub fn interrupt(&self, left: Duration) {
        self.cx.run.interrupt(Deadline::of(&Notice::now("test", NoticeKind::Preempt), left));
    }

    /// Cancels the job: the step is asked to yield, and its result is not used.
    pub fn cancel(&self) {
        self.cx.run.cancelled.cancel();
        self.interrupt(SOFT_MARK);
    }

    /// Gives the job to another owner: every write of the step is refused from now on.
    pub fn lose(&self) {
        self.cx.run.revoked.cancel();
        // As long as a lease holds, a write need not look whether it is lost.
        self.cx.run.lease_ends.set(Instant::now());
    }

    /// Returns the store behind the context.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }
}

impl Deref for TestContext {
    type Target = JobContext;

    fn deref(&self) -> &JobContext {
        &self.cx
    }
}

impl fmt::Debug for TestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestContext").field(&self.cx).finish()
    }
}
