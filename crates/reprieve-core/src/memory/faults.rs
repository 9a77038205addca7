//! Fault injection: chosen calls to a store fail, hang, are delayed, or lose their answer; every
//! call is counted.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};

/// Injects faults into the calls to one wrapped [`Store`](crate::ports::Store). Clones control the
/// same store.
///
/// To disturb one worker only, wrap one clone of the store per worker: two wrappers of one store do
/// not share faults or counts. While receives fail or hang, `arrived` does not complete.
///
/// # Example: two saves fail, the third is taken
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use reprieve_core::memory::{self, Fault, Faults, Op};
/// use reprieve_core::ports::RecordWrite;
/// use reprieve_core::{ErrorKind, JobId};
///
/// let (store, faults) = Faults::wrap(memory::store());
/// faults.next_calls(Op::Save, 2, Fault::Fail(ErrorKind::Unavailable));
///
/// let (job, write) = (JobId::unique(), RecordWrite { record: b"half way".to_vec(), ..RecordWrite::default() });
/// for _ in 0..2 {
///     let error = store.records.put(&job, None, write.clone()).await.unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::Unavailable);
/// }
/// store.records.put(&job, None, write).await.unwrap();
/// assert_eq!(faults.calls(Op::Save), 3);
/// assert_eq!(faults.calls(Op::Load), 0);
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Faults {
    plans: Arc<watch::Sender<HashMap<Op, Plan>>>,
}

