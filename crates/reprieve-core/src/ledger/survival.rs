//! How long machines live: the curve of Kaplan and Meier, with its band.
//!
//! A machine that still lives, or was last seen alive, counts as long as it was seen; one that was first seen when it
//! had lived for a while counts from that age on.
//!
//! Machines are taken back together, so that ten evictions of one moment tell hardly more than one. The band is drawn
//! from the moments of eviction: each weighs at random, by an exponential distribution, with all of its machines; and
//! so that few moments are not taken for all there are, there may have been one more, as large as the largest, that took
//! machines of any age. Before the first eviction that one is all there is: of n machines that live, the band begins at
//! 0.025^(1/n), as that of Clopper and Pearson does. It is the interval of Fay and Feuer (1997) for weighted sums of
//! rare events, applied to the cumulative hazard.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// How many curves are drawn for a band: enough for its 2.5 % and 97.5 % points.
const DRAWS: usize = 400;

/// The draws below the band, and above it.
const TAIL: usize = DRAWS / 40;

/// The seed of these draws, so that the same ledger has the same band each time.
const SEED: u64 = 19;

/// The most points of a curve.
const POINTS_MAX: usize = 200;

/// For how long a machine was seen, as ages in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// Its age when it was first seen.
    pub entered_ms: i64,
    /// Its age when it was evicted, or last seen.
    pub left_ms: i64,
    /// The number of the moment in which it was evicted; `None` if it was only not seen any longer.
    pub evicted_in: Option<usize>,
}

/// A point of a curve: the share of machines that live for longer than this.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// The age in milliseconds.
    pub age_ms: i64,
    /// The share.
    pub alive: f64,
    /// The lower end of the band in which the true share is with 95 %.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The curve of these machines, at each age at which one was evicted; empty if none was. Of more than 200 such ages,
/// every so many are left out.
#[must_use]
pub fn curve(spells: &[Spell]) -> Vec<Point> {
    let deaths = deaths(spells);
    let mut ages: Vec<i64> = deaths.iter().map(|death| death.age_ms).collect();
    ages.dedup();
    let stride = ages.len().div_ceil(POINTS_MAX).max(1);
    // The last one always stays: there the curve ends.
    let ages: Vec<i64> = ages.iter().copied().rev().step_by(stride).rev().collect();
    points(spells, &deaths, &ages)
}

/// The curve's points at these ages, which must be rising; without those at which no machine was seen. Without evictions
/// up to an age, all live, as far as so many machines can tell.
#[must_use]
pub fn curve_at(spells: &[Spell], ages_ms: &[i64]) -> Vec<Point> {
    let seen = Seen::of(spells);
    let ages: Vec<i64> = ages_ms.iter().copied().filter(|age| seen.at(*age) > 0).collect();
    points(spells, &deaths(spells), &ages)
}

/// The youngest age at which a machine was seen: the curve says nothing of what came before.
#[must_use]
pub(super) fn seen_from(spells: &[Spell]) -> i64 {
    Seen::of(spells).entered.first().copied().unwrap_or_default().max(0)
}

/// The ages at which machines were first seen, and last seen, each in order.
struct Seen {
    entered: Vec<i64>,
    left: Vec<i64>,
}

impl Seen {
    fn of(spells: &[Spell]) -> Self {
        let sorted = |age: fn(&Spell) -> i64| {
            let mut ages: Vec<_> = spells.iter().filter(|it| it.left_ms > it.entered_ms).map(age).collect();
            ages.sort_unstable();
            ages
        };
        Self { entered: sorted(|spell| spell.entered_ms), left: sorted(|spell| spell.left_ms) }
    }

    /// How many machines were seen at this age. One that was last seen then was; one that was first seen then was not.
    fn at(&self, age_ms: i64) -> usize {
        self.entered.partition_point(|at| *at < age_ms) - self.left.partition_point(|at| *at < age_ms)
    }
}

/// An eviction, with how many machines of its age there were.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Eviction {
    age_ms: i64,
    moment: usize,
    /// How many were evicted at this age.
    evicted: f64,
    /// How many could have been.
    at_risk: f64,
}

