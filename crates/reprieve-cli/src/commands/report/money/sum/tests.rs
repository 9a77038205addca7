use reprieve_core::WorkerId;
use reprieve_core::ledger::{Death, Eviction, How, Machine};

use super::super::book::{Entry, steps};
use super::*;

const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;

fn machine(size: &str, priority: &str) -> Machine {
    Machine {
        size: size.to_owned(),
        region: "westeurope".to_owned(),
        priority: priority.to_owned(),
        ..Machine::default()
    }
}

/// A machine that booted six minutes before its worker started.
fn life(boot: &str, machine: Machine, from: i64, to: i64, evicted: bool) -> Life {
    Life {
        boot: boot.to_owned(),
        machine,
        born_unix_ms: Some(from - 6 * MINUTE),
        seen_unix_ms: from,
        until_unix_ms: to,
        evicted: evicted.then_some(Eviction { lead_ms: None }),
    }
}

fn death(boot: &str, at: i64, held: u64, work_lost_ms: u64) -> Interruption {
    Interruption {
        worker: WorkerId::new("w"),
        boot: boot.to_owned(),
        machine: Machine::default(),
        queue: String::new(),
        at_unix_ms: at,
        jobs: Vec::new(),
        how: How::Died(Death { held, work_lost_ms, ..Death::default() }),
    }
}

/// Spot at 0.05 an hour, and from hour 10 on at 0.10; regular at 0.20.
fn book() -> Book {
    let price = |milli: u64| Price::from_nanos_per_hour(milli * 1_000_000);
    let mut book = Book::new("USD");
    let spot = steps([(0, price(50)), (10 * HOUR, price(100))]);
    book.insert("D4", "westeurope", Entry { spot, regular: Some(price(200)), basis: Basis::History });
    book
}

fn money(lives: &[Life], interruptions: &[Interruption], since: i64) -> Money {
    Money::of(book(), lives, interruptions, since)
}

#[test]
fn each_hour_costs_its_price_and_regular_machines_their_own() {
    let from = 5 * HOUR + 6 * MINUTE;
    let lives = [
        life("a", machine("D4", "Spot"), from, 15 * HOUR, false),
        life("b", machine("D4", "Regular"), from, 15 * HOUR, false),
    ];
    let found = money(&lives, &[], 0);
    let rows: Vec<_> = found
        .machines
        .iter()
        .map(|row| (row.priority, row.sums.cost.to_string(), row.sums.regular.to_string()))
        .collect();
    // Five hours at 0.05 and five at 0.10, boot included; ten at 0.20.
    let text = str::to_owned;
    let expected =
        [("Regular", text("2.000000"), text("2.000000")), ("Spot", text("0.750000"), text("2.000000"))];
    assert_eq!(rows, expected);
    let Sums { machines, billed_ms, saved_micros, boots, lost_ms, .. } = found.total;
    assert_eq!((machines, billed_ms, saved_micros), (2, 20 * 3_600_000, 1_250_000));
    // Six minutes each: 0.005 and 0.020.
    assert_eq!((boots.to_string().as_str(), lost_ms), ("0.025000", 0));
    assert_eq!(found.machines[1].price_from.nanos_per_hour(), 50_000_000);
    assert_eq!(found.machines[1].price_to.nanos_per_hour(), 100_000_000);
    let each: Vec<_> = (0..3).map(|at| found.of_life(at).map(|it| it.0.micros())).collect();
    assert_eq!(each, [Some(750_000), Some(2_000_000), None]);
}

#[test]
fn only_the_time_of_the_report_counts() {
    let lives = [life("a", machine("D4", "Spot"), 2 * HOUR, 5 * HOUR, false)];
    // Cut to a report from hour 4 on, as the ledger does it; the boot was before.
    let cut = [Life { seen_unix_ms: 4 * HOUR, ..lives[0].clone() }];
    let found = money(&cut, &[], 4 * HOUR);
    assert_eq!((found.total.billed_ms, found.total.boots_ms), (3_600_000, 0));
    assert_eq!(found.total.cost.to_string(), "0.050000");
    // A machine of which only its end is known is billed from there.
    let unborn = [Life { born_unix_ms: None, ..lives[0].clone() }];
    assert_eq!(money(&unborn, &[], 0).total.billed_ms, 3 * 3_600_000);
}

