//! Recorded fleets, and how five slots follow one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};

/// The machines that run at once in a replay.
pub(super) const SLOTS: usize = 5;

/// A recorded fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// 10.8 hours of up to 24 machines.
    G4dn,
    /// 11.4 hours of up to 32 machines.
    P3,
}

/// A machine of a slot: another one follows when it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) slot: usize,
    pub(super) name: String,
    /// When it booted and, if that is recorded, was taken back, since the beginning of the record.
    pub(super) booted: Duration,
    pub(super) gone: Option<Duration>,
}

impl Trace {
    const fn text(self) -> &'static str {
        match self {
            Self::G4dn => include_str!("../../../reprieve-plan/traces/aws-g4dn-fleet.csv"),
            Self::P3 => include_str!("../../../reprieve-plan/traces/aws-p3-fleet.csv"),
        }
    }

    /// The size of its machines.
    pub(super) const fn size(self) -> &'static str {
        match self {
            Self::G4dn => "g4dn",
            Self::P3 => "p3",
        }
    }

    /// The machines of the slots, in the order in which they booted. A slot that is empty takes the next machine that
    /// boots, and has it until it is taken back: so machines that went together still do.
    ///
    /// # Errors
    /// The line that can't be read.
    pub(super) fn machines(self) -> Result<Vec<Recorded>> {
        let mut slots: [Option<usize>; SLOTS] = [None; SLOTS];
        let mut machines: Vec<Recorded> = Vec::new();
        let mut of_name = BTreeMap::new();
        for line in self.text().lines() {
            let (at, what, name) = read(line)?;
            let free = slots.iter().position(Option::is_none);
            match (what, free) {
                ("add", Some(slot)) => {
                    slots[slot] = Some(machines.len());
                    of_name.insert(name, machines.len());
                    machines.push(Recorded { slot, name: name.to_owned(), booted: at, gone: None });
                }
                ("remove", _) => {
                    if let Some(machine) = of_name.remove(name) {
                        machines[machine].gone = Some(at);
                        slots[machines[machine].slot] = None;
                    }
                }
                _ => {}
            }
        }
        Ok(machines)
    }
}

fn read(line: &str) -> Result<(Duration, &str, &str)> {
    let unreadable =
        || Error::new(ErrorKind::Corrupt, "read a recorded fleet", format!("the line is {line:?}"));
    let mut parts = line.split(',');
    let (Some(at), Some(what), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(unreadable());
    };
    let at = at.parse().map_err(|error| unreadable().with_source(error))?;
    Ok((Duration::from_millis(at), what, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_slots_follow_a_recorded_fleet_by_time() {
        const MINUTE: Duration = Duration::from_mins(1);
        let machines = Trace::G4dn.machines().unwrap();
        let first: Vec<_> = machines.iter().take(7).map(|it| (it.slot, it.name.as_str(), it.gone)).collect();
        let expected = [
            (0, "node1", Some(MINUTE * 28)),
            (1, "node2", Some(MINUTE * 120)),
            (2, "node3", Some(MINUTE * 24)),
            (3, "node4", Some(MINUTE * 66)),
            (4, "node5", Some(MINUTE * 71)),
            // The next ones that booted after a slot was empty, and not those that waited beside the five.
            (0, "node25", Some(MINUTE * 196)),
            (2, "node26", Some(MINUTE * 44)),
        ];
        assert_eq!(first, expected);
        for (trace, evictions) in [(Trace::G4dn, 23), (Trace::P3, 25)] {
            let machines = trace.machines().unwrap();
            assert_eq!(machines.iter().filter(|it| it.gone.is_some()).count(), evictions);
            for slot in 0..SLOTS {
                let of_slot: Vec<_> = machines.iter().filter(|it| it.slot == slot).collect();
                assert!(of_slot.is_sorted_by(|one, next| one.gone.is_some_and(|gone| gone <= next.booted)));
            }
        }
    }
}
