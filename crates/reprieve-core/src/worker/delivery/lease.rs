//! Keeps the lease of one delivery until its message is settled: renews it, knows when it is too late
//! to renew, accepts late answers, and completes, releases or dead-letters the message. Settling
//! consumes the lease, so a message is never settled twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::ports::{DeadLetter, Delivery, Queue, Receipt, RecordStore, Release};
use crate::process::in_process;
use crate::retry::{Patience, bounded, may_pass, persist, unanswered};
use crate::telemetry::ByResult;
use crate::watch;
use crate::worker::measure::Recent;
use crate::worker::shared::{Letters, Shared};

/// The longest wait for one renewal, however long the lease. Storage that needs more is treated as
/// unavailable.
const RENEWAL_MAX: Duration = Duration::from_secs(10);

/// How long a drain waits for a renewal under way before it goes on with the known receipt.
const DRAIN_WAIT: Duration = Duration::from_millis(200);

const RENEW: &str = "renew a lease";

/// The longest time for one try to settle outside a drain.
pub(super) const TRY: Duration = Duration::from_secs(10);

/// How long one try to replace a message may take: it may have little time left.
const REPLACE_TRY: Duration = Duration::from_secs(3);

/// The same in a drain, so that an unanswered try leaves time for others.
pub(super) const DRAIN_TRY: Duration = Duration::from_secs(1);

/// For which share of the time left a try to dead-letter a message that is under way is waited for when a drain begins, or
/// ends earlier. The letter is sent before the message is removed, so each further try sends another one.
const DEAD_LETTER_SHARE: f64 = 0.75;

/// How late the end of patience may be noticed before that counts as a freeze.
const LATE: Duration = Duration::from_millis(500);

/// One delivery and the lease on its message.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) delivery: Delivery,
    length: Duration,
    /// When the lease ends. The job's task waits for a valid lease before every write.
    ends: watch::Sender<Instant>,
    pub(super) renew_at: Instant,
    /// Renewals that have not been answered in time.
    late: LateAnswers,
    /// The answer of a renewal is lost: the known receipt may not be the valid one.
    in_doubt: bool,
    /// This machine was frozen during the last renewal.
    thawed: bool,
}

/// The answer of a renewal.
#[derive(Debug)]
struct Renewed {
    began: Instant,
    length: Duration,
    answer: Result<Receipt>,
}

/// Renewals that were not answered in time. Any of them may return the valid receipt.
#[derive(Debug, Default)]
struct LateAnswers(JoinSet<Renewed>);

