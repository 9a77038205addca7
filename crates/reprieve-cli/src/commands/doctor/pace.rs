//! Measured round trips against the lease and the drain's budget.

use std::time::Duration;

use reprieve::worker::{Settings, releasable};

use super::finding::{Finding, ms_figure};
use crate::format::{count, duration};

/// The renewals that should fit into the third of a lease after which one is due.
const EASE: u32 = 10;

/// A worker's longest wait for one renewal; it waits at most a sixth of the lease.
const RENEWAL_MAX: Duration = Duration::from_secs(10);

/// The most messages that a worker reads ahead from a store in Azure.
const READ_AHEAD_MAX: usize = 32;

/// The findings `round trip`, `lease` and `drain`, from the latencies of renewals; `why` is the
/// reason when there are none.
pub(super) fn judged(settings: &Settings, trips: &[Duration], why: &str) -> Vec<Finding> {
    let mut sorted = trips.to_vec();
    sorted.sort_unstable();
    let Some(longest) = sorted.last().copied() else {
        return ["round trip", "lease", "drain"].map(|name| Finding::skipped(name, why)).into();
    };
    let (p50, p95) = (percentile(&sorted, 50), percentile(&sorted, 95));
    let seen = format!(
        "a renewal takes {} (median), {} (95th percentile), {} (max), {} renewals",
        duration(p50),
        duration(p95),
        duration(longest),
        sorted.len()
    );
    let round_trip = Finding::ok("round trip", seen)
        .with("samples", sorted.len())
        .with("p50_ms", ms_figure(p50))
        .with("p95_ms", ms_figure(p95))
        .with("max_ms", ms_figure(longest));
    vec![round_trip, lease(settings, p95), drain(settings, p95)]
}

fn lease(settings: &Settings, p95: Duration) -> Finding {
    let lease = settings.lease;
    let (every, patience) = (lease / 3, (lease / 6).min(RENEWAL_MAX));
    let seen =
        format!("{} long, renewed every {}, which takes {}", duration(lease), duration(every), duration(p95));
    let enough = Duration::from_secs((p95 * EASE * 3).as_secs() + 1);
    let finding = if p95 >= RENEWAL_MAX / 2 {
        Finding::problem("lease", seen, "use a nearer store: no lease is long enough for one as slow as this")
    } else if p95 >= patience {
        let seen =
            format!("{seen}; a worker cancels the job when a renewal takes over {}", duration(patience));
        Finding::problem(
            "lease",
            seen,
            format!("use --lease {}s or longer, or a nearer store", enough.as_secs()),
        )
    } else if p95 * EASE > every {
        let cure = format!("use --lease {}s or longer, or a nearer store", enough.as_secs());
        Finding::warning("lease", seen, cure)
    } else {
        Finding::ok("lease", seen)
    };
    finding.with("lease_ms", ms_figure(lease)).with("renewed_every_ms", ms_figure(every))
}

fn drain(settings: &Settings, p95: Duration) -> Finding {
    let (budget, concurrency) = (settings.budget, settings.concurrency);
    let most = releasable(budget, p95);
    let seen = format!(
        "can release {} within its budget of {}; {concurrency} run at once here",
        count(u64::try_from(most).unwrap_or(u64::MAX), "job"),
        duration(budget)
    );
    let finding = if most < concurrency {
        let seen = format!("{seen}, so a worker receives at most {most}");
        Finding::warning("drain", seen, "use a longer --budget, a lower --concurrency, or a nearer store")
    } else if most < concurrency + READ_AHEAD_MAX {
        Finding::ok("drain", format!("{seen}; it reads ahead fewer than it could"))
    } else {
        Finding::ok("drain", seen)
    };
    finding.with("budget_ms", ms_figure(budget)).with("releasable", most).with("concurrency", concurrency)
}

/// The least value that so many of a hundred do not exceed.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn states(settings: &Settings, trip: Duration) -> [State; 3] {
        let findings = judged(settings, &[trip; 20], "");
        [0, 1, 2].map(|at| findings[at].state)
    }

    #[test]
    fn a_slow_store_is_weighed_against_the_lease_and_the_budget() {
        use State::{Ok, Problem, Warning};
        let settings = Settings { concurrency: 64, ..Settings::default() };
        let short = Settings {
            lease: Duration::from_secs(1),
            budget: Duration::from_millis(600),
            ..settings.clone()
        };
        let many = Settings { concurrency: 4_096, ..settings.clone() };
        for (settings, trip_ms, wanted) in [
            (&settings, 5, [Ok, Ok, Ok]),
            (&settings, 1_900, [Ok, Ok, Ok]),
            (&settings, 2_100, [Ok, Warning, Ok]),
            (&settings, 6_000, [Ok, Problem, Warning]),
            (&short, 5, [Ok, Ok, Ok]),
            (&short, 40, [Ok, Warning, Ok]),
            (&short, 200, [Ok, Problem, Ok]),
            (&short, 400, [Ok, Problem, Warning]),
            (&many, 100, [Ok, Ok, Warning]),
        ] {
            let trip = Duration::from_millis(trip_ms);
            assert_eq!(states(settings, trip), wanted, "{trip_ms} ms with a lease of {:?}", settings.lease);
        }
    }

    #[test]
    fn the_lease_that_is_advised_is_one_that_is_not_warned_of() {
        for trip_ms in [40, 300, 2_100, 4_900] {
            let trip = Duration::from_millis(trip_ms);
            let settings = Settings { lease: Duration::from_secs(1), ..Settings::default() };
            let cure = lease(&settings, trip).cure.expect("a cure");
            let advised = cure.split(' ').nth(2).and_then(|word| word.strip_suffix('s')).expect("seconds");
            let settings =
                Settings { lease: Duration::from_secs(advised.parse().expect("seconds")), ..settings };
            assert_eq!(lease(&settings, trip).state, State::Ok, "{trip_ms} ms: {cure}");
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<_> = (1..=20).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(10));
        assert_eq!(percentile(&sorted, 95), Duration::from_millis(19));
        assert_eq!(percentile(&sorted[..1], 95), Duration::from_millis(1));
        assert_eq!(percentile(&[], 95), Duration::ZERO);
    }

    #[test]
    fn without_round_trips_nothing_is_judged() {
        let findings = judged(&Settings::default(), &[], "no lease could be renewed");
        assert!(
            findings.iter().all(|one| one.state == State::Skipped && one.seen == "no lease could be renewed")
        );
        assert_eq!(findings.len(), 3);
    }
}
