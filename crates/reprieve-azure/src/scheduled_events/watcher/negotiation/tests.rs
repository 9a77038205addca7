//! Services that support some of the versions, and the version that ends up in use.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

use ApiVersion::{V2017_03_01, V2019_01_01, V2020_07_01, V2024_07_09};

/// A service that supports some versions. Once a second it gets a poll and then a probe.
struct Service {
    negotiation: Negotiation,
    now: Instant,
    known: BTreeSet<ApiVersion>,
    polled: Vec<ApiVersion>,
    probed: Vec<ApiVersion>,
    errors: usize,
}

impl Service {
    fn with(known: impl IntoIterator<Item = ApiVersion>) -> Self {
        let now = Instant::now();
        Self {
            negotiation: Negotiation::from(ApiVersion::NEWEST, now),
            now,
            known: known.into_iter().collect(),
            polled: Vec::new(),
            probed: Vec::new(),
            errors: 0,
        }
    }

    /// Advances the time; returns the version in use.
    fn seconds(&mut self, seconds: u64) -> ApiVersion {
        for _ in 0..seconds {
            let version = self.negotiation.version();
            self.polled.push(version);
            if self.known.contains(&version) {
                self.negotiation.accepted(version, self.now);
            } else if self.negotiation.refused(version, self.now, self.now) == Refusal::Counts {
                self.errors += 1;
            }
            if let Some(version) = self.negotiation.next_probe(self.now) {
                self.probed.push(version);
                if self.known.contains(&version) {
                    self.negotiation.accepted(version, self.now);
                }
            }
            self.now += Duration::from_secs(1);
        }
        self.negotiation.version()
    }
}

#[test]
fn the_newest_version_is_tried_first_and_kept() {
    let mut service = Service::with(ApiVersion::ALL);
    assert_eq!(service.seconds(10_000), V2024_07_09);
    assert!(service.polled.iter().all(|version| *version == V2024_07_09));
    assert!(service.probed.is_empty(), "nothing is newer");
    assert_eq!(service.errors, 0);
}

#[test]
fn a_refused_version_falls_back_to_the_next_older_without_trouble() {
    let mut service = Service::with(ApiVersion::ALL.into_iter().filter(|version| *version <= V2020_07_01));
    assert_eq!(service.seconds(2), V2020_07_01);
    assert_eq!(service.polled, [V2024_07_09, V2020_07_01]);
    let mut oldest = Service::with([V2017_03_01]);
    assert_eq!(oldest.seconds(8), V2017_03_01);
    assert_eq!((service.errors, oldest.errors), (0, 0));
}

#[test]
fn newer_versions_are_probed_soon_after_and_then_every_hour() {
    let mut service = Service::with([V2020_07_01]);
    service.seconds(3 * 3600);
    assert_eq!(service.probed, [V2024_07_09; 3]);
    assert_eq!(service.polled.iter().filter(|version| **version != V2020_07_01).count(), 1, "polls go on");
    service.known.insert(V2024_07_09);
    assert_eq!(service.seconds(3600), V2024_07_09);
    assert_eq!(service.errors, 0);
}

#[test]
fn a_probe_that_was_not_answered_is_repeated_after_a_minute() {
    let mut service = Service::with([V2020_07_01]);
    service.seconds(15);
    assert_eq!(service.probed.len(), 1);
    service.negotiation.probed_in_vain(service.now);
    service.seconds(59);
    assert_eq!(service.probed.len(), 1);
    service.seconds(3);
    assert_eq!(service.probed.len(), 2);
}

#[test]
fn when_all_refuse_the_newest_is_kept_and_it_counts_as_trouble_until_one_is_answered() {
    let mut service = Service::with([]);
    assert_eq!(service.seconds(8), V2024_07_09);
    assert_eq!(service.errors, 1);
    assert_eq!(service.seconds(20), V2024_07_09);
    assert_eq!(service.errors, 21);
    service.known.insert(V2019_01_01);
    assert_eq!(service.seconds(9), V2019_01_01);
}

#[test]
fn a_version_that_worked_is_kept_while_everything_is_refused_for_a_while() {
    for outage in 1..20 {
        let mut service = Service::with(ApiVersion::ALL);
        service.seconds(100);
        let known = std::mem::take(&mut service.known);
        service.seconds(outage);
        assert_eq!(service.errors, usize::try_from(outage).expect("a small number"));
        service.known = known;
        assert_eq!(service.seconds(2), V2024_07_09, "after {outage} s");
        assert!(service.polled.iter().all(|version| *version == V2024_07_09));
    }
}

