//! The hour of the day to begin, if evictions depend on it by more than chance.

use std::collections::BTreeMap;
use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rate::in_an_hour;
use super::{Seen, in_hours, moments};
use crate::words::percent;

const HOUR_MS: i64 = 3_600_000;

/// The hours of a day.
const HOURS: usize = 24;

/// The shortest time that is compared with the rest of the day: single hours have few evictions.
const WINDOW_MIN: usize = 4;

/// The longest one: after that, little of the day is left to compare with.
const WINDOW_MAX: usize = 18;

/// How often the evictions of each day are turned, and the chance at which a difference is believed.
const TURNS: u32 = 1_999;
const CHANCE_MAX: f64 = 0.01;

/// Machines are not seen for longer: a time beyond that is one of a damaged entry.
const SEEN_MAX_MS: u64 = 400 * 24 * HOUR_MS.unsigned_abs();

/// The seed of these turns, so that the same data have the same answer.
const SEED: u64 = 20;

/// The part of the day in which the fewest machines were evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestHour {
    /// The hour at which it begins, in UTC: 0 to 23.
    pub hour: u8,
    /// Its length in hours.
    pub hours: u8,
    /// The chance that a machine is evicted in an hour of it.
    pub share: f64,
    /// The same in the rest of the day.
    pub otherwise: f64,
    /// The chance of such a difference without any pattern.
    pub chance: f64,
}

/// The evictions and the time of machines of one day, by the hour.
#[derive(Clone, Debug, Default)]
struct Day {
    seen_hours: [f64; HOURS],
    /// The hours of its moments, and how many machines went in each.
    moments: Vec<(usize, u32)>,
}

impl BestHour {
    /// The best hour to begin a run of this length. `None` unless the best part of the day is better by more than
    /// chance, for runs of more than 18 hours, and where the hours of that part were not all seen.
    ///
    /// The part is as long as the run, four hours at least. What is tested is the claim itself: the shortfall of
    /// evictions in the best part. It is compared with the best part after the evictions of each day were turned by a
    /// random number of hours, more likely to where more machines were. So machines that go together stay together,
    /// and one bad afternoon is one afternoon, however many moments it had.
    #[must_use]
    pub fn of(seen: &[Seen], run_ms: u64) -> Option<Self> {
        let window = window(run_ms)?;
        let days: Vec<Day> = days(seen).into_values().collect();
        let mut time = [0.0; HOURS];
        for day in &days {
            for (sum, seen) in time.iter_mut().zip(&day.seen_hours) {
                *sum += seen;
            }
        }
        let mut lost = [0.0; HOURS];
        for (hour, count) in days.iter().flat_map(|day| &day.moments) {
            lost[*hour] += f64::from(*count);
        }
        let parts = Parts::new(lost.iter().sum(), &time, window);
        let (start, found) = parts.best(&lost)?;
        let chance = chance(&days, &parts, found)?;
        let (inside, of_inside) = (part(&lost, start, window), part(&time, start, window));
        let (outside, of_outside) = (lost.iter().sum::<f64>() - inside, time.iter().sum::<f64>() - of_inside);
        Some(Self {
            hour: u8::try_from(start).unwrap_or_default(),
            hours: u8::try_from(window).unwrap_or_default(),
            share: in_an_hour(inside / of_inside),
            // Without time outside there would be no shortfall inside.
            otherwise: in_an_hour(outside / of_outside),
            chance,
        })
    }
}

impl fmt::Display for BestHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hour, hours, share, otherwise, chance } = self;
        write!(
            f,
            "begin at {hour:02}:00 UTC: {} % of the machines an hour were evicted in the {hours} h from then on, {} % in \
             the rest of the day (without a pattern, such a difference has a chance of {} %)",
            percent(*share),
            percent(*otherwise),
            (chance * 10_000.0).round() / 100.0
        )
    }
}

/// The length of the part in hours.
fn window(run_ms: u64) -> Option<usize> {
    let whole = usize::try_from(run_ms.div_ceil(HOUR_MS.unsigned_abs())).ok()?;
    (whole <= WINDOW_MAX).then_some(whole.max(WINDOW_MIN))
}

/// The days on which machines were seen.
fn days(seen: &[Seen]) -> BTreeMap<i64, Day> {
    let mut days: BTreeMap<i64, Day> = BTreeMap::new();
    for it in seen.iter().filter(|it| it.lived_ms() <= SEEN_MAX_MS) {
        let mut from = it.from_ms;
        while from < it.until_ms {
            let (day, hour) = day_and_hour(from);
            let end = (from.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS).min(it.until_ms);
            days.entry(day).or_default().seen_hours[hour] += in_hours(from.abs_diff(end));
            from = end;
        }
    }
    for (at, count) in moments(seen) {
        let (day, hour) = day_and_hour(at);
        days.entry(day).or_default().moments.push((hour, count));
    }
    days
}

