//! The worker's lifecycle as a pure state machine: an event in, one action out. It does no I/O and
//! reads no clock.

use std::collections::BTreeSet;
use std::fmt;

use crate::notice::NoticeId;

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

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Every interruption source has answered at least once.
    Answered,
    /// Resume's preparations succeeded.
    Prepared,
    /// A notice that calls for a drain was announced or has changed.
    Noticed(NoticeId),
    /// A notice is no longer active.
    Over(NoticeId),
    /// The process was asked to stop.
    StopRequested,
    /// The drain has ended: the worker holds nothing any more.
    Drained,
}

/// The worker's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an action that is dropped leaves the worker in a stage whose work nobody does"]
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
    Drain,
    /// Hold the drain under way to the earlier of the two deadlines.
    Tighten,
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
    Draining { stopping: bool },
    Drained,
    Stopped,
}

/// The worker's stage, and the active notices that call for a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    state: State,
    standing: BTreeSet<NoticeId>,
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
        Self { state: State::Recover, standing: BTreeSet::new() }
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

    /// Whether a drain is under way for which every reason has ended.
    #[must_use]
    pub fn is_called_off(&self) -> bool {
        self.state == State::Draining { stopping: false } && self.standing.is_empty()
    }

    /// Processes one event and returns the action that follows.
    ///
    /// # Errors
    /// [`IllegalEvent`] when the event can't occur in the present stage; the state is unchanged
    /// then.
    pub fn on(&mut self, event: Event) -> Result<Action, IllegalEvent> {
        use Event as E;
        use State as S;
        let stopping = matches!(self.state, S::Draining { stopping: true });
        let (state, action) = match (self.state, &event) {
            (S::Recover, E::Answered) => (S::Resume, Action::Prepare),
            (S::Resume, E::Prepared) => (S::Start, Action::Fetch),

            (S::Recover | S::Resume | S::Start, E::Noticed(_)) => {
                (S::Draining { stopping: false }, Action::Drain)
            }
            (S::Recover | S::Resume | S::Start, E::StopRequested) => {
                (S::Draining { stopping: true }, Action::Drain)
            }
            (S::Recover | S::Resume | S::Start, E::Over(_)) => (self.state, Action::Wait),

            (S::Draining { .. }, E::Noticed(_)) => (self.state, Action::Tighten),
            (S::Draining { .. }, E::Over(_)) => (self.state, Action::Wait),
            (S::Draining { stopping: false }, E::StopRequested) => {
                (S::Draining { stopping: true }, Action::Tighten)
            }
            (S::Draining { stopping: true }, E::StopRequested) => (S::Stopped, Action::Abandon),
            (S::Draining { .. }, E::Drained) if stopping => (S::Stopped, Action::Exit),
            (S::Draining { .. }, E::Drained) if self.standing.is_empty() => (S::Recover, Action::Recover),
            (S::Draining { .. }, E::Drained) => (S::Drained, Action::Wait),

            (S::Drained, E::Noticed(_)) => (S::Drained, Action::Wait),
            (S::Drained, E::Over(id)) if self.standing.iter().all(|standing| standing == id) => {
                (S::Recover, Action::Recover)
            }
            (S::Drained, E::Over(_)) => (S::Drained, Action::Wait),
            (S::Drained, E::StopRequested) => (S::Stopped, Action::Exit),

            (S::Recover, E::Prepared | E::Drained)
            | (S::Resume | S::Start, E::Answered | E::Drained)
            | (S::Start, E::Prepared)
            | (S::Draining { .. }, E::Answered | E::Prepared)
            | (S::Drained, E::Answered | E::Prepared | E::Drained)
            | (
                S::Stopped,
                E::Answered | E::Prepared | E::Noticed(_) | E::Over(_) | E::StopRequested | E::Drained,
            ) => return Err(IllegalEvent { stage: self.stage(), event }),
        };
        self.state = state;
        match event {
            E::Noticed(id) => drop(self.standing.insert(id)),
            E::Over(id) => drop(self.standing.remove(&id)),
            E::Answered | E::Prepared | E::StopRequested | E::Drained => {}
        }
        Ok(action)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: u8) -> NoticeId {
        NoticeId::new(&n.to_string())
    }

    #[track_caller]
    fn check(events: &[Event], action: Action, stage: Stage) {
        let mut life = Lifecycle::new();
        let mut last = Action::Wait;
        for event in events {
            last = life.on(event.clone()).unwrap();
        }
        assert_eq!((last, life.stage()), (action, stage), "{events:?}");
    }

    use Event::{Answered, Drained, Noticed, Over, Prepared, StopRequested};

    #[test]
    fn a_quiet_life_goes_recover_resume_start() {
        check(&[Answered], Action::Prepare, Stage::Resume);
        check(&[Answered, Prepared], Action::Fetch, Stage::Start);
    }

    #[test]
    fn a_notice_drains_from_every_stage_that_works_or_is_about_to() {
        check(&[Noticed(id(1))], Action::Drain, Stage::Shutdown);
        check(&[Answered, Noticed(id(1))], Action::Drain, Stage::Shutdown);
        check(&[Answered, Prepared, Noticed(id(1))], Action::Drain, Stage::Shutdown);
    }

    #[test]
    fn after_a_drain_the_worker_stays_until_no_notice_stands() {
        let two = [Answered, Prepared, Noticed(id(1)), Noticed(id(2)), Drained];
        check(&two, Action::Wait, Stage::Shutdown);
        check(&[&two[..], &[Over(id(1))]].concat(), Action::Wait, Stage::Shutdown);
        check(&[&two[..], &[Over(id(1)), Over(id(2))]].concat(), Action::Recover, Stage::Recover);
    }

    #[test]
    fn a_notice_withdrawn_during_its_drain_leads_back_to_recover_when_the_drain_ends() {
        check(&[Answered, Noticed(id(1)), Over(id(1))], Action::Wait, Stage::Shutdown);
        check(&[Answered, Noticed(id(1)), Over(id(1)), Drained], Action::Recover, Stage::Recover);
    }

    #[test]
    fn a_stop_drains_and_exits_and_a_second_one_abandons() {
        check(&[Answered, Prepared, StopRequested], Action::Drain, Stage::Shutdown);
        check(&[StopRequested, Drained], Action::Exit, Stage::Stopped);
        check(&[StopRequested, StopRequested], Action::Abandon, Stage::Stopped);
        check(&[Noticed(id(1)), StopRequested], Action::Tighten, Stage::Shutdown);
        check(&[Noticed(id(1)), Drained, StopRequested], Action::Exit, Stage::Stopped);
    }

    #[test]
    fn an_illegal_event_is_named_and_changes_nothing() {
        let mut life = Lifecycle::new();
        let refused = life.on(Drained).unwrap_err();
        assert_eq!(refused.to_string(), "Drained can't happen in recover");
        assert_eq!(life, Lifecycle::new());
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Answered),
            Just(Prepared),
            (0..3_u8).prop_map(|n| Noticed(id(n))),
            (0..3_u8).prop_map(|n| Over(id(n))),
            Just(StopRequested),
            Just(Drained),
        ]
    }

    proptest! {
        /// Two parts of "no work while a notice is active": Start is never entered with an active
        /// notice, and Shutdown leads only to Recover or to the end.
        #[test]
        fn no_sequence_of_events_works_while_a_notice_stands(events in prop::collection::vec(any_event(), 0..40)) {
            let mut life = Lifecycle::new();
            for event in events {
                let before = life.stage();
                let _illegal_events_change_nothing = life.on(event);
                let after = life.stage();
                if matches!(after, Stage::Recover | Stage::Resume | Stage::Start) {
                    prop_assert!(life.standing.is_empty());
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
