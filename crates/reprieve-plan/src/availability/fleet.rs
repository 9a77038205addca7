//! Machines that join and leave a fleet: `milliseconds,add|remove,node`.

use std::collections::BTreeSet;

use super::csv::{bad_value, lines, shortened};
use super::{Series, TraceError};

const COLUMNS: &str = "milliseconds,add|remove,node";

/// A machine that joined or left.
pub(super) struct Event<'a> {
    pub(super) at_ms: u64,
    pub(super) joined: bool,
    pub(super) node: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Series, TraceError> {
    let events = events(text)?;
    Series::from_deltas(events.iter().map(|event| (event.at_ms, if event.joined { 1 } else { -1 })))
}

/// The events, in order of time. A node joins only while it is away, and leaves only while it is there.
pub(super) fn events(text: &str) -> Result<Vec<Event<'_>>, TraceError> {
    let mut nodes = BTreeSet::new();
    let mut events = Vec::new();
    let mut last_ms = 0;
    for (line, content) in lines(text) {
        let mut columns = content.split(',').map(str::trim);
        let (Some(time), Some(event), Some(node), None) =
            (columns.next(), columns.next(), columns.next(), columns.next())
        else {
            return Err(TraceError::Columns { line, expected: COLUMNS });
        };
        let at_ms = time.parse().map_err(|_| bad_value(line, time, "a time in milliseconds"))?;
        if at_ms < last_ms {
            return Err(TraceError::Backwards { line });
        }
        last_ms = at_ms;
        let (joined, changed) = match event {
            "add" => (true, nodes.insert(node)),
            "remove" => (false, nodes.remove(node)),
            _ => return Err(bad_value(line, event, "add or remove")),
        };
        if !changed {
            return Err(TraceError::Node { line, node: shortened(node), present: joined });
        }
        events.push(Event { at_ms, joined, node });
    }
    Ok(events)
}