fn day_and_hour(at_ms: i64) -> (i64, usize) {
    let hour = at_ms.div_euclid(HOUR_MS);
    (hour.div_euclid(24), usize::try_from(hour.rem_euclid(24)).unwrap_or_default())
}

/// The sum of a part of the day.
fn part(of: &[f64; HOURS], start: usize, window: usize) -> f64 {
    (start..start + window).map(|hour| of[hour % HOURS]).sum()
}

/// The parts of the day of one length, and how many evictions each would have at the mean rate.
struct Parts {
    window: usize,
    /// By the hour at which it begins; `None` for one of which an hour was not seen.
    expected: [Option<f64>; HOURS],
}

impl Parts {
    fn new(lost: f64, time: &[f64; HOURS], window: usize) -> Self {
        let all_time: f64 = time.iter().sum();
        let was_seen = |start: usize| (start..start + window).all(|hour| time[hour % HOURS] > 0.0);
        let expected = |start| was_seen(start).then(|| lost * part(time, start, window) / all_time);
        Self { window, expected: std::array::from_fn(expected) }
    }

    /// Where the best part begins, and by how many standard deviations of a count it has fewer evictions than expected.
    fn best(&self, lost: &[f64; HOURS]) -> Option<(usize, f64)> {
        let (mut best, mut inside): (Option<(usize, f64)>, f64) = (None, part(lost, 0, self.window));
        for (start, expected) in self.expected.iter().enumerate() {
            if let Some(expected) = expected.filter(|expected| *expected > 0.0) {
                let by = (expected - inside) / expected.sqrt();
                if best.is_none_or(|(_, best)| by > best) {
                    best = Some((start, by));
                }
            }
            inside += lost[(start + self.window) % HOURS] - lost[start];
        }
        best
    }
}

/// The chance that turned evictions have a part that is as good; `None` for one above [`CHANCE_MAX`].
fn chance(days: &[Day], parts: &Parts, found: f64) -> Option<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let struck = days.iter().filter(|day| !day.moments.is_empty());
    let turning: Vec<(&Day, [f64; HOURS])> = struck.map(|day| (day, day.weights())).collect();
    // The data themselves are one of the turns.
    let (mut as_good, all) = (1, f64::from(TURNS + 1));
    for _ in 0..TURNS {
        let mut lost = [0.0; HOURS];
        for (day, weights) in &turning {
            let by = drawn(weights, &mut random);
            for (hour, count) in &day.moments {
                lost[(hour + by) % HOURS] += f64::from(*count);
            }
        }
        // Rounding must not make an equal one worse.
        if parts.best(&lost).is_some_and(|(_, by)| by >= found - 1e-9) {
            as_good += 1;
        }
        if f64::from(as_good) / all > CHANCE_MAX {
            return None;
        }
    }
    Some(f64::from(as_good) / all)
}

impl Day {
    /// How likely its evictions would have come so many hours later: by the time of machines at each, as a geometric
    /// mean.
    fn weights(&self) -> [f64; HOURS] {
        let count = u32::try_from(self.moments.len()).unwrap_or(u32::MAX);
        std::array::from_fn(|by| {
            let logs = self.moments.iter().map(|(hour, _)| self.seen_hours[(hour + by) % HOURS].ln());
            (logs.sum::<f64>() / f64::from(count)).exp()
        })
    }
}

