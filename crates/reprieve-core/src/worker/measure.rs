//! Recent measurements on which the worker bases decisions: means and percentiles.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex;

/// Over about how long a [`Rate`] counts.
const RATE_OVER: Duration = Duration::from_secs(4);

/// How many of the latest values are kept.
const REMEMBERED: usize = 64;

/// The latest durations of an operation, without those that are too old.
#[derive(Debug)]
pub(crate) struct Recent {
    values: Mutex<Values>,
    age_max: Duration,
}

#[derive(Debug, Default)]
struct Values {
    latest: VecDeque<(Instant, Duration)>,
    /// Their mean and 95th percentile, once they were asked for: they are before each receive.
    mean: Option<Duration>,
    p95: Option<Duration>,
}

impl Values {
    fn change(&mut self, change: impl FnOnce(&mut VecDeque<(Instant, Duration)>)) {
        change(&mut self.latest);
        (self.mean, self.p95) = (None, None);
    }
}

impl Recent {
    /// Creates an empty series; values count for `age_max`.
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { values: Mutex::default(), age_max }
    }

    /// Adds a value.
    pub(crate) fn note(&self, value: Duration) {
        let now = Instant::now();
        self.lock_at(|| now).change(|latest| {
            if latest.len() == REMEMBERED {
                latest.pop_front();
            }
            latest.push_back((now, value));
        });
    }

    /// Returns the mean; `None` when there are no values.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let mut values = self.lock();
        if values.mean.is_none() {
            let count = u32::try_from(values.latest.len()).ok().filter(|count| *count > 0)?;
            values.mean = Some(values.latest.iter().map(|(_, value)| *value).sum::<Duration>() / count);
        }
        values.mean
    }

    /// Returns the longest, which is about the 99th percentile; `None` when there are no values.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.lock().latest.iter().map(|(_, value)| *value).max()
    }

    /// Returns the 95th percentile, but of fewer than twenty values the second longest, because one may be out of line; of a
    /// single one, that. `None` when there are no values.
    pub(crate) fn p95_or_second(&self) -> Option<Duration> {
        let mut sorted: Vec<_> = self.lock().latest.iter().map(|(_, value)| *value).collect();
        sorted.sort_unstable();
        let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
        sorted.get(at.min(sorted.len().saturating_sub(2))).copied()
    }

    /// Returns how many values there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().latest.len()
    }

    /// Returns the 95th percentile; `None` when there are no values.
    pub(crate) fn p95(&self) -> Option<Duration> {
        let mut values = self.lock();
        if values.p95.is_none() {
            let mut all = [Duration::ZERO; REMEMBERED];
            let sorted = &mut all[..values.latest.len()];
            sorted.iter_mut().zip(&values.latest).for_each(|(to, (_, value))| *to = *value);
            let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
            values.p95 = Some(*sorted.select_nth_unstable(at).1);
        }
        values.p95
    }

    /// Drops the values that are too old and returns the rest.
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.lock_at(Instant::now)
    }

    /// Looks at the clock only where there is a value: many series never have one, and are looked at for each message.
    fn lock_at(&self, now: impl FnOnce() -> Instant) -> MutexGuard<'_, Values> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if !values.latest.is_empty() {
            let now = now();
            let is_old = |at: Instant| now.saturating_duration_since(at) > self.age_max;
            while values.latest.front().is_some_and(|(at, _)| is_old(*at)) {
                values.change(|latest| _ = latest.pop_front());
            }
        }
        values
    }
}

/// For how long a measured use of memory counts.
pub(super) const MEASURED_KEPT: Duration = Duration::from_hours(24);

/// The memory that jobs of a kind take, as measured: the most, and when.
#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Option<(Instant, u64)>>);

impl Measured {
    /// Returns it; `None` when nothing was measured for long.
    pub(super) fn get(&self) -> Option<u64> {
        mutex::get(&self.0).filter(|(at, _)| at.elapsed() < MEASURED_KEPT).map(|(_, bytes)| bytes)
    }

    /// Adds a value.
    pub(super) fn note(&self, bytes: u64) {
        if self.get().is_none_or(|most| most <= bytes) {
            mutex::set(&self.0, Some((Instant::now(), bytes)));
        }
    }
}

/// How often something has happened in a second, lately.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<(f64, Instant)>>);

impl Rate {
    /// Counts it once.
    pub(crate) fn note(&self) {
        let now = Instant::now();
        let rate = self.at(now) + RATE_OVER.as_secs_f64().recip();
        mutex::set(&self.0, Some((rate, now)));
    }

    /// Returns for how long it has not happened; `None` if it never has.
    pub(crate) fn quiet(&self) -> Option<Duration> {
        mutex::get(&self.0).map(|(_, at)| at.elapsed())
    }

    /// Returns how often. What is longer ago counts less.
    pub(crate) fn a_second(&self) -> f64 {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> f64 {
        let over =
            |since: Instant| now.saturating_duration_since(since).as_secs_f64() / RATE_OVER.as_secs_f64();
        mutex::get(&self.0).map_or(0.0, |(rate, at)| rate * (-over(at)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_follows_what_happens() {
        let rate = Rate::default();
        assert!(rate.a_second() < 0.001);
        for _ in 0..1_200 {
            rate.note();
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        assert!((19.0..21.0).contains(&rate.a_second()), "{}", rate.a_second());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.a_second() < 0.1, "{}", rate.a_second());
    }

    #[tokio::test(start_paused = true)]
    async fn one_value_that_is_out_of_line_does_not_count_among_others() {
        let recent = Recent::new(Duration::from_secs(60));
        let ms = Duration::from_millis;
        assert_eq!((recent.len(), recent.p95_or_second()), (0, None));
        recent.note(ms(6_000));
        assert_eq!((recent.len(), recent.p95_or_second()), (1, Some(ms(6_000))));
        for _ in 0..18 {
            recent.note(ms(60));
            assert_eq!(recent.p95_or_second(), Some(ms(60)), "{}", recent.len());
        }
        recent.note(ms(6_000));
        assert_eq!((recent.len(), recent.p95_or_second()), (20, Some(ms(6_000))), "two of twenty count");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_latest_values_count() {
        let recent = Recent::new(Duration::from_secs(60));
        assert_eq!((recent.mean(), recent.p95()), (None, None));
        recent.note(Duration::from_secs(9));
        assert_eq!(recent.p95(), Some(Duration::from_secs(9)));
        for ms in 1..=64 {
            recent.note(Duration::from_millis(ms));
        }
        assert_eq!(recent.p95(), Some(Duration::from_millis(61)));
        assert_eq!(recent.mean(), Some(Duration::from_micros(32_500)));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((recent.mean(), recent.p95()), (None, None), "what is long past");
    }
}
