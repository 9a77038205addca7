//! The traces of this crate are read as their page describes them.

use reprieve_plan::Series;
use reprieve_plan::availability::{lives, losses};

const MINUTE_MS: u64 = 60_000;

#[track_caller]
fn check(text: &str, machines: u32, length_ms: u64) -> Series {
    let series = Series::parse(text).expect("a trace that is read");
    assert_eq!((series.most(), series.length_ms()), (machines, length_ms));
    series
}

#[test]
fn fleets_are_read() {
    let g4dn = check(include_str!("../traces/aws-g4dn-fleet.csv"), 24, 638 * MINUTE_MS);
    let p3 = check(include_str!("../traces/aws-p3-fleet.csv"), 32, 682 * MINUTE_MS);
    // Half of the fleet was there for most of the time, and all of it for little.
    assert!(g4dn.share(12) > 0.6 && g4dn.share(24) < 0.05, "{} {}", g4dn.share(12), g4dn.share(24));
    assert!(p3.share(16) > 0.8 && p3.share(32) < 0.3, "{} {}", p3.share(16), p3.share(32));
}

#[test]
fn lifetimes_are_read() {
    // 48 days, in 44 % of which any machine ran.
    let series = check(include_str!("../traces/gcp-lifetimes.csv"), 129, 4_166_803_000);
    assert!((series.share(1) - 0.44).abs() < 0.01, "{}", series.share(1));
}

#[test]
fn fleets_lose_machines_together() {
    let sum = |text| {
        let losses = losses(text).expect("a fleet that lost machines");
        let all: u32 = losses.iter().map(|loss| loss.lost).sum();
        (losses.len(), all, losses.iter().map(|loss| loss.lost).max())
    };
    assert_eq!(sum(include_str!("../traces/aws-g4dn-fleet.csv")), (48, 74, Some(5)));
    assert_eq!(sum(include_str!("../traces/aws-p3-fleet.csv")), (79, 167, Some(6)));
}

#[test]
fn half_of_the_lives_were_not_seen_to_end() {
    let lives = lives(include_str!("../traces/gcp-lifetimes.csv")).expect("lives");
    assert_eq!((lives.len(), lives.iter().filter(|life| life.evicted).count()), (1442, 717));
}
