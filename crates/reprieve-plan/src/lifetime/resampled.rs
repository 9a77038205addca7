//! Lives drawn from a trace by its survival curve, which takes those in that were not seen to end.

use crate::availability::Life;

/// The survival curve of lives (Kaplan and Meier, 1958), to draw from.
///
/// Beyond the longest life the curve says nothing: a draw there is a machine that lives on.
#[derive(Clone, Debug, PartialEq)]
pub struct Resampled {
    /// Ages at which machines were evicted, rising, with the share that lived on after it, falling.
    points: Vec<(u64, f64)>,
}

impl Resampled {
    /// The curve of `lives`. Without an eviction among them, machines live on always.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of machines")]
    pub fn new(lives: &[Life]) -> Self {
        let mut sorted = lives.to_vec();
        // A machine that was last seen at an age was there when others of that age were evicted.
        sorted.sort_unstable_by_key(|life| (life.lived_ms, !life.evicted));
        let (mut points, mut share): (Vec<(u64, f64)>, f64) = (Vec::new(), 1.0);
        for (index, life) in sorted.iter().enumerate().filter(|(_, life)| life.evicted) {
            share *= 1.0 - 1.0 / (sorted.len() - index) as f64;
            match points.last_mut() {
                Some((age_ms, left)) if *age_ms == life.lived_ms => *left = share,
                _ => points.push((life.lived_ms, share)),
            }
        }
        Self { points }
    }

    /// The age at eviction of the machine of which the share `rank` lives longer.
    pub(super) fn draw_ms(&self, rank: f64) -> Option<u64> {
        let index = self.points.partition_point(|(_, share)| *share > rank);
        self.points.get(index).map(|(age_ms, _)| (*age_ms).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Resampled;
    use crate::availability::Life;

    fn life(lived_ms: u64, evicted: bool) -> Life {
        Life { lived_ms, evicted }
    }

    #[test]
    fn without_censoring_every_life_is_as_likely() {
        let curve = Resampled::new(&[30, 10, 40, 20].map(|age| life(age, true)));
        let drawn = [0.95, 0.7, 0.4, 0.1].map(|rank| curve.draw_ms(rank));
        assert_eq!(drawn, [Some(10), Some(20), Some(30), Some(40)]);
    }

    #[test]
    fn a_censored_life_counts_until_it_was_last_seen() {
        // Of four one goes at 10, of the two that are left at 30 one: a half of three quarters.
        let curve = Resampled::new(&[life(10, true), life(20, false), life(30, true), life(40, false)]);
        assert_eq!(curve.draw_ms(0.8), Some(10));
        assert_eq!(curve.draw_ms(0.74), Some(30));
        assert_eq!(curve.draw_ms(0.38), Some(30));
        assert_eq!(curve.draw_ms(0.37), None, "longer than anything that was seen");
    }

    #[test]
    fn of_one_age_those_that_were_evicted_go_first() {
        let curve = Resampled::new(&[life(10, false), life(10, true)]);
        assert_eq!((curve.draw_ms(0.6), curve.draw_ms(0.4)), (Some(10), None));
    }

    #[test]
    fn lives_without_an_eviction_go_on() {
        assert_eq!(Resampled::new(&[life(10, false)]).draw_ms(0.0), None);
    }
}
