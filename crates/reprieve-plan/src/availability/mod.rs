//! How many Spot machines could be had over time.

mod csv;
mod ends;
mod fleet;
mod lifetimes;
mod sampled;
mod trace_error;
mod window;

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use ends::{Life, Loss, lives, losses};
pub use trace_error::TraceError;
pub use window::Window;

/// The number of Spot machines that could be had, from the beginning of a trace to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// When the number changed, and to what. The first is at zero; times rise.
    changes: Vec<(u64, u32)>,
    end_ms: u64,
}

impl Series {
    /// Reads a trace in any of three formats, told apart by how the text begins.
    ///
    /// - An availability series, `{"metadata":{"gap_seconds":300},"data":[1,0,…]}`: the number of
    ///   machines that could be had, every so many seconds.
    /// - Fleet events, `milliseconds,add|remove,node` without a header: machines that joined and left a
    ///   fleet that asks for a fixed number. The trace begins with its first event.
    /// - Lifetimes, with a header that has `start_utc` and `lifetime_s`: the number of machines that
    ///   ran. A time in which none was asked for looks like one without Spot, so this is a lower bound.
    ///
    /// # Errors
    ///
    /// The first fault, with its line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if text.is_empty() {
            Err(TraceError::Empty)
        } else if text.starts_with('{') {
            sampled::parse(text)
        } else if lifetimes::has_header(text) {
            lifetimes::parse(text)
        } else {
            fleet::parse(text)
        }
    }

    /// A series from changes of the number of machines: each adds to it at its time.
    fn from_deltas(deltas: impl IntoIterator<Item = (u64, i64)>) -> Result<Self, TraceError> {
        let mut by_time = BTreeMap::new();
        for (at_ms, delta) in deltas {
            *by_time.entry(at_ms).or_insert(0) += delta;
        }
        let (Some((&start_ms, _)), Some((&last_ms, _))) =
            (by_time.first_key_value(), by_time.last_key_value())
        else {
            return Err(TraceError::Empty);
        };
        let counts = by_time.into_iter().scan(0_i64, |count, (at_ms, delta)| {
            *count += delta;
            Some((at_ms - start_ms, u32::try_from(*count).unwrap_or_default()))
        });
        Self::from_counts(counts, last_ms - start_ms)
    }

    /// A series from counts at rising times, the first of which is zero.
    pub(crate) fn from_counts(
        counts: impl IntoIterator<Item = (u64, u32)>,
        end_ms: u64,
    ) -> Result<Self, TraceError> {
        let mut changes: Vec<(u64, u32)> = Vec::new();
        for (at_ms, count) in counts {
            if at_ms < end_ms && changes.last().is_none_or(|(_, last)| *last != count) {
                changes.push((at_ms, count));
            }
        }
        if changes.is_empty() { Err(TraceError::NoTime) } else { Ok(Self { changes, end_ms }) }
    }

    /// The length of the trace.
    #[must_use]
    pub const fn length_ms(&self) -> u64 {
        self.end_ms
    }

    /// How often the number changes, its beginning included.
    #[must_use]
    pub const fn changes(&self) -> usize {
        self.changes.len()
    }

    /// The largest number of machines at any time.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.changes.iter().map(|(_, count)| *count).max().unwrap_or_default()
    }

    /// If no machine was lost, the largest chance of a loss in an hour that this is likely for: with more, a trace of this
    /// length would show one in 95 of 100 cases.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn loss_bound(&self) -> Option<f64> {
        let is_lost = self.changes.windows(2).any(|pair| pair[0].1 > pair[1].1);
        let hours = self.end_ms as f64 / 3_600_000.0;
        (!is_lost).then(|| 1.0 - 0.05_f64.powf(1.0 / hours))
    }

    /// How many machines fewer it begins with than it ends with: these go where it is repeated.
    #[must_use]
    pub fn fewer_at_beginning(&self) -> u32 {
        let (first, last) = (self.changes.first(), self.changes.last());
        first.zip(last).map_or(0, |((_, first), (_, last))| last.saturating_sub(*first))
    }

    /// The same series with so many times as many machines.
    #[must_use]
    pub fn times(&self, factor: u32) -> Self {
        let times = |(at_ms, count): &(u64, u32)| (*at_ms, count.saturating_mul(factor));
        Self { changes: self.changes.iter().map(times).collect(), end_ms: self.end_ms }
    }

    /// The share of the time in which at least `machines` could be had.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of two times")]
    pub fn share(&self, machines: u32) -> f64 {
        let ends = self.changes.iter().skip(1).map(|(at_ms, _)| *at_ms).chain([self.end_ms]);
        let with = self.changes.iter().zip(ends).filter(|((_, count), _)| *count >= machines);
        with.map(|((from_ms, _), to_ms)| to_ms - from_ms).sum::<u64>() as f64 / self.end_ms as f64
    }

    /// Whether at least `machines` could be had, from `start_ms` for `length_ms`.
    ///
    /// A trace that is too short is repeated from its beginning.
    #[must_use]
    pub fn window(&self, start_ms: u64, length_ms: u64, machines: u32) -> Window {
        let start_ms = start_ms % self.end_ms;
        let mut index = self.changes.partition_point(|(at_ms, _)| *at_ms <= start_ms) - 1;
        let first = self.changes[index].1 >= machines;
        let (mut available, mut round_ms, mut times) = (first, 0_u64, Vec::new());
        loop {
            index += 1;
            if index == self.changes.len() {
                (index, round_ms) = (0, round_ms.saturating_add(self.end_ms));
            }
            let (change_ms, count) = self.changes[index];
            let at_ms = round_ms.saturating_add(change_ms) - start_ms;
            if at_ms >= length_ms {
                return Window::new(first, times);
            }
            if (count >= machines) != available {
                available = !available;
                times.push(at_ms);
            }
        }
    }

    /// The number of machines from `start_ms` on, and each change of it with the time since; without end.
    ///
    /// The trace is repeated from its beginning. A trace that never changes has changes to the same number.
    pub fn counts_from(&self, start_ms: u64) -> impl Iterator<Item = (u64, u32)> {
        let start_ms = start_ms % self.end_ms;
        let first = self.changes.partition_point(|(at_ms, _)| *at_ms <= start_ms) - 1;
        let rounds = (0_u64..).flat_map(move |round| {
            let round_ms = round.saturating_mul(self.end_ms);
            self.changes.iter().map(move |(at_ms, count)| (round_ms.saturating_add(*at_ms), *count))
        });
        rounds.skip(first).map(move |(at_ms, count)| (at_ms.saturating_sub(start_ms), count))
    }

    /// Draws `count` windows: each begins at a random moment, and needs a random number of machines
    /// up to the most there were. So one fleet gives windows from no availability to full.
    #[must_use]
    pub fn draw_windows(&self, length_ms: u64, count: usize, seed: u64) -> Vec<Window> {
        // ChaCha, because its numbers are the same on every machine and in every version.
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let most = self.most().max(1);
        let window = |_| {
            let (start_ms, machines) = (random.random_range(0..self.end_ms), random.random_range(1..=most));
            self.window(start_ms, length_ms, machines)
        };
        (0..count).map(window).collect()
    }
}

#[cfg(test)]
mod tests;