impl LateAnswers {
    /// Returns the next answer. Cancel-safe; waits without limit when none is under way.
    async fn next(&mut self) -> Renewed {
        loop {
            match self.0.join_next().await {
                Some(Ok(renewed)) => return renewed,
                // A queue that panicked returns no receipt.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl Lease {
    /// Creates the lease of a delivery received by a call begun at `since`. Counted from before the
    /// call, the lease never ends later here than at the queue.
    pub(super) fn new(delivery: Delivery, length: Duration, since: Instant) -> Self {
        let ends = watch::Sender::new(since + length);
        Self {
            delivery,
            length,
            ends,
            renew_at: since + length / 3,
            late: LateAnswers::default(),
            in_doubt: false,
            thawed: false,
        }
    }

    /// Replaces the message, which expires, by one that does not, with `body`.
    pub(super) async fn replace(&mut self, shared: &Shared, body: &[u8]) -> Result<()> {
        let since = Instant::now();
        let replacing = shared.store.queue.replace(&self.delivery.receipt, body, self.length);
        let until = self.renew_at.min(since + REPLACE_TRY);
        let Ok(replaced) = timeout_at(until, replacing).await else {
            return Err(unanswered("replace a message"));
        };
        *self = Self::new(replaced?, self.length, since);
        Ok(())
    }

    /// Returns the channel that shares the lease's end with the job's task.
    pub(super) fn ends_shared(&self) -> watch::Sender<Instant> {
        self.ends.clone()
    }

    /// Returns when the lease ends.
    pub(super) fn ends(&self) -> Instant {
        self.ends.get()
    }

    /// Reports whether a renewal is unanswered, which may return the valid receipt.
    pub(super) fn awaits_an_answer(&self) -> bool {
        !self.late.0.is_empty()
    }

    /// Reports whether the known receipt may not be the valid one.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt || self.awaits_an_answer()
    }

    /// Notes that the known receipt may not be the valid one.
    pub(super) fn note_doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Completes when a late answer has arrived and has been applied. Cancel-safe; waits without
    /// limit when none is under way.
    pub(super) async fn late_answer(&mut self) {
        let renewed = self.late.next().await;
        self.take_in(renewed);
    }

    /// Applies a late answer.
    fn take_in(&mut self, Renewed { began, length, answer }: Renewed) {
        match answer {
            Ok(receipt) => self.take(receipt, began, length),
            Err(error) if error.kind() == ErrorKind::LeaseLost => {}
            Err(_) => self.in_doubt = true,
        }
    }

    fn take(&mut self, receipt: Receipt, began: Instant, length: Duration) {
        self.delivery.receipt = receipt;
        self.in_doubt = false;
        self.length = length;
        self.ends.set(began + length);
        self.renew_at = began + length / 3;
    }

    /// Renews the lease. Returns false when the lease is lost, or would end before another try
    /// could save it. A renewal is due a third of the lease's length after the last one, and then
    /// every twelfth while it fails. A twelfth before its end the lease counts as lost, so that the
    /// job is cancelled before another worker can receive its message.
    ///
    /// If the end passed before anything was tried, this machine was frozen. The message may still
    /// belong to this worker: one more renewal decides.
    pub(super) async fn renew(
        &mut self,
        shared: &Shared,
        queue: &Arc<dyn Queue>,
        drain: watch::Receiver<Option<Deadline>>,
    ) -> bool {
        let (began, slack) = (Instant::now(), self.length / 24);
        let last = self.ends() - self.length / 12;
        let frozen = std::mem::take(&mut self.thawed) || (began >= last && began > self.renew_at + slack);
        if began >= last && !frozen {
            return false;
        }
        // After a freeze there is only this one try, and the job waits for it.
        let patience = if frozen { self.length / 3 } else { (self.length / 6).min(last - began) };
        let patience = patience.min(RENEWAL_MAX);
        let length = shared.lease();
        let mut renewal = send(queue, &self.delivery.receipt, length);
        let answered = tokio::select! {
            biased;
            answered = timeout(patience, &mut renewal) => answered.ok(),
            () = hurried(drain) => None,
        };
        let renewed = if let Some(answered) = answered {
            answered.unwrap_or_else(|_| Err(unanswered(RENEW)))
        } else {
            self.late.0.spawn(in_process(async move {
                let answer = renewal.await.unwrap_or_else(|_| Err(unanswered(RENEW)));
                Renewed { began, length, answer }
            }));
            Err(unanswered(RENEW))
        };
        let result = if renewed.is_ok() { "ok" } else { "error" };
        shared.telemetry.lease_renewals.get_or_create(&ByResult { result }).inc();
        match renewed {
            Ok(receipt) => {
                // An earlier renewal with an older receipt can't have been applied after this one.
                self.late = LateAnswers::default();
                self.take(receipt, began, length);
                true
            }
            Err(error) if error.kind() == ErrorKind::LeaseLost => self.holds_by_a_late_answer(last).await,
            Err(error) => {
                tracing::warn!(message_id = %self.delivery.id, %error, "failed to renew a lease; retrying");
                self.in_doubt |= error.kind() == ErrorKind::TimedOut && self.late.0.is_empty();
                let now = Instant::now();
                // A freeze in the middle of the call: the renewal did not have its full time.
                self.thawed = !frozen && now > began + patience + slack;
                self.renew_at = if self.thawed { now } else { (now + self.length / 12).min(last) };
                self.thawed || (!frozen && now < last)
            }
        }
    }

    /// Handles a refused receipt. If an earlier renewal is still unanswered, its receipt may be the
    /// valid one.
    async fn holds_by_a_late_answer(&mut self, until: Instant) -> bool {
        let ends = self.ends();
        while !self.late.0.is_empty() && timeout_at(until, self.late_answer()).await.is_ok() {
            if self.ends() > ends {
                return true;
            }
        }
        false
    }
}

/// Starts a renewal, which continues even if the caller stops waiting for it.
fn send(queue: &Arc<dyn Queue>, receipt: &Receipt, length: Duration) -> AbortOnDropHandle<Result<Receipt>> {
    let (queue, receipt) = (Arc::clone(queue), Receipt::new(receipt.as_str()));
    AbortOnDropHandle::new(tokio::spawn(in_process(async move { queue.renew(&receipt, length).await })))
}

/// Completes 200 ms after a drain that is not patient has begun.
async fn hurried(mut drain: watch::Receiver<Option<Deadline>>) {
    drain.wait_for(|deadline| deadline.is_some_and(|it| it.patient_until().is_none())).await;
    sleep(DRAIN_WAIT).await;
}

/// How a message is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    /// Deletes it: its job is finished.
    Complete,
    /// Returns it to the queue.
    Release(Release),
    /// Moves it to the poison queue, with this body.
    DeadLetter(DeadLetter, Vec<u8>),
}

/// The clients for settling, and how long to try.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) records: Arc<dyn RecordStore>,
    pub(super) patience: Patience,
    /// One permit for each call that may be under way at once; `None` for no limit.
    pub(super) turns: Option<Arc<Semaphore>>,
    /// The other dead letters, if this is one in a drain.
    letters: Option<Arc<Letters>>,
}