#[test]
fn a_version_that_is_withdrawn_for_good_is_left_for_the_newest_that_works() {
    let mut service = Service::with(ApiVersion::ALL);
    service.seconds(100);
    service.known.remove(&V2024_07_09);
    assert_eq!(service.seconds(3), V2020_07_01);
    service.known.retain(|version| *version <= V2019_01_01);
    assert_eq!(service.seconds(10), V2019_01_01);
}

#[test]
fn a_refusal_that_was_long_under_way_does_not_speak_against_a_version_when_another_is_answered() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let mut negotiation = Negotiation::from(ApiVersion::NEWEST, began);
    negotiation.accepted(V2024_07_09, at(1));
    assert_eq!(negotiation.refused(V2024_07_09, at(2), at(2)), Refusal::Counts);
    // All versions work again when this probe is answered; the poll before it has been waiting for
    // its refusal.
    negotiation.accepted(V2017_03_01, at(4));
    assert_eq!(negotiation.refused(V2024_07_09, at(3), at(5)), Refusal::Counts);
    assert_eq!(negotiation.refused(V2024_07_09, at(4), at(5)), Refusal::Counts);
    assert_eq!(negotiation.version(), V2024_07_09);
    assert_eq!(negotiation.refused(V2024_07_09, at(5), at(5)), Refusal::Counts);
    assert_eq!(negotiation.version(), V2017_03_01);
}

#[test]
fn a_version_that_hides_evictions_is_left_at_once_when_the_refusals_before_it_have_passed() {
    for outage in 1..20 {
        let mut service = Service::with([]);
        service.seconds(outage);
        service.known = ApiVersion::ALL.into();
        let version = service.seconds(2);
        assert!(version.knows(&EventType::Preempt), "{version} after {outage} s");
        assert_eq!(service.seconds(12), V2024_07_09, "after {outage} s");
    }
}

#[test]
fn a_probe_that_is_refused_while_all_are_is_no_reason_to_wait_an_hour() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let mut negotiation = Negotiation::from(ApiVersion::NEWEST, began);
    assert!(negotiation.accepted(V2020_07_01, at(1)));
    assert_eq!(negotiation.next_probe(at(11)), Some(V2024_07_09));
    // The poll that was sent with the probe is refused too.
    assert_eq!(negotiation.refused(V2020_07_01, at(11), at(12)), Refusal::Counts);
    assert!(!negotiation.accepted(V2020_07_01, at(13)));
    assert_eq!(negotiation.next_probe(at(22)), None);
    assert_eq!(negotiation.next_probe(at(23)), Some(V2024_07_09));
    assert_eq!(negotiation.next_probe(at(3000)), None, "the next in an hour");
}

#[test]
fn a_pinned_version_is_never_left() {
    let mut negotiation = Negotiation::pinned(V2019_01_01, Instant::now());
    for _ in 0..20 {
        assert_eq!(negotiation.refused(V2019_01_01, Instant::now(), Instant::now()), Refusal::Counts);
        assert_eq!(negotiation.next_probe(Instant::now() + PROBE_EVERY), None);
    }
    assert!(!negotiation.accepted(V2019_01_01, Instant::now()));
    assert_eq!(negotiation.version(), V2019_01_01);
}

proptest! {
    #[test]
    fn whatever_happened_the_newest_version_that_works_is_in_use_within_two_hours(
        changes in proptest::collection::vec((proptest::sample::subsequence(ApiVersion::ALL.to_vec(), 0..=8), 0_u64..40), 0..8),
        last in proptest::sample::subsequence(ApiVersion::ALL.to_vec(), 1..=8),
    ) {
        let mut service = Service::with([]);
        for (known, seconds) in changes {
            service.known = known.into_iter().collect();
            service.seconds(seconds);
        }
        service.known = last.into_iter().collect();
        let soon = service.seconds(20);
        prop_assert!(service.known.contains(&soon), "one that works is found in 20 s");
        let in_the_end = service.seconds(7200);
        prop_assert_eq!(Some(&in_the_end), service.known.last());
    }
}
