//! Which machine approves an event.

use crate::interruption::{Approve, Policy};
use crate::notice::{Notice, NoticeKind, Phase};

/// This machine's part in the approval of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authority {
    /// The event is not approved, or not by this machine.
    None,
    /// This machine approves when it is ready itself.
    Alone,
    /// This machine approves when every worker on every machine that the event names is ready.
    Lead,
    /// This machine marks itself ready, and another machine approves.
    Follow,
}

/// Decides this machine's part in the approval of `notice`. Never approved are a `Preempt`, for
/// which an approval only means an earlier eviction, a recommendation, an event of unknown type, an
/// event that has begun, and an event that does not name this machine.
#[must_use]
pub fn authority(notice: &Notice, policy: &Policy) -> Authority {
    let approvable = matches!(
        notice.kind,
        NoticeKind::Terminate | NoticeKind::Reboot | NoticeKind::Redeploy | NoticeKind::Freeze
    );
    let is_ours = |name: &String| !name.is_empty() && name.eq_ignore_ascii_case(&notice.machine);
    if !approvable || notice.phase == Phase::Started || !notice.resources.iter().any(is_ours) {
        return Authority::None;
    }
    match policy.approve {
        Approve::Never => Authority::None,
        Approve::Any => Authority::Alone,
        // Other workers may run on this machine.
        Approve::Sole | Approve::Leader if notice.resources.iter().all(is_ours) => Authority::Lead,
        Approve::Sole => Authority::None,
        Approve::Leader if notice.resources.first().is_some_and(is_ours) => Authority::Lead,
        Approve::Leader => Authority::Follow,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn event(kind: NoticeKind, resources: &[&str], machine: &str) -> Notice {
        Notice::now("e", kind).at(Instant::now()).of(resources.iter().copied(), machine)
    }

    #[track_caller]
    fn check(notice: &Notice, expected: [Authority; 4]) {
        let approves = [Approve::Never, Approve::Sole, Approve::Leader, Approve::Any];
        let found = approves.map(|approve| authority(notice, &Policy { approve, ..Policy::default() }));
        assert_eq!(found, expected, "{notice:?}");
    }

    #[tokio::test]
    async fn an_event_is_approved_according_to_the_setting() {
        use Authority::{Alone, Follow, Lead, None};
        for kind in [NoticeKind::Terminate, NoticeKind::Reboot, NoticeKind::Redeploy, NoticeKind::Freeze] {
            check(&event(kind.clone(), &["a_0"], "A_0"), [None, Lead, Lead, Alone]);
            check(&event(kind.clone(), &["a_0", "A_0"], "a_0"), [None, Lead, Lead, Alone]);
            check(&event(kind.clone(), &["a_0", "a_1"], "a_0"), [None, None, Lead, Alone]);
            check(&event(kind.clone(), &["a_0", "a_1"], "A_1"), [None, None, Follow, Alone]);
            // The event names no machine, or only others.
            check(&event(kind.clone(), &[], ""), [None; 4]);
            check(&event(kind.clone(), &[""], ""), [None; 4]);
            check(&event(kind.clone(), &["a_0"], ""), [None; 4]);
            check(&event(kind.clone(), &["a_0"], "a_1"), [None; 4]);
            check(&Notice { phase: Phase::Started, ..event(kind, &["a_0"], "a_0") }, [None; 4]);
        }
    }

    #[tokio::test]
    async fn an_eviction_an_advice_and_the_unknown_are_never_approved() {
        for kind in [NoticeKind::Preempt, NoticeKind::Rebalance, NoticeKind::Other("Surprise".to_owned())] {
            check(&event(kind, &["a_0"], "a_0"), [Authority::None; 4]);
        }
    }
}