/// A settlement under way.
struct Settling<'a> {
    lease: &'a mut Lease,
    how: &'a Settlement,
    took: &'a Recent,
    /// A try was not answered: it may have been applied. Stays true when a drain, or the late answer
    /// of a renewal, cuts a try short.
    unanswered: AtomicBool,
}

/// Settles the message of `lease`: calmly, or hurried once a drain begins, without waiting for a try
/// under way; for that of a dead letter it waits for most of the time left. If a new body is too large for the queue,
/// settles it as `otherwise` returns.
///
/// # Errors
/// [`LeaseLost`](ErrorKind::LeaseLost) when the message belongs to another owner. Any other: it
/// could not be settled in time, and returns when its lease ends.
///
/// # Cancel safety
/// A dropped call may have settled the message; if not, the lease ends by itself.
pub(super) async fn settle(
    shared: &Shared,
    lease: &mut Lease,
    drain: watch::Receiver<Option<Deadline>>,
    how: &Settlement,
    otherwise: impl AsyncFnOnce() -> Option<Settlement>,
) -> Result<()> {
    let settled = settle_as(shared, lease, drain.clone(), how).await;
    let settled = match settled {
        Err(error) if error.kind() == ErrorKind::TooLarge => match otherwise().await {
            Some(how) => Box::pin(settle_as(shared, lease, drain, &how)).await,
            None => Err(error),
        },
        settled => settled,
    };
    match &settled {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::LeaseLost => {
            shared.telemetry.leases_lost.inc();
            tracing::warn!("a lease was lost before its message could be settled");
        }
        Err(error) => {
            tracing::error!(%error, "failed to settle a message; it returns when its lease ends");
        }
    }
    settled
}

