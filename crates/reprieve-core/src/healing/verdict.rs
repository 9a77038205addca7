//! Decides whether a machine with a proven fault is to be replaced. It does no I/O and reads no clock.

use std::fmt;
use std::time::Duration;

/// How long ago the store must have answered at most. While it does not, nothing is known of the fleet, and the
/// fault may be a part of the outage.
pub const STORE_ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// For how long the store must have answered. After an outage the machines of the fleet need that time to report: by
/// then a fault that all of them have is seen.
pub(super) const STORE_ANSWERED_FOR: Duration = Duration::from_secs(60);

/// The shortest time between two repairs of one machine: about what the platform takes for one, with its period
/// of grace, and a good while to see whether it helped.
pub const REPAIR_EVERY: Duration = Duration::from_hours(1);

/// Of how many machines one may be repaired at once: 5 %, which is what the platform does itself.
/// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-automatic-instance-repairs>
const ONE_OF: usize = 20;

/// The kind of a fault that a new machine mends and a new process does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A file system to which the worker has written takes no writes any more (`EROFS`).
    ReadOnly,
    /// The disk fails the worker's own writes (`EIO`).
    DiskError,
}

impl FaultKind {
    /// The kind in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only file system",
            Self::DiskError => "disk error",
        }
    }
}

/// A fault of this machine that was seen in several own writes, one after the other.
///
/// There is no other kind of evidence: an outage of the store, memory, the clock, or jobs and slots that are stuck
/// can't be given as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The directory.
    pub place: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind.as_str(), self.place)
    }
}

/// The machines of the fleet, as the roster shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fleet {
    /// Whether this machine's own report is there: else the roster is not to be believed.
    pub has_own: bool,
    /// The other machines that have reported of late.
    pub others: usize,
    /// Those of them that report now, and no fault.
    pub healthy: usize,
}

impl Fleet {
    /// Returns how many machines may be repaired at once.
    #[must_use]
    pub fn claims(self) -> usize {
        ((self.others + 1) / ONE_OF).max(1)
    }

    /// Whether more than half of the other machines are healthy. A fault that half of a fleet has is none of its
    /// machines': new ones would have it, too.
    const fn is_mostly_healthy(self) -> bool {
        self.healthy * 2 > self.others || self.others == 0
    }
}

/// What is known when the decision is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The proven fault, if there is one.
    pub fault: Option<Fault>,
    /// How long ago the store answered; `None` if it never did.
    pub store_answered: Option<Duration>,
    /// For how long it has answered each report of this worker; `None` if it did not answer the last one.
    pub store_answers_for: Option<Duration>,
    /// The fleet.
    pub fleet: Fleet,
    /// How long ago a repair of this machine was asked for; `None` if none is known.
    pub last_repair: Option<Duration>,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is no fault, or it is not to be mended so.
    Keep(Refusal),
    /// The machine may be replaced, once one of this many claims in the store is held.
    Replace {
        /// What is wrong with it.
        fault: Fault,
        /// How many machines of the fleet may be repaired at once.
        claims: usize,
    },
}

/// Why a machine is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Nothing is wrong.
    NoFault,
    /// The store has not answered of late.
    StoreSilent,
    /// The store has not answered for long.
    StoreJustBack,
    /// The roster does not have this machine.
    NotInRoster,
    /// Half of the other machines, or more, are silent or have a fault, too.
    FleetIsIll,
    /// A repair was asked for less than an hour ago.
    TooSoon,
}

impl Refusal {
    /// The reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFault => "there is no fault",
            Self::StoreSilent => "the store has not answered for a minute",
            Self::StoreJustBack => {
                "the store answers for less than a minute, so other machines may not have reported yet"
            }
            Self::NotInRoster => "the roster does not show this machine",
            Self::FleetIsIll => "half of the other machines are silent or have a fault, too",
            Self::TooSoon => "a repair was asked for less than an hour ago",
        }
    }
}

/// Decides what becomes of this machine.
///
/// | fault | store answered | roster | last repair | verdict |
/// |---|---|---|---|---|
/// | none | | | | keep |
/// | proven | more than 60 s ago, or never | | | keep |
/// | proven | within 60 s, but not for 60 s yet | | | keep |
/// | proven | within 60 s | without this machine | | keep |
/// | proven | within 60 s | half of the others are silent or have a fault | | keep |
/// | proven | within 60 s | more than half of the others are healthy | within an hour | keep |
/// | proven | within 60 s | more than half of the others are healthy | none, or longer ago | replace |
#[must_use]
pub fn decide(evidence: &Evidence) -> Verdict {
    let Evidence { fault, fleet, .. } = evidence;
    let Some(fault) = fault else { return Verdict::Keep(Refusal::NoFault) };
    if let Some(why) = unseen(evidence) {
        return Verdict::Keep(why);
    }
    if !fleet.is_mostly_healthy() {
        return Verdict::Keep(Refusal::FleetIsIll);
    }
    if is_too_soon(evidence) {
        return Verdict::Keep(Refusal::TooSoon);
    }
    Verdict::Replace { fault: fault.clone(), claims: fleet.claims() }
}

/// Returns why a worker may not follow another one of its machine, which holds the claim for it. That one alone has looked
/// at the other machines: since then they may have a fault, too. All else must hold for this worker as well: the claim may
/// be all that is left of the other one.
#[must_use]
pub fn refuse_to_follow(evidence: &Evidence) -> Option<Refusal> {
    if evidence.fault.is_none() {
        return Some(Refusal::NoFault);
    }
    unseen(evidence).or_else(|| is_too_soon(evidence).then_some(Refusal::TooSoon))
}