/// The evictions by age.
#[expect(clippy::cast_precision_loss, reason = "machines are fewer than 2^52")]
fn deaths(spells: &[Spell]) -> Vec<Eviction> {
    let seen = Seen::of(spells);
    let spells = spells.iter().filter(|it| it.left_ms > it.entered_ms);
    let mut evicted: Vec<_> = spells.filter_map(|spell| Some((spell.left_ms, spell.evicted_in?))).collect();
    evicted.sort_unstable();
    let eviction = |&(age_ms, moment): &(i64, usize)| {
        let here = evicted.partition_point(|it| it.0 <= age_ms) - evicted.partition_point(|it| it.0 < age_ms);
        Eviction { age_ms, moment, evicted: here as f64, at_risk: seen.at(age_ms) as f64 }
    };
    evicted.iter().map(eviction).collect()
}

fn points(spells: &[Spell], deaths: &[Eviction], ages: &[i64]) -> Vec<Point> {
    let one_more = one_more(&Seen::of(spells), deaths, ages);
    let (alive, drawn) = (alive(deaths, ages), drawn(deaths, ages, &one_more));
    let mut points = Vec::with_capacity(ages.len());
    for ((&age_ms, alive), Drawn { mut least, mut most }) in ages.iter().zip(alive).zip(drawn) {
        least.sort_by(f64::total_cmp);
        most.sort_by(f64::total_cmp);
        let (high, low) = ((-least[TAIL]).exp(), (-most[DRAWS - 1 - TAIL]).exp());
        points.push(Point { age_ms, alive, low: low.min(alive), high: high.max(alive) });
    }
    points
}

/// The cumulative hazard up to one age, in every draw.
#[derive(Debug, Clone, Default)]
struct Drawn {
    /// With the moments that there were.
    least: Vec<f64>,
    /// With one more.
    most: Vec<f64>,
}

/// The product of Kaplan and Meier up to each age.
fn alive(deaths: &[Eviction], ages: &[i64]) -> Vec<f64> {
    let mut deaths = deaths.chunk_by(|a, b| a.age_ms == b.age_ms).map(|of_age| of_age[0]).peekable();
    let mut alive = 1.0;
    let at = |age: &i64| {
        while let Some(Eviction { evicted, at_risk, .. }) = deaths.next_if(|death| death.age_ms <= *age) {
            alive *= (at_risk - evicted) / at_risk;
        }
        alive
    };
    ages.iter().map(at).collect()
}

/// Draws the cumulative hazard up to each age, with what one more moment might add there.
fn drawn(deaths: &[Eviction], ages: &[i64], one_more: &[f64]) -> Vec<Drawn> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut exponential = || {
        let uniform: f64 = random.random();
        -(1.0 - uniform).ln()
    };
    let moments = deaths.iter().map(|death| death.moment + 1).max().unwrap_or(0);
    let mut drawn = vec![Drawn::default(); ages.len()];
    for _ in 0..DRAWS {
        let weights: Vec<f64> = (0..moments).map(|_| exponential()).collect();
        let weight = exponential();
        let (mut hazard, mut deaths) = (0.0, deaths.iter().peekable());
        for ((age, one_more), Drawn { least, most }) in ages.iter().zip(one_more).zip(&mut drawn) {
            while let Some(death) = deaths.next_if(|death| death.age_ms <= *age) {
                hazard += weights[death.moment] / death.at_risk;
            }
            least.push(hazard);
            most.push(hazard + weight * one_more);
        }
    }
    drawn
}

