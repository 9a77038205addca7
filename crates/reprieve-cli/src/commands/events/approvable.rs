//! Which events may be approved: an approval lets an event begin at once, on every VM that it names.

use reprieve_azure::scheduled_events::document::{Event, EventType};

/// What may be approved besides the harmless: an event of this VM alone, that takes nothing for ever.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Allowed {
    /// Events that name other VMs, too.
    pub(super) shared: bool,
    /// A `Preempt`.
    pub(super) surrender: bool,
}

/// Why an event is not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing follows from it, so there is nothing that could begin.
    Advice,
    /// An approval names an event by its id.
    NoId,
    /// Somebody has to allow it for all.
    Shared,
    /// The VM would be gone the sooner, and nothing gained.
    Preempt,
    /// Whoever made the VM ready did so for something else.
    Changed,
}

impl Refusal {
    /// How a sentence about the event goes on.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Advice => "is only an advice, which can't be approved",
            Self::NoId => "was given no id to approve it by",
            Self::Shared => "is not of this VM alone",
            Self::Preempt => "takes the VM back, and approved only does so sooner",
            Self::Changed => "has become another type of event since its command was run",
        }
    }
}

/// Why `event` must not be approved by the VM called `vm`; `None` when it may be.
pub(super) fn refusal(event: &Event, vm: &str, allowed: Allowed) -> Option<Refusal> {
    // One that names nobody may happen to anybody.
    let sole = event.resources.len() == 1 && event.concerns(vm);
    match event.event_type {
        EventType::SpotRebalanceRecommendation => Some(Refusal::Advice),
        _ if event.event_id.is_empty() => Some(Refusal::NoId),
        EventType::Preempt if !allowed.surrender => Some(Refusal::Preempt),
        _ if !sole && !allowed.shared => Some(Refusal::Shared),
        _ => None,
    }
}

/// The same after a command has made the VM ready for an event of the type `ready_for`, which it may not be any more.
pub(super) fn refusal_when_ready(
    ready_for: &str,
    event: &Event,
    vm: &str,
    allowed: Allowed,
) -> Option<Refusal> {
    let changed = event.event_type.as_str() != ready_for;
    refusal(event, vm, allowed).or(changed.then_some(Refusal::Changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_approved() {
        const NONE: Allowed = Allowed { shared: false, surrender: false };
        const ALL: Allowed = Allowed { shared: true, surrender: true };
        use EventType::{Freeze, Other, Preempt, Reboot, SpotRebalanceRecommendation as Rebalance};
        for (event_type, id, resources, by_default, with_all) in [
            (Reboot, "a", &["w_0"][..], None, None),
            (Reboot, "a", &["W_0"], None, None),
            (Other("Defrost".to_owned()), "a", &["w_0"], None, None),
            (Freeze, "a", &["w_0", "w_1"], Some(Refusal::Shared), None),
            (Freeze, "a", &["w_1"], Some(Refusal::Shared), None),
            (Freeze, "a", &[], Some(Refusal::Shared), None),
            (Preempt, "a", &["w_0"], Some(Refusal::Preempt), None),
            (Reboot, "", &["w_0"], Some(Refusal::NoId), Some(Refusal::NoId)),
            (Rebalance, "a", &["w_0"], Some(Refusal::Advice), Some(Refusal::Advice)),
        ] {
            let resources = resources.iter().map(|&name| name.to_owned()).collect();
            let event = Event { event_id: id.to_owned(), event_type, resources, ..Event::default() };
            assert_eq!(refusal(&event, "w_0", NONE), by_default, "{event:?}");
            assert_eq!(refusal(&event, "w_0", ALL), with_all, "{event:?}");
        }
        // To be ready for a pause is not to be ready for a restart.
        let event = Event {
            event_id: "a".to_owned(),
            event_type: Reboot,
            resources: vec!["w_0".to_owned()],
            ..Event::default()
        };
        assert_eq!(refusal_when_ready("Reboot", &event, "w_0", NONE), None);
        assert_eq!(refusal_when_ready("Freeze", &event, "w_0", ALL), Some(Refusal::Changed));
        assert_eq!(refusal_when_ready("Freeze", &event, "w_1", NONE), Some(Refusal::Shared));
        // To give a Preempt up is not to give up those of others.
        let event = Event {
            event_id: "a".to_owned(),
            event_type: Preempt,
            resources: vec!["w_0".to_owned(), "w_1".to_owned()],
            ..Event::default()
        };
        let surrender = Allowed { surrender: true, ..NONE };
        assert_eq!(refusal(&event, "w_0", surrender), Some(Refusal::Shared));
    }
}
