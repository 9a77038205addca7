//! The control loop's one `select!`.

use tokio::task::{Id, JoinError};
use tokio::time::{Instant, sleep_until};

use super::{Control, Pending, TICK};
use crate::error::Result;
use crate::interruption::Stage;
use crate::ports::Change;
use crate::worker::delivery::DeliveryReport;
use crate::worker::drain::Drain;
use crate::worker::rally::Rallied;
use crate::worker::receiver::ReceiverEvent;

/// An event that woke the loop.
pub(super) enum Woke {
    Stop,
    Change(usize, Change),
    Prepared,
    Receiver(ReceiverEvent),
    Ended(Option<Box<DeliveryReport>>),
    Stilled,
    HardMark,
    /// An active notice may call for something.
    Review,
    /// The task that sent an approval or removed a mark, and the approval's result.
    Approved(Id, Option<Result<()>>),
    /// The task that waited for other workers, and its result.
    Rallied(Id, Rallied),
    Tick,
}

/// Awaits the pending future; waits without limit when there is none.
async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

impl Control {
    /// Waits for the next event. Every arm is cancel-safe: channels, join sets, timers, and futures
    /// that are kept in `self` and polled again.
    pub(super) async fn wake(&mut self) -> Woke {
        let (may_receive, held) = (self.life.stage() == Stage::Start, self.guardians.len());
        let hard = self.drain.as_ref().map(Drain::hard_mark);
        let far = Instant::now() + TICK;
        tokio::select! {
            biased;
            () = self.stopping.requested() => Woke::Stop,
            Some((source, change)) = self.changes.recv() => Woke::Change(source, change),
            () = sleep_until(hard.unwrap_or(far)), if hard.is_some() => Woke::HardMark,
            Some(ended) = self.guardians.join_next() => Woke::Ended(ended.ok().map(Box::new)),
            Some(_) = self.lingering.join_next() => Woke::Stilled,
            Some(_) = self.epilogues.join_next() => Woke::Stilled,
            () = sleep_until(self.look_again.unwrap_or(far)), if self.look_again.is_some() => Woke::Review,
            Some(said) = self.approvals.join_next_with_id() => {
                let (task, said) = said.unwrap_or_else(|error: JoinError| (error.id(), None));
                Woke::Approved(task, said)
            }
            Some(Ok((task, how))) = self.rallying.join_next_with_id() => Woke::Rallied(task, how),
            () = self.publisher.kept() => Woke::Review,
            () = ready(&mut self.preparing) => Woke::Prepared,
            event = self.receiver.wait(may_receive, held, self.slow) => Woke::Receiver(event),
            _ = self.ticks.tick() => Woke::Tick,
        }
    }
}
