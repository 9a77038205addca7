//! Running figures that the worker decides by: means and percentiles of what it has seen lately.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many of the latest values are remembered.
const REMEMBERED: usize = 64;

/// The latest durations of something.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    values: Vec<Duration>,
    next: usize,
}

impl Recent {
    /// Takes one in.
    pub(crate) fn note(&self, value: Duration) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = ring.next;
        if ring.values.len() < REMEMBERED {
            ring.values.push(value);
        } else {
            ring.values[next] = value;
        }
        ring.next = (next + 1) % REMEMBERED;
    }

    /// The mean; `None` when there was nothing.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = u32::try_from(ring.values.len()).ok().filter(|count| *count > 0)?;
        Some(ring.values.iter().sum::<Duration>() / count)
    }

    /// The 95th percentile; `None` when there was nothing.
    pub(crate) fn p95(&self) -> Option<Duration> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner).values.clone();
        values.sort_unstable();
        let at = (values.len() * 95).div_ceil(100).checked_sub(1)?;
        values.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_values_count() {
        let recent = Recent::default();
        assert_eq!((recent.mean(), recent.p95()), (None, None));
        recent.note(Duration::from_secs(9));
        assert_eq!(recent.p95(), Some(Duration::from_secs(9)));
        for ms in 1..=64 {
            recent.note(Duration::from_millis(ms));
        }
        assert_eq!(recent.p95(), Some(Duration::from_millis(61)));
        assert_eq!(recent.mean(), Some(Duration::from_micros(32_500)));
    }
}