async fn settle_as(
    shared: &Shared,
    lease: &mut Lease,
    mut drain: watch::Receiver<Option<Deadline>>,
    how: &Settlement,
) -> Result<()> {
    let (ends, part) = (lease.ends(), shared.store.queue.part(&lease.delivery.receipt));
    let is_letter = matches!(how, Settlement::DeadLetter(..));
    let terms = |drain: Option<Deadline>| {
        let terms = terms(shared, ends, drain, part);
        if is_letter && drain.is_some() { terms.of_letter(shared.letters.get(part).cloned()) } else { terms }
    };
    // What letters take is learnt at any time.
    let learns = shared.letters.get(part).filter(|_| is_letter).map(|letters| &letters.took);
    let mut settling = Settling {
        lease,
        how,
        took: learns.unwrap_or(&shared.settlements),
        unanswered: AtomicBool::new(false),
    };
    let now = drain.get();
    let first = terms(now);
    let mut deadline = tokio::select! {
        biased;
        tighter = tightened(&mut drain, now, is_letter) => tighter,
        done = Box::pin(settling.persist(&first)) => return settling.end(done),
    };
    loop {
        let terms = terms(deadline);
        deadline = tokio::select! {
            biased;
            tighter = tightened(&mut drain, deadline, is_letter) => tighter,
            done = Box::pin(settling.persist(&terms)) => return settling.end(done),
        };
    }
}

/// Completes when a drain begins, or its deadline comes nearer, after which a try under way is not waited for. That of
/// a dead letter is, for most of the time left.
async fn tightened(
    drain: &mut watch::Receiver<Option<Deadline>>,
    from: Option<Deadline>,
    is_letter: bool,
) -> Option<Deadline> {
    let tighter = earlier(drain, from).await;
    // Boxed: few settlements are letters.
    if is_letter { Box::pin(most_of_it_has_passed(drain, tighter)).await } else { tighter }
}

/// Waits for a deadline before this one, or for one where there is none.
async fn earlier(drain: &mut watch::Receiver<Option<Deadline>>, from: Option<Deadline>) -> Option<Deadline> {
    let is_earlier =
        |to: Option<Deadline>| to.is_some_and(|to| from.is_none_or(|from| to.report_by() < from.report_by()));
    drain.wait_for(is_earlier).await
}

/// Waits until most of the time until the deadline has passed, also if that comes nearer. Returns the deadline.
async fn most_of_it_has_passed(
    drain: &mut watch::Receiver<Option<Deadline>>,
    mut deadline: Option<Deadline>,
) -> Option<Deadline> {
    while let Some(until) = deadline {
        tokio::select! {
            biased;
            next = earlier(drain, deadline) => deadline = next,
            () = sleep(until.left().mul_f64(DEAD_LETTER_SHARE)) => break,
        }
    }
    deadline
}

/// Returns how to settle a message with a lease that ends at `ends`: calmly, or hurried in a drain.
/// Never later than the lease's end, because the message may then belong to another worker.
pub(super) fn terms(shared: &Shared, ends: Instant, drain: Option<Deadline>, part: usize) -> Terms {
    let store = if drain.is_some() { &shared.drain_store } else { &shared.store };
    let (patience, turns) = match drain {
        Some(deadline) => {
            let patience = Patience::hurried(DRAIN_TRY, deadline.report_by().min(ends));
            (patience, shared.releases.get(part).cloned())
        }
        None => (Patience::calm(TRY, ends), None),
    };
    Terms {
        queue: Arc::clone(&store.queue),
        records: Arc::clone(&store.records),
        patience,
        turns,
        letters: None,
    }
}

impl Terms {
    fn of_letter(self, letters: Option<Arc<Letters>>) -> Self {
        Self { turns: None, letters, ..self }
    }
}