/// A number of hours, by these weights.
fn drawn(weights: &[f64; HOURS], random: &mut ChaCha8Rng) -> usize {
    let mut left = random.random::<f64>() * weights.iter().sum::<f64>();
    for (by, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return by;
        }
    }
    // Evictions at an hour without any time, of a clock that was wrong, stay where they are.
    0
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{BestHour, HOUR_MS, Seen};

    const RUN_MS: u64 = 4 * 3_600_000;

    /// A fleet of forty places over so many days.
    struct Fleet {
        days: i64,
        /// The chance of an eviction in an hour, by the hour of the day.
        alone: fn(i64) -> f64,
        /// The chance of a moment in an hour, which takes four of ten machines.
        moment: fn(i64) -> f64,
        /// Whether machines run at this hour.
        runs: fn(i64) -> bool,
        /// The chance that a day has a bad time of four hours, most of which have a moment.
        bad: f64,
    }

    const CALM: Fleet = Fleet { days: 28, alone: |_| 0.02, moment: |_| 0.0, runs: |_| true, bad: 0.0 };

    impl Fleet {
        fn seen(&self, number: u64) -> Vec<Seen> {
            let mut random = ChaCha8Rng::seed_from_u64(number);
            let (mut seen, mut since): (Vec<Seen>, [Option<i64>; 40]) = (Vec::new(), [None; 40]);
            let mut bad_from = None;
            for step in 0..self.days * 24 {
                let (hour, begin) = (step % 24, step * HOUR_MS);
                if hour == 0 {
                    bad_from = random.random_bool(self.bad).then(|| random.random_range(0..21));
                }
                let is_bad = bad_from.is_some_and(|from| (from..from + 4).contains(&hour));
                let chance = if is_bad { 0.7 } else { (self.moment)(hour) };
                let moment = random.random_bool(chance).then(|| begin + random.random_range(0..HOUR_MS));
                for slot in &mut since {
                    if !(self.runs)(hour) {
                        seen.extend(slot.take().map(|from_ms| Seen {
                            from_ms,
                            until_ms: begin,
                            evicted: false,
                        }));
                        continue;
                    }
                    let from_ms = *slot.get_or_insert(begin);
                    let end = if random.random_bool((self.alone)(hour)) {
                        Some(begin + random.random_range(0..HOUR_MS))
                    } else {
                        moment.filter(|_| random.random_bool(0.4))
                    };
                    if let Some(until_ms) = end.filter(|end| *end > from_ms) {
                        seen.push(Seen { from_ms, until_ms, evicted: true });
                        *slot = Some(until_ms);
                    }
                }
            }
            let until_ms = self.days * 24 * HOUR_MS;
            seen.extend(since.iter().flatten().map(|from| Seen { from_ms: *from, until_ms, evicted: false }));
            seen
        }

        /// The best hours of so many such fleets.
        fn found(&self, fleets: u64) -> Vec<BestHour> {
            (0..fleets).filter_map(|seed| BestHour::of(&self.seen(seed), RUN_MS)).collect()
        }
    }

    #[test]
    fn a_true_pattern_is_found() {
        let night = |hour: i64| (2..8).contains(&hour);
        let alone = Fleet { alone: |hour| if (2..8).contains(&hour) { 0.005 } else { 0.02 }, ..CALM };
        let together = Fleet {
            days: 60,
            alone: |_| 0.002,
            moment: |hour| if (2..8).contains(&hour) { 0.01 } else { 0.1 },
            ..CALM
        };
        for fleet in [alone, together] {
            let found = fleet.found(50);
            let right = found.iter().filter(|it| night(i64::from(it.hour)) && it.hour <= 5).count();
            assert!(found.len() >= 45 && right >= 40, "{} found, {right} of them right", found.len());
            assert!(found.iter().all(|it| it.share < it.otherwise && it.hours == 4));
        }
    }

    #[test]
    fn no_pattern_is_claimed_where_there_is_none() {
        let bursts = Fleet { alone: |_| 0.005, moment: |_| 0.05, ..CALM };
        let rare = Fleet { days: 7, alone: |_| 0.0005, moment: |_| 0.02, ..CALM };
        let bad_days = Fleet { alone: |_| 0.005, bad: 0.3, ..CALM };
        let by_day = Fleet { runs: |hour| (7..19).contains(&hour), moment: |_| 0.05, ..CALM };
        for (name, fleet) in
            [("alone", CALM), ("bursts", bursts), ("rare", rare), ("bad days", bad_days), ("by day", by_day)]
        {
            let claimed = fleet.found(100).len();
            assert!(claimed <= 5, "{name}: claimed in {claimed} of 100");
        }
    }

    #[test]
    fn what_was_not_seen_is_not_advised_and_long_runs_have_no_best_hour() {
        // Quiet from 7 on, but never seen before.
        let fleet = Fleet {
            runs: |hour| (7..19).contains(&hour),
            alone: |hour| if (7..11).contains(&hour) { 0.002 } else { 0.05 },
            ..CALM
        };
        let seen = fleet.seen(1);
        let found = BestHour::of(&seen, RUN_MS).expect("a pattern");
        assert_eq!((found.hour, found.hours), (7, 4));
        assert_eq!(BestHour::of(&seen, 19 * 3_600_000), None);
        assert_eq!(BestHour::of(&seen, u64::MAX), None);
        let damaged = [Seen { from_ms: i64::MIN, until_ms: i64::MAX, evicted: true }];
        assert_eq!(BestHour::of(&damaged, RUN_MS), None);
        assert_eq!((BestHour::of(&[], RUN_MS), BestHour::of(&CALM.seen(1)[..3], RUN_MS)), (None, None));
    }

    #[test]
    fn the_advice_is_one_sentence_with_its_chance() {
        let best = BestHour { hour: 2, hours: 6, share: 0.0104, otherwise: 0.0617, chance: 0.0005 };
        assert_eq!(
            best.to_string(),
            "begin at 02:00 UTC: 1 % of the machines an hour were evicted in the 6 h from then on, 6.2 % in the rest of \
             the day (without a pattern, such a difference has a chance of 0.05 %)"
        );
    }
}