/// Returns why nothing is known of the fleet, if that is so.
fn unseen(evidence: &Evidence) -> Option<Refusal> {
    let Evidence { store_answered, store_answers_for, fleet, .. } = evidence;
    if store_answered.is_none_or(|ago| ago > STORE_ANSWERED_WITHIN) {
        return Some(Refusal::StoreSilent);
    }
    if store_answers_for.is_none_or(|long| long < STORE_ANSWERED_FOR) {
        return Some(Refusal::StoreJustBack);
    }
    (!fleet.has_own).then_some(Refusal::NotInRoster)
}

fn is_too_soon(evidence: &Evidence) -> bool {
    evidence.last_repair.is_some_and(|ago| ago < REPAIR_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(others: usize, healthy: usize) -> Fleet {
        Fleet { has_own: true, others, healthy }
    }

    #[test]
    fn a_machine_is_replaced_only_with_a_proven_fault_in_a_healthy_fleet_that_is_seen_now() {
        use Refusal::{FleetIsIll, NoFault, NotInRoster, StoreSilent, TooSoon};
        let sound = fleet(9, 9);
        let cases = [
            // Whatever else is so: without a fault nothing happens.
            (false, Some(0), sound, None, Some(NoFault)),
            (false, None, fleet(9, 0), None, Some(NoFault)),
            (true, Some(0), sound, None, None),
            (true, Some(60), sound, None, None),
            (true, Some(61), sound, None, Some(StoreSilent)),
            // An outage of an hour, and a store that never answered.
            (true, Some(3_600), sound, None, Some(StoreSilent)),
            (true, None, sound, None, Some(StoreSilent)),
            // A roster that has lost everyone proves nothing.
            (true, Some(0), Fleet::default(), None, Some(NotInRoster)),
            (true, Some(0), Fleet { has_own: false, ..sound }, None, Some(NotInRoster)),
            (true, Some(0), fleet(9, 5), None, None),
            (true, Some(0), fleet(9, 4), None, Some(FleetIsIll)),
            (true, Some(0), fleet(10, 5), None, Some(FleetIsIll)),
            (true, Some(0), fleet(1, 0), None, Some(FleetIsIll)),
            (true, Some(0), fleet(1, 1), None, None),
            // Nobody else could say that it is the fleet's fault.
            (true, Some(0), fleet(0, 0), None, None),
            (true, Some(0), sound, Some(3_599), Some(TooSoon)),
            (true, Some(0), sound, Some(3_600), None),
        ];
        for (number, (has_fault, store_answered, fleet, last_repair, refusal)) in
            cases.into_iter().enumerate()
        {
            let [store_answered, last_repair] =
                [store_answered, last_repair].map(|ago| ago.map(Duration::from_secs));
            let fault = Fault { kind: FaultKind::ReadOnly, place: "/var/lib/w".to_owned() };
            let fault = has_fault.then_some(fault);
            let store_answers_for = Some(STORE_ANSWERED_FOR);
            let verdict = decide(&Evidence { fault, store_answered, store_answers_for, fleet, last_repair });
            let kept = match verdict {
                Verdict::Keep(why) => Some(why),
                Verdict::Replace { .. } => None,
            };
            assert_eq!(kept, refusal, "case {number}");
        }
    }

    #[test]
    fn nothing_is_replaced_until_the_others_had_the_time_to_report() {
        for (long, refusal) in
            [(None, Some(Refusal::StoreJustBack)), (Some(59), Some(Refusal::StoreJustBack)), (Some(60), None)]
        {
            let fault = Some(Fault { kind: FaultKind::DiskError, place: "/var/lib/w".to_owned() });
            let store_answers_for = long.map(Duration::from_secs);
            // After an outage nobody has reported yet: that looks like a fleet of one.
            let (store_answered, fleet) = (Some(Duration::ZERO), fleet(0, 0));
            let verdict =
                decide(&Evidence { fault, store_answered, store_answers_for, fleet, last_repair: None });
            let kept = if let Verdict::Keep(why) = verdict { Some(why) } else { None };
            assert_eq!(kept, refusal, "{long:?}");
        }
    }

    #[test]
    fn another_worker_is_followed_under_all_conditions_but_that_of_the_fleet() {
        use Refusal::{NoFault, NotInRoster, StoreJustBack, StoreSilent, TooSoon};
        let sound = Evidence {
            fault: Some(Fault { kind: FaultKind::ReadOnly, place: "/var/lib/w".to_owned() }),
            store_answered: Some(Duration::ZERO),
            store_answers_for: Some(STORE_ANSWERED_FOR),
            fleet: fleet(9, 0),
            last_repair: None,
        };
        let second = Duration::from_secs(1);
        let cases = [
            (sound.clone(), None),
            (Evidence { last_repair: Some(REPAIR_EVERY), ..sound.clone() }, None),
            (Evidence { fault: None, ..sound.clone() }, Some(NoFault)),
            (Evidence { store_answered: None, ..sound.clone() }, Some(StoreSilent)),
            (
                Evidence {
                    store_answers_for: Some(STORE_ANSWERED_FOR.saturating_sub(second)),
                    ..sound.clone()
                },
                Some(StoreJustBack),
            ),
            (Evidence { fleet: Fleet::default(), ..sound.clone() }, Some(NotInRoster)),
            (Evidence { last_repair: Some(REPAIR_EVERY.saturating_sub(second)), ..sound }, Some(TooSoon)),
        ];
        for (evidence, refusal) in cases {
            assert_eq!(refuse_to_follow(&evidence), refusal, "{evidence:?}");
        }
    }

    #[test]
    fn one_machine_or_a_twentieth_of_the_fleet_is_repaired_at_once() {
        let claims = [0, 1, 18, 19, 20, 38, 39, 99, 999].map(|others| fleet(others, others).claims());
        assert_eq!(claims, [1, 1, 1, 1, 1, 1, 2, 5, 50]);
    }
}
