//! The worker's lifecycle as a pure state machine: an event in, one action out. It does no I/O and
//! reads no clock.

use std::fmt;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::notice::NoticeKind;

/// The stages of Microsoft's guide "Build workloads on Spot virtual machines", and the end.
///
/// ```text
///            answered              prepared
///  ┌─────────┐  ┌───────────────┐   ┌────────┐  ┌─────────────┐   ┌───────┐
///  │ Recover │──▶    Resume     │──────────────▶     Start     │   │Stopped│
///  └────▲────┘  └───────┬───────┘              └──────┬───────┘   └───▲───┘
///       │   │           │ noticed, stop               │ noticed, stop │
///       │   └───────────┼───────────────┐             │               │
///       │               ▼               ▼             ▼               │
///       │        ┌──────────────────────────────────────────┐        │
///       └────────│                 Shutdown                 │────────┘
///   drained, and │  draining ──drained──▶ drained, waiting  │ drained, and a stop was asked for;
///   no notice    └──────────────────────────────────────────┘ or a second stop, drained or not
///   is active
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Waiting for the first answer of every interruption source. Nothing is received.
    Recover,
    /// Preparing to work: messages of dead workers are released, and the worker waits until the
    /// store answers. Nothing is received.
    Resume,
    /// Receiving messages and running jobs.
    Start,
    /// Draining, and then idle until the notice has ended or the process is asked to stop.
    Shutdown,
    /// The end. The worker holds nothing.
    Stopped,
}

impl Stage {
    /// The stage as it is written in logs, reports and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::Resume => "resume",
            Self::Start => "start",
            Self::Shutdown => "shutdown",
            Self::Stopped => "stopped",
        }
    }
}

/// The purpose of a drain, and its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOrder {
    /// The kind of the notice that calls for it.
    pub kind: NoticeKind,
    /// Its deadline.
    pub deadline: Deadline,
    /// The lead time that the notice gave; see [`Notice::lead`](crate::Notice::lead).
    pub lead: Option<Duration>,
}

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Every interruption source has answered at least once.
    Answered,
    /// Resume's preparations succeeded.
    Prepared,
    /// A notice calls for a drain, or for an earlier deadline of one.
    DrainOrdered(DrainOrder),
    /// No active notice calls for a drain any more.
    CalledOff,
    /// The process was asked to stop.
    StopRequested(DrainOrder),
    /// The drain has ended: the worker holds nothing any more.
    Drained,
}

/// The worker's next action.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an action that is dropped leaves the worker in a stage without its work"]
pub enum Action {
    /// Nothing.
    Wait,
    /// Begin Recover again.
    Recover,
    /// Begin Resume's preparations.
    Prepare,
    /// Begin to receive messages.
    Fetch,
    /// Begin the drain.
    Drain(DrainOrder),
    /// Hold the drain under way to the earlier of the two deadlines.
    Tighten(DrainOrder),
    /// Let the drain under way wait for no job any more: every reason for it has ended.
    EndPatience,
    /// Exit: everything was released.
    Exit,
    /// Exit at once: held messages return when their leases end.
    Abandon,
}

/// An event that can't occur in the present stage: a bug in the worker, never a fault of its
/// environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IllegalEvent {
    /// The stage at the time.
    pub stage: Stage,
    /// The event.
    pub event: Event,
}

impl fmt::Display for IllegalEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} can't happen in {}", self.event, self.stage.as_str())
    }
}

impl std::error::Error for IllegalEvent {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Recover,
    Resume,
    Start,
    /// `needed`: an active notice calls for the drain.
    Draining {
        stopping: bool,
        needed: bool,
    },
    Drained,
    Stopped,
}