/// How much another moment might add to the hazard up to each age: one that takes as many machines as the largest
/// did, or one before there was any, all of them at the age up to there at which they are fewest: at an eviction, or
/// there.
#[expect(clippy::cast_precision_loss, reason = "machines are fewer than 2^52")]
fn one_more(seen: &Seen, deaths: &[Eviction], ages: &[i64]) -> Vec<f64> {
    let mut sizes = vec![0_usize; deaths.iter().map(|death| death.moment + 1).max().unwrap_or(0)];
    for death in deaths {
        sizes[death.moment] += 1;
    }
    let size = sizes.into_iter().max().unwrap_or(1) as f64;
    let (mut fewest, mut deaths) = (f64::INFINITY, deaths.iter().peekable());
    let at = |age: &i64| {
        while let Some(death) = deaths.next_if(|death| death.age_ms <= *age) {
            fewest = fewest.min(death.at_risk);
        }
        (size / fewest.min(seen.at(*age) as f64)).min(1.0)
    };
    ages.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(entered_ms: i64, left_ms: i64, evicted_in: Option<usize>) -> Spell {
        Spell { entered_ms, left_ms, evicted_in }
    }

    fn alive(spells: &[Spell]) -> Vec<(i64, f64)> {
        let rounded = |share: f64| (share * 10_000.0).round() / 10_000.0;
        curve(spells).iter().map(|point| (point.age_ms, rounded(point.alive))).collect()
    }

    /// The example of Kaplan and Meier's paper of 1958, with months as milliseconds: deaths at 0.8, 3.1, 5.4, 9.2;
    /// losses at 1.0, 2.7, 7.0, 12.1.
    #[test]
    fn the_curve_is_that_of_the_paper() {
        let deaths = [8, 31, 54, 92];
        let losses = [10, 27, 70, 121];
        let spells: Vec<_> = (0..)
            .zip(deaths)
            .map(|(moment, age)| spell(0, age, Some(moment)))
            .chain(losses.map(|age| spell(0, age, None)))
            .collect();
        // 7/8; × 4/5; × 3/4; × 1/2.
        assert_eq!(alive(&spells), [(8, 0.875), (31, 0.7), (54, 0.525), (92, 0.2625)]);
    }

    #[test]
    fn who_is_lost_at_the_age_of_a_death_was_at_risk_and_who_enters_then_was_not() {
        assert_eq!(alive(&[spell(0, 5, Some(0)), spell(0, 5, None)]), [(5, 0.5)]);
        assert_eq!(alive(&[spell(0, 5, Some(0)), spell(0, 9, None), spell(5, 9, None)]), [(5, 0.5)]);
        // Two of three at 4; then one of two, of which the other entered late.
        let late = [spell(0, 4, Some(0)), spell(1, 4, Some(0)), spell(0, 8, Some(1)), spell(6, 9, None)];
        assert_eq!(alive(&late), [(4, 0.3333), (8, 0.1667)]);
    }

    #[test]
    fn nothing_that_ended_and_spells_of_no_length_have_no_curve() {
        assert_eq!(alive(&[]), []);
        assert_eq!(alive(&[spell(0, 9, None), spell(4, 4, Some(0)), spell(5, 2, Some(1))]), []);
    }

    /// The bounds of Clopper and Pearson for no eviction among n machines: 0.025^(1/n).
    #[test]
    fn machines_that_all_live_tell_as_much_as_they_are_many() {
        for (machines, low) in [(1, 0.025), (12, 0.735), (400, 0.991)] {
            let living: Vec<_> = (0..machines).map(|_| spell(2, 9, None)).collect();
            let [point] = curve_at(&living, &[1, 3, 10])[..] else { panic!("seen at one of these ages") };
            assert_eq!((point.age_ms, point.alive, point.high), (3, 1.0, 1.0));
            assert!((point.low - low).abs() < 0.03, "{machines}: {point:?}");
        }
    }

    /// Ten of twenty at one moment: the hazard is 1/2. A hand finds 0.5 × 0.0253 and 0.5 × 5.572, the 2.5 % point of
    /// the exponential distribution and the 97.5 % point of the sum of two.
    #[test]
    fn one_moment_tells_little_however_many_machines_it_took() {
        let together: Vec<_> = (0..20).map(|number| spell(0, 5, (number < 10).then_some(0))).collect();
        let point = curve_at(&together, &[5])[0];
        assert!((point.alive - 0.5).abs() < 1e-9);
        assert!((point.high - (-0.5_f64 * 0.0253).exp()).abs() < 0.01, "{point:?}");
        assert!((point.low - (-0.5_f64 * 5.572).exp()).abs() < 0.05, "{point:?}");
        let alone: Vec<_> =
            (0..20_usize).map(|number| spell(0, 5, (number < 10).then_some(number))).collect();
        let alone = curve_at(&alone, &[5])[0];
        // The same hazard from ten moments: 10 × 0.05, from 0.05 × 4.795 to 0.05 × 18.39.
        assert!((alone.high - (-0.05_f64 * 4.795).exp()).abs() < 0.05, "{alone:?}");
        assert!((alone.low - (-0.05_f64 * 18.39).exp()).abs() < 0.05, "{alone:?}");
    }

    #[test]
    fn a_long_curve_is_thinned_to_its_end() {
        let spells: Vec<_> =
            (0..1_000_usize).zip(1..).map(|(moment, age)| spell(0, age, Some(moment))).collect();
        let points = curve(&spells);
        assert_eq!((points.len(), points.last().map(|last| last.age_ms)), (200, Some(1_000)));
        assert_eq!(points, curve(&spells), "the same each time");
    }

    /// Fleets of which machines end alone at a known rate, and together at moments that strike a part of those that
    /// live. The true share alive at an age is e^(−rate·age).
    #[test]
    fn the_band_holds_the_true_curve_in_nine_of_ten_fleets() {
        const HOUR: f64 = 3_600_000.0;
        let ages = [1, 6, 12].map(|hours| hours * 3_600_000);
        let mut held = [0; 3];
        for seed in 0..200 {
            let (spells, rate) = fleet(seed);
            for ((point, age), held) in curve_at(&spells, &ages).iter().zip([1.0, 6.0, 12.0]).zip(&mut held) {
                let truth = (-rate * age * HOUR).exp();
                *held += u32::from((point.low..=point.high).contains(&truth));
            }
        }
        assert!(held.iter().all(|held| *held >= 180), "of 200: {held:?}");
    }

    /// Twelve machines that end alone, after twenty hours in the mean, each watched for one to five days.
    #[test]
    fn the_band_holds_the_true_curve_in_nine_of_ten_small_fleets() {
        const HOUR: f64 = 3_600_000.0;
        let hours = [1.0, 3.0, 6.0, 12.0];
        let ages = hours.map(|hours| hours * HOUR);
        let mut held = [0; 4];
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let machine = |number: usize| {
                let (watched, uniform): (f64, f64) = (24.0 + 96.0 * random.random::<f64>(), random.random());
                let life = -(1.0 - uniform).ln() * 20.0;
                #[expect(clippy::cast_possible_truncation, reason = "days in milliseconds")]
                spell(0, (life.min(watched) * HOUR) as i64, (life < watched).then_some(number))
            };
            let spells: Vec<_> = (0..12).map(machine).collect();
            #[expect(clippy::cast_possible_truncation, reason = "hours in milliseconds")]
            let points = curve_at(&spells, &ages.map(|age| age as i64));
            assert_eq!(points.len(), 4, "seed {seed}");
            for ((point, hours), held) in points.iter().zip(hours).zip(&mut held) {
                *held += u32::from((point.low..=point.high).contains(&(-hours / 20.0_f64).exp()));
            }
        }
        assert!(held.iter().all(|held| *held >= 180), "of 200: {held:?}");
    }

    /// Forty slots, each with a new machine when one is gone, for three days.
    fn fleet(seed: u64) -> (Vec<Spell>, f64) {
        const DAYS: f64 = 3.0 * 24.0 * 3_600_000.0;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (alone, moments, share) = (1.0 / 40.0, 1.0 / 8.0, 0.4);
        let mut wait = |rate_per_hour: f64| {
            let uniform: f64 = random.random();
            -(1.0 - uniform).ln() / rate_per_hour * 3_600_000.0
        };
        let (mut at, mut struck) = (0.0, Vec::new());
        while at < DAYS {
            at += wait(moments);
            struck.push(at);
        }
        let mut alone_at: Vec<Vec<f64>> = Vec::new();
        for _ in 0..40 {
            let (mut at, mut ends) = (0.0, Vec::new());
            while at < DAYS {
                at += wait(alone);
                ends.push(at);
            }
            alone_at.push(ends);
        }
        let mut spells = Vec::new();
        let mut moment = struck.len();
        for ends in alone_at {
            let mut all: Vec<(f64, usize)> = Vec::new();
            for (number, &at) in struck.iter().enumerate() {
                if random.random::<f64>() < share {
                    all.push((at, number));
                }
            }
            for at in ends {
                all.push((at, moment));
                moment += 1;
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut born = 0.0;
            for (at, number) in all {
                let evicted_in = (at < DAYS).then_some(number);
                #[expect(clippy::cast_possible_truncation, reason = "days in milliseconds")]
                spells.push(spell(0, (at.min(DAYS) - born) as i64, evicted_in));
                born = at;
                if at >= DAYS {
                    break;
                }
            }
        }
        (spells, (alone + moments * share) / 3_600_000.0)
    }
}
