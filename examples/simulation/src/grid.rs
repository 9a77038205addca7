//! The numbers: a square grid of temperatures, row by row, and one time step of the heat equation.
//!
//! Each new cell is computed from old cells only, by the same operations in the same order. So the
//! number of threads does not change a bit. Nor does the machine: additions and multiplications are
//! rounded alike everywhere, while `sin` and `exp` are not.

use serde::Serialize;

/// How much of the difference to its neighbours a cell takes over. Beyond a quarter it diverges.
const RATE: f64 = 0.2;

/// A summary of the final grid.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// A checksum of all bits, as text: JSON readers round large numbers.
    checksum: String,
    sum: f64,
    min: f64,
    max: f64,
}

/// Returns temperatures from 0 to 1 that only the seed determines.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub(crate) fn random(side: usize, seed: u64) -> Vec<f64> {
    let cell = |n: u64| (mix(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 11) as f64;
    (1..).take(side * side).map(|n| cell(n) / (1_u64 << 53) as f64).collect()
}

/// Computes the `next` grid, one time step after `grid`. Each thread computes a band of rows.
pub(crate) fn spread(grid: &[f64], next: &mut [f64], side: usize, threads: usize) {
    let rows = side.div_ceil(threads);
    std::thread::scope(|scope| {
        for (band, next) in next.chunks_mut(rows * side).enumerate() {
            scope.spawn(move || {
                for (row, next) in (band * rows..).zip(next.chunks_exact_mut(side)) {
                    spread_row(grid, next, row);
                }
            });
        }
    });
}

fn spread_row(grid: &[f64], next: &mut [f64], row: usize) {
    let side = next.len();
    let at = |row: usize| &grid[row * side..][..side];
    let here = at(row);
    // The edge of the plate keeps its temperatures.
    next.copy_from_slice(here);
    if row == 0 || row == side - 1 {
        return;
    }
    let cells = next.iter_mut().skip(1).zip(here.windows(3));
    for ((next, here), (above, below)) in cells.zip(at(row - 1).iter().zip(at(row + 1)).skip(1)) {
        *next = here[1] + RATE * (above + below + here[0] + here[2] - 4.0 * here[1]);
    }
}

pub(crate) fn summary(grid: &[f64]) -> Summary {
    // FNV-1a, of numbers instead of bytes.
    let hash = |hash: u64, cell: &f64| (hash ^ cell.to_bits()).wrapping_mul(0x0100_0000_01b3);
    Summary {
        checksum: format!("{:016x}", grid.iter().fold(0xcbf2_9ce4_8422_2325, hash)),
        sum: grid.iter().sum(),
        min: grid.iter().copied().fold(f64::INFINITY, f64::min),
        max: grid.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// The finalizer of `SplitMix64`: every bit of the result depends on every bit of `n`.
/// <https://prng.di.unimi.it/splitmix64.c>
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(side: usize, steps: usize, threads: usize) -> Summary {
        let mut grid = random(side, 7);
        let mut next = grid.clone();
        for _ in 0..steps {
            spread(&grid, &mut next, side, threads);
            std::mem::swap(&mut grid, &mut next);
        }
        summary(&grid)
    }

    #[test]
    fn the_result_is_the_same_with_any_number_of_threads() {
        for side in [1, 2, 3, 50] {
            let expected = run(side, 100, 1);
            for threads in [2, 3, 7, 50, 64] {
                assert_eq!(run(side, 100, threads), expected, "{threads} threads");
            }
        }
    }

    #[test]
    fn the_result_shows_a_time_step_that_was_lost_or_done_twice() {
        let results = [1_999, 2_000, 2_001].map(|steps| run(50, steps, 2).checksum);
        assert!(results[0] != results[1] && results[1] != results[2], "{results:?}");
    }

    #[test]
    fn heat_spreads_over_the_plate() {
        let (before, after) = (run(50, 0, 2), run(50, 2_000, 2));
        assert!(before.min >= 0.0 && before.max < 1.0, "{before:?}");
        assert!(after.max < before.max && after.min > before.min, "{after:?}");
    }
}