/// The worker's stage, and during a drain the reasons for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    state: State,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// The lifecycle of a new worker, in Recover.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: State::Recover }
    }

    /// The present stage.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        match self.state {
            State::Recover => Stage::Recover,
            State::Resume => Stage::Resume,
            State::Start => Stage::Start,
            State::Draining { .. } | State::Drained => Stage::Shutdown,
            State::Stopped => Stage::Stopped,
        }
    }

    /// Processes one event and returns the action that follows.
    ///
    /// # Errors
    /// [`IllegalEvent`] when the event can't occur in the present stage; the state is unchanged
    /// then.
    pub fn on(&mut self, event: Event) -> Result<Action, IllegalEvent> {
        use Event as E;
        use State as S;
        let illegal = IllegalEvent { stage: self.stage(), event: event.clone() };
        let (state, action) = match (self.state, event) {
            (S::Recover, E::Answered) => (S::Resume, Action::Prepare),
            (S::Resume, E::Prepared) => (S::Start, Action::Fetch),

            (S::Recover | S::Resume | S::Start, E::DrainOrdered(order)) => {
                (S::Draining { stopping: false, needed: true }, Action::Drain(order))
            }
            (S::Recover | S::Resume | S::Start, E::StopRequested(order)) => {
                (S::Draining { stopping: true, needed: false }, Action::Drain(order))
            }
            (S::Recover | S::Resume | S::Start, E::CalledOff) => (self.state, Action::Wait),

            (S::Draining { stopping, .. }, E::DrainOrdered(order)) => {
                (S::Draining { stopping, needed: true }, Action::Tighten(order))
            }
            (S::Draining { stopping: true, .. }, E::CalledOff) => {
                (S::Draining { stopping: true, needed: false }, Action::Wait)
            }
            (S::Draining { stopping: false, .. }, E::CalledOff) => {
                (S::Draining { stopping: false, needed: false }, Action::EndPatience)
            }
            (S::Draining { stopping: false, needed }, E::StopRequested(order)) => {
                (S::Draining { stopping: true, needed }, Action::Tighten(order))
            }
            (S::Draining { stopping: true, .. }, E::StopRequested(_)) => (S::Stopped, Action::Abandon),
            (S::Draining { stopping: true, .. }, E::Drained) => (S::Stopped, Action::Exit),
            (S::Draining { needed: false, .. }, E::Drained) => (S::Recover, Action::Recover),
            (S::Draining { needed: true, .. }, E::Drained) => (S::Drained, Action::Wait),

            (S::Drained, E::DrainOrdered(_)) => (S::Drained, Action::Wait),
            (S::Drained, E::CalledOff) => (S::Recover, Action::Recover),
            (S::Drained, E::StopRequested(_)) => (S::Stopped, Action::Exit),

            (S::Recover, E::Prepared | E::Drained)
            | (S::Resume | S::Start, E::Answered | E::Drained)
            | (S::Start, E::Prepared)
            | (S::Draining { .. }, E::Answered | E::Prepared)
            | (S::Drained, E::Answered | E::Prepared | E::Drained)
            | (
                S::Stopped,
                E::Answered
                | E::Prepared
                | E::DrainOrdered(_)
                | E::CalledOff
                | E::StopRequested(_)
                | E::Drained,
            ) => return Err(illegal),
        };
        self.state = state;
        Ok(action)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::notice::Notice;

    /// Events by a letter each: `a`nswered, `p`repared, `n`otice, `o`ver, `s`top, `d`rained.
    fn event(letter: char) -> Event {
        let now = Instant::now();
        let order = |kind: NoticeKind| {
            let notice = Notice { received: now, ..Notice::now("n", kind.clone()) };
            DrainOrder { kind, deadline: Deadline::of(&notice, Duration::from_secs(10)), lead: None }
        };
        match letter {
            'a' => Event::Answered,
            'p' => Event::Prepared,
            'n' => Event::DrainOrdered(order(NoticeKind::Preempt)),
            'o' => Event::CalledOff,
            's' => Event::StopRequested(order(NoticeKind::Signal)),
            _ => Event::Drained,
        }
    }

    fn name(action: &Action) -> &'static str {
        match action {
            Action::Wait => "wait",
            Action::Recover => "recover",
            Action::Prepare => "prepare",
            Action::Fetch => "fetch",
            Action::Drain(_) => "drain",
            Action::Tighten(_) => "tighten",
            Action::EndPatience => "end patience",
            Action::Exit => "exit",
            Action::Abandon => "abandon",
        }
    }

    #[track_caller]
    fn check(events: &str, action: &str, stage: Stage) {
        let mut life = Lifecycle::new();
        let mut last = Action::Wait;
        for letter in events.chars() {
            last = life.on(event(letter)).unwrap();
        }
        assert_eq!((name(&last), life.stage()), (action, stage), "{events}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_life_goes_recover_resume_start() {
        check("a", "prepare", Stage::Resume);
        check("ap", "fetch", Stage::Start);
        check("apo", "wait", Stage::Start);
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_drains_from_every_stage_that_works_or_is_about_to() {
        check("n", "drain", Stage::Shutdown);
        check("an", "drain", Stage::Shutdown);
        check("apn", "drain", Stage::Shutdown);
        check("apnn", "tighten", Stage::Shutdown);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_drain_the_worker_stays_until_no_notice_calls_for_one() {
        check("apnd", "wait", Stage::Shutdown);
        check("apndn", "wait", Stage::Shutdown);
        check("apndo", "recover", Stage::Recover);
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_withdrawn_during_its_drain_leads_back_to_recover_when_the_drain_ends() {
        check("ano", "end patience", Stage::Shutdown);
        check("anod", "recover", Stage::Recover);
        check("anond", "wait", Stage::Shutdown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_drains_and_exits_and_a_second_one_abandons() {
        check("aps", "drain", Stage::Shutdown);
        check("sd", "exit", Stage::Stopped);
        check("ss", "abandon", Stage::Stopped);
        check("ns", "tighten", Stage::Shutdown);
        check("nso", "wait", Stage::Shutdown);
        check("nsod", "exit", Stage::Stopped);
        check("nds", "exit", Stage::Stopped);
    }

    #[tokio::test(start_paused = true)]
    async fn an_illegal_event_is_named_and_changes_nothing() {
        let mut life = Lifecycle::new();
        let refused = life.on(Event::Drained).unwrap_err();
        assert_eq!(refused.to_string(), "Drained can't happen in recover");
        assert_eq!(life, Lifecycle::new());
    }

    proptest! {
        /// Two parts of "no work while a notice calls for a drain": no working stage is entered
        /// then, and Shutdown leads only to Recover or to the end.
        #[test]
        fn no_sequence_of_events_works_while_a_notice_calls_for_a_drain(events in "[apnosd]{0,40}") {
            let mut life = Lifecycle::new();
            let mut ordered = false;
            for letter in events.chars() {
                let before = life.stage();
                if life.on(event(letter)).is_ok() {
                    ordered = letter == 'n' || ordered && letter != 'o';
                }
                let after = life.stage();
                if matches!(after, Stage::Recover | Stage::Resume | Stage::Start) {
                    prop_assert!(!ordered);
                }
                if before == Stage::Shutdown {
                    prop_assert!(matches!(after, Stage::Shutdown | Stage::Recover | Stage::Stopped));
                }
                if before == Stage::Stopped {
                    prop_assert_eq!(after, Stage::Stopped);
                }
            }
        }
    }
}
