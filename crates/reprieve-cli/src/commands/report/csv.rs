//! The entries as CSV, by RFC 4180: one on each line, for a spreadsheet or a script.

use reprieve_core::ledger::{Entries, How, Interruption, Life, Machine};

use super::money::Money;
use crate::format::plain;

/// The columns. A cell that does not apply is empty.
const COLUMNS: [&str; 23] = [
    "at_unix_ms",
    "entry",
    "what",
    "boot",
    "vm",
    "size",
    "zone",
    "region",
    "worker",
    "lead_ms",
    "held",
    "saved",
    "cut",
    "abandoned",
    "released_after_ms",
    "work_lost_ms",
    "work_kept_ms",
    "job_and_reason",
    "priority",
    "booted_unix_ms",
    "until_unix_ms",
    "cost",
    "regular_cost",
];

type Row = [String; 23];

/// The machines of the time, with what they cost if prices are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Priced<'a> {
    pub(super) lives: &'a [Life],
    pub(super) money: Option<&'a Money>,
}

/// The table with its header. A machine has a line of its own, which is no entry: what its entries tell together.
pub(super) fn table(entries: &Entries, priced: &Priced<'_>) -> String {
    let boots = entries.boots.iter().map(|it| {
        let machine = Machine { booted_unix_ms: None, ..it.machine.clone() };
        row(it.at_unix_ms, "boot", "", &it.boot, &machine, it.worker.as_str())
    });
    let failures = entries.failures.iter().map(|it| {
        let what = if it.poisoned { "poisoned" } else { "retried" };
        let mut row = row(it.at_unix_ms, "failure", what, "", &Machine::default(), it.worker.as_str());
        row[17] = format!("{} {}: {}", it.kind, it.job, it.reason);
        row
    });
    let healings = entries.healings.iter().map(|it| {
        let machine = Machine { vm: it.vm.clone(), ..Machine::default() };
        let mut row = row(it.at_unix_ms, "healing", &it.layer, &it.boot, &machine, it.worker.as_str());
        row[17] = format!("{}: {}: {}", it.fault, it.action, it.outcome);
        row
    });
    let machines = priced.lives.iter().enumerate().map(|(index, life)| machine(index, life, priced.money));
    let interruptions = entries.interruptions.iter().map(interruption);
    let mut rows: Vec<_> =
        machines.chain(boots).chain(interruptions).chain(failures).chain(healings).collect();
    // By time; it is a number in milliseconds.
    rows.sort_by_key(|row| row[0].parse().unwrap_or(0_i64));
    let lines = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows);
    lines.map(|row| row.map(|cell| quoted(&cell)).join(",") + "\r\n").collect()
}

fn row(at_unix_ms: i64, entry: &str, what: &str, boot: &str, machine: &Machine, worker: &str) -> Row {
    let Machine { vm, size, zone, region, .. } = machine;
    let first = [&at_unix_ms.to_string(), entry, what, boot, vm, size, zone, region, worker];
    std::array::from_fn(|at| first.get(at).map(|cell| (*cell).to_owned()).unwrap_or_default())
}

fn machine(index: usize, life: &Life, money: Option<&Money>) -> Row {
    let what = if life.evicted.is_some() { "evicted" } else { "seen" };
    let mut row = row(life.seen_unix_ms, "machine", what, &life.boot, &life.machine, "");
    row[18].clone_from(&life.machine.priority);
    row[19] = life.born_unix_ms.map(|born| born.to_string()).unwrap_or_default();
    row[20] = life.until_unix_ms.to_string();
    if let Some((cost, regular)) = money.and_then(|money| money.of_life(index)) {
        (row[21], row[22]) = (cost.to_string(), regular.to_string());
    }
    row
}

fn interruption(it: &Interruption) -> Row {
    let what = it.notice().unwrap_or("died");
    let mut row = row(it.at_unix_ms, "interruption", what, &it.boot, &it.machine, it.worker.as_str());
    row[10] = it.held().to_string();
    row[15] = it.work_lost_ms().to_string();
    row[16] = it.work_kept_ms().to_string();
    if let How::Drained(report) = &it.how {
        row[9] = report.lead_ms.map(|lead| lead.to_string()).unwrap_or_default();
        row[11] = report.released_saved.to_string();
        row[12] = report.released_cut.to_string();
        row[13] = report.abandoned.to_string();
        row[14] = report.released_after_ms.to_string();
    }
    row
}

/// A cell, without what would move a terminal's cursor or turn its text around. One that a spreadsheet would take for a
/// formula is marked as text, because reasons may have the words of others in them.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<i64>().is_err();
    let cell: Vec<_> = cell.split('\n').map(plain).collect();
    let cell = cell.join("\n");
    let cell = if is_formula { format!("'{cell}") } else { cell };
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use reprieve_core::ledger::{Boot, Failure};
    use reprieve_core::worker::DrainReport;
    use reprieve_core::{JobId, WorkerId};

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_need_it_and_never_a_formula() {
        for (cell, expected) in [
            ("", ""),
            ("vm_7", "vm_7"),
            ("a,b", "\"a,b\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("=1+1", "'=1+1"),
            ("-5", "-5"),
            ("-x", "'-x"),
            ("two\nlines", "\"two\nlines\""),
            ("\u{1b}[2Ja\u{202e}", "\u{fffd}[2Ja\u{fffd}"),
        ] {
            assert_eq!(quoted(cell), expected);
        }
    }

    #[test]
    fn every_entry_is_a_line_by_time() {
        let worker = || WorkerId::new("w");
        let machine = Machine { vm: "vm_7".to_owned(), zone: "2".to_owned(), ..Machine::default() };
        let report = DrainReport {
            notice: "Preempt".to_owned(),
            lead_ms: Some(30_000),
            held: 4,
            ..DrainReport::default()
        };
        let entries = Entries {
            boots: vec![Boot {
                boot: "b".to_owned(),
                worker: worker(),
                at_unix_ms: 100,
                machine: machine.clone(),
                seen_unix_ms: None,
                worked_on_unix_ms: None,
            }],
            interruptions: vec![Interruption {
                worker: worker(),
                boot: "b".to_owned(),
                machine,
                queue: String::new(),
                at_unix_ms: 900,
                jobs: Vec::new(),
                how: How::Drained(report),
            }],
            failures: vec![Failure {
                job: JobId::parse("j").unwrap(),
                kind: "k".to_owned(),
                delivery: 1,
                reason: "no, never".to_owned(),
                poisoned: true,
                worker: worker(),
                at_unix_ms: 500,
            }],
            ..Entries::default()
        };
        let life = Life {
            boot: "b".to_owned(),
            machine: Machine { priority: "Spot".to_owned(), ..entries.boots[0].machine.clone() },
            born_unix_ms: Some(40),
            seen_unix_ms: 100,
            until_unix_ms: 30_900,
            evicted: None,
        };
        let table = table(&entries, &Priced { lives: &[life], money: None });
        let lines: Vec<_> = table.split("\r\n").collect();
        assert_eq!(lines[1], "100,machine,seen,b,vm_7,,2,,,,,,,,,,,,Spot,40,30900,,");
        assert_eq!(lines[2], "100,boot,,b,vm_7,,2,,w,,,,,,,,,,,,,,");
        assert_eq!(lines[3], "500,failure,poisoned,,,,,,w,,,,,,,,,\"k j: no, never\",,,,,");
        assert_eq!(lines[4], "900,interruption,Preempt,b,vm_7,,2,,w,30000,4,0,0,0,0,0,0,,,,,,");
        assert_eq!((lines.len(), lines[5]), (6, ""));
    }
}