impl Settling<'_> {
    /// Tries with the known receipt, and with the receipt of a late answer as soon as it arrives.
    async fn persist(&mut self, terms: &Terms) -> Result<()> {
        loop {
            let Self { lease, how, took, unanswered } = self;
            let Lease { delivery, late, .. } = &mut **lease;
            let done = tokio::select! {
                biased;
                renewed = late.next() => Err(renewed),
                done = tries(terms, delivery, how, took, unanswered) => Ok(done),
            };
            match done {
                Err(renewed) => self.lease.take_in(renewed),
                // The late renewal may have been applied, and its receipt may be the valid one.
                Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost && self.lease.awaits_an_answer() => {
                    let Ok(renewed) = timeout_at(terms.patience.until, self.lease.late.next()).await else {
                        return Err(error);
                    };
                    self.lease.note_doubt();
                    self.lease.take_in(renewed);
                }
                Ok(done) => return done,
            }
        }
    }

    fn end(self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if error.kind() == ErrorKind::LeaseLost && self.was_applied() => Ok(()),
            done => done,
        }
    }

    /// Reports whether there was an unanswered try and it was surely applied, now that the next one
    /// finds the receipt void. After an unanswered renewal, the receipt itself is in doubt. A delete
    /// that finds no message is done at any time; for other settlements, the message may belong to
    /// another owner once the lease has ended.
    fn was_applied(&self) -> bool {
        let ours = *self.how == Settlement::Complete || Instant::now() < self.lease.ends();
        self.unanswered.load(Relaxed) && !self.lease.is_in_doubt() && ours
    }
}

/// Calls until the call succeeds or patience ends. If patience ends without an answer, or late
/// because the machine was frozen, tries once more.
async fn tries(
    terms: &Terms,
    delivery: &Delivery,
    how: &Settlement,
    took: &Recent,
    unanswered: &AtomicBool,
) -> Result<()> {
    const OPERATION: &str = "settle a message";
    let call = || call(terms, delivery, how, took, unanswered);
    if let Some(letters) = &terms.letters {
        return Box::pin(send_letter(terms.patience, letters, call)).await;
    }
    let mut done = persist(OPERATION, terms.patience, may_pass, call).await;
    let is_late = Instant::now() > terms.patience.until + LATE;
    if matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut || is_late && may_pass(error)) {
        done = Box::pin(bounded(OPERATION, terms.patience.each, call())).await;
    }
    done
}

/// The time that is left at least when a letter finds out how long letters take.
const PROBE_LEFT: Duration = Duration::from_millis(500);

/// Sends a dead letter in a drain, once its turn has come. A try that is not answered may have sent it, so each has all of
/// the time that is left, and none begins that can't end as far as is known, but one where only one time is.
async fn send_letter<F: Future<Output = Result<()>>>(
    patience: Patience,
    letters: &Letters,
    call: impl Fn() -> F,
) -> Result<()> {
    const OPERATION: &str = "dead-letter a message";
    let Ok(_turn) = timeout_at(patience.until, letters.turns.acquire()).await else {
        return Err(unanswered(OPERATION));
    };
    let left = || patience.until.saturating_duration_since(Instant::now());
    let mut probe = None;
    if left() < letters.take() && letters.took.len() == 1 {
        // One letter finds out whether that time was out of line, and the others wait for it.
        probe = timeout_at(patience.until, letters.probe.acquire()).await.ok();
    }
    let probe = probe.filter(|_| letters.took.len() == 1);
    let takes = if probe.is_some() { PROBE_LEFT } else { letters.take() };
    if left() < takes {
        return Err(Error::new(ErrorKind::TimedOut, OPERATION, "the drain leaves no time for it"));
    }
    let again = |error: &Error| may_pass(error) && left() >= takes;
    let done = persist(OPERATION, Patience { each: left(), ..patience }, again, &call).await;
    let is_late = Instant::now() > patience.until + LATE;
    if is_late && matches!(&done, Err(error) if may_pass(error)) {
        return bounded(OPERATION, DRAIN_TRY, call()).await;
    }
    done
}

