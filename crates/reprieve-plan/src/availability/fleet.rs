//! Machines that join and leave a fleet: `milliseconds,add|remove,node`.

use std::collections::BTreeSet;

use super::csv::{bad_value, lines, shortened};
use super::{Series, TraceError};

const COLUMNS: &str = "milliseconds,add|remove,node";

pub(super) fn parse(text: &str) -> Result<Series, TraceError> {
    let mut nodes = BTreeSet::new();
    let mut deltas = Vec::new();
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
        let (delta, changed) = match event {
            "add" => (1, nodes.insert(node)),
            "remove" => (-1, nodes.remove(node)),
            _ => return Err(bad_value(line, event, "add or remove")),
        };
        if !changed {
            return Err(TraceError::Node { line, node: shortened(node), present: delta > 0 });
        }
        deltas.push((at_ms, delta));
    }
    Series::from_deltas(deltas)
}
