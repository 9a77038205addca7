//! Jobs for the kit's tests.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reprieve_core::testing::{Difference, Harness};
use reprieve_core::{Job, JobContext, JobError, Step};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The result of a step of [`Steps`].
pub(crate) type Stepped<C, O> = Result<Step<C, O>, JobError>;

type StepFn<A, C, O> =
    Arc<dyn for<'a> Fn(&'a JobContext, &'a A, C) -> BoxFuture<'a, Stepped<C, O>> + Send + Sync>;

/// A job whose step is a closure.
pub(crate) struct Steps<A, C, O> {
    begin: fn() -> C,
    step: StepFn<A, C, O>,
    output: PhantomData<fn() -> O>,
}

impl<A, C, O> Steps<A, C, O> {
    pub(crate) fn new(
        begin: fn() -> C,
        step: impl for<'a> Fn(&'a JobContext, &'a A, C) -> BoxFuture<'a, Stepped<C, O>> + Send + Sync + 'static,
    ) -> Self {
        Self { begin, step: Arc::new(step), output: PhantomData }
    }
}

#[async_trait::async_trait]
impl<A, C, O> Job for Steps<A, C, O>
where
    A: DeserializeOwned + Send + Sync + 'static,
    C: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
{
    const KIND: &'static str = "steps";
    type Args = A;
    type Checkpoint = C;
    type Output = O;

    fn begin(&self, _: &A) -> C {
        (self.begin)()
    }

    async fn step(&self, cx: &JobContext, args: &A, at: C) -> Stepped<C, O> {
        (self.step)(cx, args, at).await
    }
}

#[expect(clippy::disallowed_methods, reason = "something real takes real time")]
pub(crate) fn sleep_really(length: Duration) {
    thread::sleep(length);
}

/// Returns what the harness finds.
pub(crate) fn found<J: Job + Debug>(harness: Harness<'_, J>) -> Difference {
    harness.try_check().expect_err("a difference")
}

impl<A, C, O> Debug for Steps<A, C, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steps")
    }
}
