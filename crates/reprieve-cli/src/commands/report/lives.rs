//! The figures with the lives of machines, as `--json` prints them.

use reprieve_core::ledger::{Life, Summary};
use serde::Serialize;

use super::money::Money;

/// All that is printed: what `reprieve plan --trace` reads, too.
#[derive(Debug, Serialize)]
pub(super) struct Figures<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// The machines that were seen in the time, cut to it.
    lives: Vec<Line<'a>>,
    /// What they cost; `null` without prices.
    money: Option<&'a Money>,
}

/// A machine in one boot. A text that is not known is empty.
#[derive(Debug, Serialize)]
struct Line<'a> {
    boot: &'a str,
    vm: &'a str,
    size: &'a str,
    zone: &'a str,
    region: &'a str,
    priority: &'a str,
    /// When it booted; `null` if that is not known. It may be before the time of the report.
    booted_unix_ms: Option<i64>,
    /// From when on it was seen.
    seen_unix_ms: i64,
    /// When it was evicted, or last seen.
    until_unix_ms: i64,
    evicted: bool,
}

impl<'a> Figures<'a> {
    pub(super) fn new(summary: &'a Summary, lives: &'a [Life], money: Option<&'a Money>) -> Self {
        let line = |life: &'a Life| {
            let it = &life.machine;
            Line {
                boot: &life.boot,
                vm: &it.vm,
                size: &it.size,
                zone: &it.zone,
                region: &it.region,
                priority: &it.priority,
                booted_unix_ms: life.born_unix_ms,
                seen_unix_ms: life.seen_unix_ms,
                until_unix_ms: life.until_unix_ms,
                evicted: life.evicted.is_some(),
            }
        };
        Self { summary, lives: lives.iter().map(line).collect(), money }
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::ledger::{Eviction, Machine};
    use reprieve_plan::measured::Export;

    use super::super::csv::{Priced, table};
    use super::super::tests::nothing;
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn life(boot: &str, priority: &str, evicted: bool) -> Life {
        Life {
            boot: boot.to_owned(),
            machine: Machine { vm: "vm, 7".to_owned(), priority: priority.to_owned(), ..Machine::default() },
            born_unix_ms: Some(0),
            seen_unix_ms: HOUR / 10,
            until_unix_ms: 5 * HOUR,
            evicted: evicted.then_some(Eviction { lead_ms: Some(1) }),
        }
    }

    #[test]
    fn a_plan_reads_the_same_machines_from_json_and_csv() {
        let lives = [life("a", "Spot", true), life("b", "Regular", false), life("c", "", false)];
        let summary = nothing();
        let json = serde_json::to_string_pretty(&Figures::new(&summary, &lives, None)).expect("JSON");
        let csv = table(&reprieve_core::ledger::Entries::default(), &Priced { lives: &lives, money: None });
        assert!(Export::is_one(&json) && Export::is_one(&csv), "{csv}");
        let (json, csv) = (Export::parse(&json).expect("an export"), Export::parse(&csv).expect("an export"));
        assert_eq!(json, csv);
        assert_eq!((json.seen.len(), json.lives.len(), json.regular), (2, 2, 1));
        let rate = json.rate().expect("a rate");
        assert_eq!((rate.evictions, rate.machine_ms), (1, 35_280_000));
    }
}