#[test]
fn work_lost_to_an_eviction_costs_its_share_of_the_machine_and_regular_ones_need_no_more() {
    let end = 12 * HOUR;
    let lives = [
        life("a", machine("D4", "Spot"), 11 * HOUR, end, true),
        life("b", machine("D4", "Spot"), 11 * HOUR, end, false),
    ];
    // Four jobs lost 80 minutes together: 20 minutes of the machine, at 0.10.
    let interruptions = [
        death("a", end, 3, 60 * MINUTE.unsigned_abs()),
        death("a", end - MINUTE, 1, 20 * MINUTE.unsigned_abs()),
        // A process of it that died long before, and a machine that was not evicted.
        death("a", end - 30 * MINUTE, 1, 9 * MINUTE.unsigned_abs()),
        death("b", end, 1, 9 * MINUTE.unsigned_abs()),
    ];
    let found = money(&lives, &interruptions, 0);
    assert_eq!((found.total.lost_ms, found.total.lost.to_string()), (20 * 60_000, "0.033333".to_owned()));
    // Two machines of 66 minutes, without 20 minutes: 112 at 0.20.
    assert_eq!(found.total.regular.to_string(), "0.373333");
    // No more is lost than there was.
    let all = [death("a", end, 0, u64::MAX)];
    let found = money(&lives[..1], &all, 0);
    assert_eq!((found.total.lost_ms, found.total.regular), (found.total.billed_ms, Cost::default()));
    assert!(found.total.saved_micros < 0, "all was lost, so Spot cost more");
}

#[test]
fn what_has_no_price_is_in_no_sum_and_said() {
    let lives = [
        life("a", machine("", "Spot"), HOUR, 2 * HOUR, false),
        life("b", machine("D8", "Spot"), HOUR, 2 * HOUR, false),
        life("c", machine("D4", ""), HOUR, 2 * HOUR, false),
        life("d", machine("D4", "SpotPlus"), HOUR, 2 * HOUR, false),
        life("e", machine("D4", "Low"), HOUR, 2 * HOUR, false),
    ];
    let found = money(&lives, &[], 0);
    assert_eq!((found.total.machines, found.unpriced.iter().map(|it| it.machines).sum::<u64>()), (1, 4));
    let why: Vec<_> = found.unpriced.iter().map(|it| (it.why, it.machines, it.billed_ms / 60_000)).collect();
    assert_eq!(
        why,
        [
            ("its size or region is unknown", 1, 66),
            ("whether it is Spot is unknown", 1, 66),
            ("whether it is Spot is unknown", 1, 66),
            ("there is no price of its size and region", 1, 66),
        ]
    );
}

#[test]
fn times_of_a_damaged_entry_break_nothing() {
    let mut damaged = life("a", machine("D4", "Spot"), 0, i64::MAX, true);
    damaged.born_unix_ms = Some(i64::MIN);
    let found = money(&[damaged], &[death("a", i64::MAX, 1, u64::MAX)], i64::MIN);
    assert_eq!(found.total.machines, 1);
}

#[test]
fn json_has_exact_numbers() {
    let lives = [
        life("a", machine("D4", "Spot"), HOUR, 2 * HOUR, false),
        life("b", machine("", ""), HOUR, 2 * HOUR, false),
    ];
    insta::assert_json_snapshot!(serde_json::to_value(money(&lives, &[], 0)).expect("JSON"));
}

#[test]
fn what_was_saved_is_of_the_sums_and_not_of_rounded_machines() {
    // A machine of 10 ms costs 0.139 millionths, and 0.556 as a regular one, which is one when it is rounded.
    let lives: Vec<_> = (0..1_000)
        .map(|number| Life {
            born_unix_ms: None,
            ..life(&number.to_string(), machine("D4", "Spot"), 0, 10, false)
        })
        .collect();
    let total = money(&lives, &[], 0).total;
    assert_eq!((total.cost.micros(), total.regular.micros(), total.saved_micros), (139, 556, 417));
}

#[test]
fn what_was_saved_of_less_than_a_millionth_is_not_shown_as_nothing() {
    for (cost, regular, saved, shown) in [(1, 5, 0, 1), (5, 1, 0, -1), (3, 3, 0, 0), (1_000, 5_000, 4, 4)] {
        let [cost, regular] = [cost, regular].map(Cost::from_nanos);
        let sums = Sums { cost, regular, ..Sums::default() }.with_saved();
        assert_eq!((sums.saved_micros, sums.saved_micros_shown()), (saved, shown));
    }
}