async fn call(
    terms: &Terms,
    delivery: &Delivery,
    how: &Settlement,
    took: &Recent,
    unanswered: &AtomicBool,
) -> Result<()> {
    let _turn = match &terms.turns {
        Some(turns) => turns.acquire().await.ok(),
        None => None,
    };
    // Until the answer arrives, this try counts as unanswered.
    let (before, began) = (unanswered.swap(true, Relaxed), Instant::now());
    let (queue, receipt) = (&terms.queue, &delivery.receipt);
    let done = match how {
        Settlement::Complete => queue.complete(receipt).await,
        Settlement::Release(release) => queue.release(receipt, release).await,
        Settlement::DeadLetter(letter, body) => queue.dead_letter(receipt, body, letter).await,
    };
    let lost_answer = matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut);
    unanswered.store(lost_answer || before, Relaxed);
    if done.is_ok() {
        took.note(began.elapsed());
    }
    done
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::memory::{self, Fault, Faults, Op};
    use crate::ports::{NewMessage, Store};

    const LEASE: Duration = Duration::from_secs(60);

    async fn lease(store: &Store) -> Lease {
        let message = NewMessage { body: b"{}".to_vec(), delay: Duration::ZERO };
        store.queue.send(vec![message]).await.unwrap();
        let delivery = store.queue.receive(1, LEASE).await.unwrap().remove(0);
        Lease::new(delivery, LEASE, Instant::now())
    }

    async fn settled(store: &Store, mut lease: Lease, how: &Settlement) -> Result<()> {
        let patience = Patience::calm(Duration::from_secs(2), lease.ends());
        let (queue, records) = (Arc::clone(&store.queue), Arc::clone(&store.records));
        let terms = Terms { queue, records, patience, turns: None, letters: None };
        let took = Recent::new(LEASE);
        let mut settling =
            Settling { lease: &mut lease, how, took: &took, unanswered: AtomicBool::new(false) };
        let done = settling.persist(&terms).await;
        settling.end(done)
    }

    fn is_lost(settled: &Result<()>) -> bool {
        settled.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost)
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_with_a_lost_response_is_done_while_the_receipt_is_sure() {
        for (how, op) in
            [(Settlement::Complete, Op::Complete), (Settlement::Release(Release::default()), Op::Release)]
        {
            for in_doubt in [false, true] {
                let (store, faults) = Faults::wrap(memory::store());
                let mut lease = lease(&store).await;
                if in_doubt {
                    lease.note_doubt();
                }
                faults.next_calls(op, 1, Fault::LoseAnswer);
                let settled = settled(&store, lease, &how).await;
                assert_eq!(settled.is_ok(), !in_doubt, "{how:?}: {settled:?}");
                assert_eq!(is_lost(&settled), in_doubt, "{how:?}: {settled:?}");
            }
        }
    }

    /// The machine is frozen in the middle of the call, until long after the lease has ended.
    #[tokio::test(start_paused = true)]
    async fn after_a_freeze_it_is_tried_once_more_and_neither_end_is_given_up() {
        for (how, op, done) in [
            (Settlement::Complete, Op::Complete, true),
            (Settlement::Release(Release::default()), Op::Release, false),
        ] {
            let inner = memory::store();
            let (store, faults) = Faults::wrap(inner.clone());
            let lease = lease(&store).await;
            faults.next_calls(op, 1, Fault::Hang);
            let receipt = Receipt::new(lease.delivery.receipt.as_str());
            let settling = tokio::spawn({
                let how = how.clone();
                async move { settled(&store, lease, &how).await }
            });
            faults.called(op, 1).await;
            // The settlement was applied anyway.
            match &how {
                Settlement::Release(release) => inner.queue.release(&receipt, release).await.unwrap(),
                _ => inner.queue.complete(&receipt).await.unwrap(),
            }
            advance(LEASE * 2).await;
            let settled = settling.await.unwrap();
            assert_eq!(settled.is_ok(), done, "{how:?}: {settled:?}");
            assert_eq!(is_lost(&settled), !done, "{how:?}: {settled:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_answer_is_tried_until_patience_ends() {
        let (store, faults) = Faults::wrap(memory::store());
        let lease = lease(&store).await;
        faults.every_call(Op::Complete, Fault::Hang);
        let (done, ()) = tokio::join!(settled(&store, lease, &Settlement::Complete), sleep(LEASE));
        assert!(done.is_err() && !is_lost(&done), "{done:?}");
    }
}
