//! How machines of a trace ended: each by itself, and several at a moment.

use std::collections::BTreeMap;

use super::{TraceError, fleet, lifetimes};

/// How long a machine lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The time for which it was seen.
    pub lived_ms: u64,
    /// Whether it was evicted then. If not, it is *censored*: it lived at least that long.
    pub evicted: bool,
}

/// A moment at which a fleet lost machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The time since the loss before; for the first one, since the trace began.
    pub after_ms: u64,
    /// The number of machines that were lost.
    pub lost: u32,
    /// The number of machines before.
    pub of: u32,
}

/// Reads the lives of a trace's machines: of fleet events, or of lifetimes.
///
/// Machines that are in the fleet when the trace ends are censored, and so are those that `ended_by` calls
/// `stopped`: by their owner.
///
/// # Errors
///
/// The first fault, with its line. A series of counts has no lives and is no fleet event.
pub fn lives(text: &str) -> Result<Vec<Life>, TraceError> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lives: Vec<_> = if lifetimes::has_header(text) {
        let rows = lifetimes::rows(text)?.into_iter();
        rows.map(|row| Life { lived_ms: u64::from(row.lifetime_s) * 1000, evicted: row.taken }).collect()
    } else {
        of_fleet(text)?
    };
    if lives.is_empty() { Err(TraceError::Empty) } else { Ok(lives) }
}

fn of_fleet(text: &str) -> Result<Vec<Life>, TraceError> {
    let (mut joined, mut lives, mut last_ms) = (BTreeMap::new(), Vec::new(), 0);
    for event in fleet::events(text)? {
        last_ms = event.at_ms;
        if event.joined {
            joined.insert(event.node, event.at_ms);
        } else if let Some(since_ms) = joined.remove(event.node) {
            lives.push(Life { lived_ms: event.at_ms - since_ms, evicted: true });
        }
    }
    lives.extend(joined.values().map(|since_ms| Life { lived_ms: last_ms - since_ms, evicted: false }));
    Ok(lives)
}

/// Reads the moments at which a fleet lost machines, from its events.
///
/// # Errors
///
/// The first fault, with its line; [`TraceError::NoLosses`] for a fleet that lost nothing.
pub fn losses(text: &str) -> Result<Vec<Loss>, TraceError> {
    let mut by_time: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    let events = fleet::events(text.trim_start_matches('\u{feff}').trim_start())?;
    let start_ms = events.first().ok_or(TraceError::Empty)?.at_ms;
    for event in &events {
        let (joined, left) = by_time.entry(event.at_ms).or_default();
        if event.joined { *joined += 1 } else { *left += 1 }
    }
    let (mut losses, mut count, mut before_ms) = (Vec::new(), 0, start_ms);
    for (at_ms, (joined, left)) in by_time {
        // A machine that joins and leaves at one moment was among those that could be lost.
        let of = count + if left > count { joined } else { 0 };
        if left > 0 {
            losses.push(Loss { after_ms: at_ms - before_ms, lost: left, of });
            before_ms = at_ms;
        }
        count = count + joined - left;
    }
    if losses.is_empty() { Err(TraceError::NoLosses) } else { Ok(losses) }
}

#[cfg(test)]
mod tests {
    use super::{Life, Loss, TraceError, lives, losses};

    const FLEET: &str = "1000,add,a\n1000,add,b\n5000,remove,a\n5000,add,c\n9000,remove,b\n9000,remove,c\n9000,add,d\n12000,add,a\n";

    #[test]
    fn machines_that_are_left_at_the_end_are_censored() {
        let found: Vec<_> = lives(FLEET).unwrap().iter().map(|life| (life.lived_ms, life.evicted)).collect();
        assert_eq!(found, [(4000, true), (8000, true), (4000, true), (0, false), (3000, false)]);
    }

    #[test]
    fn machines_that_their_owner_stopped_are_censored() {
        let text = "start_utc,lifetime_s,ended_by\n2019-02-18T16:57:39Z,10,preempted\n2019-02-18T16:57:39Z,20,stopped\n";
        let expected = [Life { lived_ms: 10_000, evicted: true }, Life { lived_ms: 20_000, evicted: false }];
        assert_eq!(lives(text).unwrap(), expected);
        let fault = lives(&text.replace("stopped", "lost")).unwrap_err().to_string();
        assert_eq!(fault, "line 3 of the trace has \"lost\" where preempted or stopped should be");
    }

    #[test]
    fn losses_of_one_moment_are_one() {
        let expected = [Loss { after_ms: 4000, lost: 1, of: 2 }, Loss { after_ms: 4000, lost: 2, of: 2 }];
        assert_eq!(losses(FLEET).unwrap(), expected);
        assert_eq!(losses("1,add,a\n2,add,b\n"), Err(TraceError::NoLosses));
    }
}