/// Defines the operations in one list, so that none is missing in [`Op::ALL`].
macro_rules! operations {
    ($($(#[$doc:meta])* $op:ident => $describe:literal,)+) => {
        /// An operation of a store. [`Save`](Self::Save) is [`RecordStore::put`], and [`Put`](Self::Put) is
        /// [`BlobStore::put`] or [`BlobStore::create`]; every other operation has the name of its method,
        /// with the port's name where two have one.
        ///
        /// [`RecordStore::put`]: crate::ports::RecordStore::put
        /// [`BlobStore::put`]: crate::ports::BlobStore::put
        /// [`BlobStore::create`]: crate::ports::BlobStore::create
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named after the port's method, or the doc comment names the method")]
        pub enum Op {
            $($(#[$doc])* $op,)+
        }

        impl Op {
            /// Every operation.
            pub const ALL: [Self; [$($describe),+].len()] = [$(Self::$op),+];

            /// The operation, as it completes "failed to …".
            const fn describe(self) -> &'static str {
                match self {
                    $(Self::$op => $describe,)+
                }
            }
        }
    };
}

operations! {
    Send => "send messages",
    Receive => "receive messages",
    Renew => "renew a lease",
    Complete => "complete a message",
    Release => "release a message",
    DeadLetter => "dead-letter a message",
    Recover => "recover messages",
    Depth => "count messages",
    DeadLetters => "look at dead letters",
    ReceiveLetters => "receive dead letters",
    RemoveLetter => "remove a dead letter",
    ReturnLetter => "return a dead letter",
    Load => "load a record",
    Save => "write a record",
    /// `RecordStore::put` of an entry of the ledger.
    Ledger => "write an entry of the ledger",
    /// `RecordStore::page` of the ledger.
    LedgerPage => "list entries of the ledger",
    Remove => "remove a record",
    Payload => "read a payload",
    StorePayload => "write a payload",
    RecordPage => "list records",
    PayloadPage => "list payloads",
    RemovePayloads => "remove payloads",
    Get => "read a blob",
    GetRange => "read a blob",
    Put => "write a blob",
    PutPart => "write a blob in parts",
    PutParts => "write a blob in parts",
    Exists => "look for a blob",
    List => "list blobs",
    BlobPage => "list blobs",
    Delete => "delete a blob",
    DeleteVersion => "delete a blob",
    Publish => "publish a report",
    Withdraw => "withdraw a report",
    Reports => "read reports",
}

/// The fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails at once, and nothing is applied.
    Fail(ErrorKind),
    /// The call does nothing until [`Faults::clear`] is called for its operation, and then succeeds
    /// normally.
    Hang,
    /// The call waits this long, and then proceeds normally.
    Delay(Duration),
    /// The call is applied at once, but its answer arrives this much later.
    LateAnswer(Duration),
    /// The call is applied, but fails with [`ErrorKind::TimedOut`], whatever its result.
    LoseAnswer,
    /// No fault: the call lets other tasks run once before it is applied, and once before it answers, as
    /// a call over a network does. So a caller can be stopped at both.
    Yield,
}

/// The planned faults of one operation.
#[derive(Debug, Default)]
struct Plan {
    calls: u64,
    clears: u64,
    /// Faults for the next calls, each with a number of calls. They precede `every`.
    next: VecDeque<(u64, Fault)>,
    every: Option<Fault>,
}

impl Faults {
    /// Injects `fault` into the next `calls` calls of `op`, after the faults that are already
    /// planned.
    pub fn next_calls(&self, op: Op, calls: u64, fault: Fault) {
        self.change(op, |plan| plan.next.push_back((calls, fault)));
    }

    /// Injects `fault` into every call of `op` from now on, until [`clear`](Self::clear).
    pub fn every_call(&self, op: Op, fault: Fault) {
        self.change(op, |plan| plan.every = Some(fault));
    }

    /// Injects `fault` into every call of every operation from now on, such as
    /// [`Hang`](Fault::Hang) when the network is down.
    pub fn everything(&self, fault: Fault) {
        for op in Op::ALL {
            self.every_call(op, fault);
        }
    }

    /// Removes all faults of `op`; hanging calls of it proceed.
    pub fn clear(&self, op: Op) {
        self.change(op, |plan| {
            plan.next.clear();
            plan.every = None;
            plan.clears += 1;
        });
    }

    /// Removes all faults of all operations; hanging calls proceed.
    pub fn clear_all(&self) {
        for op in Op::ALL {
            self.clear(op);
        }
    }

    /// The number of calls of `op`, including failed and hanging ones.
    #[must_use]
    pub fn calls(&self, op: Op) -> u64 {
        self.plans.borrow().get(&op).map_or(0, |plan| plan.calls)
    }

    /// Waits until `op` was called `calls` times since the store was wrapped; returns at once if it
    /// was. A call counts from its beginning.
    pub async fn called(&self, op: Op, calls: u64) {
        self.until(|plans| plans.get(&op).is_some_and(|plan| plan.calls >= calls)).await;
    }

    /// Makes a call: counts it and applies the planned fault.
    pub(super) async fn call<T>(&self, op: Op, inner: impl Future<Output = Result<T>>) -> Result<T> {
        let (fault, clears) = self.change(op, |plan| (plan.take(), plan.clears));
        match fault {
            None => inner.await,
            Some(Fault::Fail(kind)) => Err(Error::new(kind, op.describe(), "the call was made to fail")),
            Some(Fault::Hang) => {
                self.until(|plans| plans.get(&op).is_some_and(|plan| plan.clears > clears)).await;
                inner.await
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                inner.await
            }
            Some(Fault::LateAnswer(delay)) => {
                let answer = inner.await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Fault::LoseAnswer) => {
                // The answer is lost, whether it is a success or an error.
                drop(inner.await);
                Err(Error::new(ErrorKind::TimedOut, op.describe(), "the answer was made to be lost"))
            }
            Some(Fault::Yield) => {
                yield_once().await;
                let answer = inner.await;
                yield_once().await;
                answer
            }
        }
    }

    /// Waits until the next call of `op` would neither fail nor hang.
    pub(super) async fn harmless(&self, op: Op) {
        self.until(|plans| plans.get(&op).is_none_or(|plan| !plan.blocks())).await;
    }

    async fn until(&self, is: impl FnMut(&HashMap<Op, Plan>) -> bool) {
        // `self` holds the sender, so waiting can't fail.
        let _ = self.plans.subscribe().wait_for(is).await;
    }

    fn change<T>(&self, op: Op, change: impl FnOnce(&mut Plan) -> T) -> T {
        let mut result = None;
        self.plans.send_modify(|plans| result = Some(change(plans.entry(op).or_default())));
        result.expect("send_modify calls its argument")
    }
}

/// Lets other tasks run. Other than tokio's, it wakes its task at once: a test that holds the clock can
/// tell it from a wait.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Plan {
    /// Counts a call and returns its fault.
    fn take(&mut self) -> Option<Fault> {
        self.calls += 1;
        while let Some((left, fault)) = self.next.front_mut() {
            if *left > 0 {
                *left -= 1;
                return Some(*fault);
            }
            self.next.pop_front();
        }
        self.every
    }

    fn blocks(&self) -> bool {
        let next = self.next.iter().find(|(left, _)| *left > 0).map(|(_, fault)| *fault);
        matches!(next.or(self.every), Some(Fault::Fail(_) | Fault::Hang))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::ids::JobId;
    use crate::ledger::Ledger;
    use crate::memory;
    use crate::ports::{NewMessage, RecordStore, RecordWrite, Store};

    const SECOND: Duration = Duration::from_secs(1);

    fn job() -> JobId {
        JobId::parse("job").unwrap()
    }

    async fn save(store: &Store) -> Result<()> {
        let write = RecordWrite { record: b"value".to_vec(), ..RecordWrite::default() };
        store.records.put(&job(), None, write).await.map(drop)
    }

    async fn saved(records: &dyn RecordStore) -> bool {
        records.load(&job()).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn a_failed_call_is_not_applied_and_the_plan_runs_out() {
        let inner = memory::store();
        let (store, faults) = Faults::wrap(inner.clone());
        faults.next_calls(Op::Save, 0, Fault::Hang);
        faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Unavailable));
        faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Full));

        assert_eq!(save(&store).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(save(&store).await.unwrap_err().kind(), ErrorKind::Full);
        assert!(!saved(&*inner.records).await);
        save(&store).await.unwrap();
        assert!(saved(&*inner.records).await);
    }

    #[tokio::test]
    async fn every_call_goes_wrong_until_cleared() {
        let (store, faults) = Faults::wrap(memory::store());
        faults.everything(Fault::Fail(ErrorKind::Denied));
        for _ in 0..3 {
            assert_eq!(save(&store).await.unwrap_err().kind(), ErrorKind::Denied);
        }
        assert!(store.roster.reports(SECOND).await.is_err());
        let ledger = Ledger::new(store.records.clone());
        assert_eq!(
            ledger.read(0).await.unwrap_err().kind(),
            ErrorKind::Denied,
            "the ledger is in the same store"
        );
        faults.clear_all();
        ledger.read(0).await.unwrap();
        save(&store).await.unwrap();
        assert_eq!(faults.calls(Op::Save), 4);
    }

    #[tokio::test]
    async fn a_lost_answer_was_applied() {
        let (store, faults) = Faults::wrap(memory::store());
        faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
        assert_eq!(save(&store).await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(saved(&*store.records).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_call_continues_on_request() {
        let (store, faults) = Faults::wrap(memory::store());
        faults.every_call(Op::Save, Fault::Hang);
        let hanging = tokio::spawn({
            let store = store.clone();
            async move { save(&store).await }
        });
        faults.called(Op::Save, 1).await;
        assert!(timeout(SECOND * 3600, save(&store)).await.is_err());
        assert!(!saved(&*store.records).await);

        faults.clear(Op::Save);
        hanging.await.unwrap().unwrap();
        assert!(saved(&*store.records).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_call_is_applied_late() {
        let (store, faults) = Faults::wrap(memory::store());
        faults.next_calls(Op::Save, 1, Fault::Delay(SECOND * 3));
        let begun = Instant::now();
        save(&store).await.unwrap();
        assert_eq!(begun.elapsed(), SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_arrives_while_receives_fail() {
        let (store, faults) = Faults::wrap(memory::store());
        store.queue.send(vec![NewMessage { body: Vec::new(), delay: Duration::ZERO }]).await.unwrap();
        faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
        assert!(timeout(SECOND, store.queue.arrived()).await.is_err());
        faults.clear(Op::Receive);
        timeout(SECOND, store.queue.arrived()).await.unwrap();
    }
}
