//! Where things stand in the timeline: how long it is, its ticks, and rows for shifts that overlap.

use super::words::percent;
use crate::story::{Shift, Story};

/// How many ticks fit: each has its label beside it.
const TICKS_MAX: u64 = 11;

/// The timeline's length in time, from which all positions follow.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    end_ms: u64,
}

impl Scale {
    pub(super) fn of(story: &Story) -> Self {
        let last = story.vms.iter().map(|vm| vm.ended_ms).max();
        Self { end_ms: last.unwrap_or(0).max(story.took_ms).max(1) }
    }

    /// `left` of a point in time.
    pub(super) fn at(self, ms: u64) -> String {
        format!("left:{}", percent(ms, self.end_ms))
    }

    /// `left` and `width` of a span.
    pub(super) fn span(self, from_ms: u64, to_ms: u64) -> String {
        format!("{};width:{}", self.at(from_ms), percent(to_ms.saturating_sub(from_ms), self.end_ms))
    }

    /// Its length in seconds, by which the style sheet gives it room.
    pub(super) fn seconds(self) -> u64 {
        self.end_ms.div_ceil(1_000)
    }

    /// From one tick to the next, in milliseconds.
    pub(super) fn tick_ms(self) -> u64 {
        let fits = |tick: &u64| self.end_ms / tick < TICKS_MAX;
        let round = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600].map(|seconds| seconds * 1_000);
        round.into_iter().find(fits).unwrap_or(self.end_ms)
    }

    /// The ticks themselves. None so near the end that its label would stand outside.
    pub(super) fn ticks(self) -> impl Iterator<Item = u64> {
        let tick = self.tick_ms();
        (0..).map(move |number| number * tick).take_while(move |at| at + tick / 3 < self.end_ms)
    }

    /// How far apart ticks are, as a part of the whole.
    pub(super) fn tick(self) -> String {
        percent(self.tick_ms(), self.end_ms)
    }
}

/// A row for each shift, so that no two overlap in one: the first that is free by then. Shifts come in the order in
/// which they began.
pub(super) fn rows(shifts: &[Shift]) -> Vec<usize> {
    let mut free_from: Vec<u64> = Vec::new();
    let row = |shift: &Shift| {
        let free = free_from.iter().position(|&from| from <= shift.from_ms);
        let row = free.unwrap_or(free_from.len());
        if row == free_from.len() {
            free_from.push(0);
        }
        free_from[row] = shift.to_ms;
        row
    };
    shifts.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;
    use crate::story::ShiftEnd;

    #[test]
    fn shifts_that_overlap_have_rows_of_their_own() {
        let shifts = [(0, 10), (0, 5), (5, 20), (6, 7), (10, 11)]
            .map(|when| made_up::shift(0, when, 0, (1, 0), ShiftEnd::Completed));
        assert_eq!(rows(&shifts), [0, 1, 1, 2, 0]);
        assert_eq!(rows(&[]), [0; 0]);
    }

    #[test]
    fn ticks_are_round_and_few_and_inside() {
        for (end_ms, tick_ms) in
            [(1, 1_000), (10_900, 1_000), (11_000, 2_000), (28_400, 5_000), (300_000, 30_000)]
        {
            let scale = Scale { end_ms };
            assert_eq!(scale.tick_ms(), tick_ms);
            let ticks: Vec<_> = scale.ticks().collect();
            assert!(ticks.len() <= 11 && ticks.iter().all(|&at| at < end_ms), "{end_ms}: {ticks:?}");
        }
    }

    #[test]
    fn nothing_stands_outside() {
        let scale = Scale { end_ms: 10_000 };
        assert_eq!(scale.span(2_500, 5_000), "left:25.000%;width:25.000%");
        assert_eq!(scale.at(20_000), "left:100.000%");
        assert_eq!(Scale { end_ms: 10_001 }.seconds(), 11);
    }
}
