//! The least expected cost from every state of a task, for one chain.
//!
//! Work left and slack are counted in steps of a grid. Slack is the time left beyond what the net
//! reserves: while a machine works it stays, and waiting and moves use it up. Costs are counted in
//! steps of regular machines.

use crate::policy::{Moment, Place};
use crate::task::Task;

use super::chains::Chain;

/// The number of pairs of work and slack. Eight times as many change mean costs by less than 0.1 %.
const CELLS: f64 = 6_000.0;

/// The fewest steps of work.
const ROWS_MIN: f64 = 12.0;

/// The most steps of slack. More is as good as this: it is 160 times the work at least.
const COLUMNS_MAX: usize = 2000;

/// The measures of a task in steps of the grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    step_ms: f64,
    rows: usize,
    columns: usize,
    /// The time of a move.
    boot: f64,
    /// How long a task without machine waits before it decides again, at least a step.
    look: f64,
    /// The slack that unsaved work takes before it is saved: with less, the net ends a run on Spot.
    unsaved: f64,
    /// The mean loss of an eviction.
    loss: f64,
    /// The price of Spot as a share of the regular one.
    spot: f64,
}

/// A moment in steps of the grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    work: f64,
    slack: f64,
    /// Whether Spot can be had.
    spot: bool,
    /// The time until the regular machine works, if the task is on one.
    regular_in: Option<f64>,
}

/// The expected costs from one pair of work and slack, in steps of regular machines. "Up" is with Spot
/// available, "down" without.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// On a Spot machine that works.
    spot: f32,
    /// Starting a Spot machine.
    start_spot: f32,
    /// On no machine, the cheapest way on.
    idle_up: f32,
    idle_down: f32,
    /// Staying on no machine for a step.
    wait_up: f32,
    wait_down: f32,
    /// Staying on a regular machine that works for a step.
    stay_up: f32,
    stay_down: f32,
}

impl Cell {
    fn regular_up(&self) -> f32 {
        self.stay_up.min(self.start_spot).min(self.wait_up)
    }

    fn regular_down(&self) -> f32 {
        self.stay_down.min(self.wait_down)
    }
}

/// The costs of one chain, row by row of work left.
#[derive(Debug)]
pub(super) struct Table {
    cells: Vec<Cell>,
}

/// A table while it is solved, with the chances that Spot stays as it is in a step, or in a boot.
struct Solver<'a> {
    grid: &'a Grid,
    cells: Vec<Cell>,
    keep_up: f64,
    keep_down: f64,
    keep_boot: f64,
    keep_look: f64,
}

impl Grid {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a grid of some thousand cells"
    )]
    pub(super) fn new(task: &Task) -> Self {
        let work_ms = task.work_ms().max(1) as f64;
        let slack_ms = task.deadline_ms.saturating_sub(task.reserve_ms(task.work_ms())) as f64;
        let rows =
            (work_ms / (work_ms * slack_ms.max(1.0) / CELLS).sqrt()).clamp(ROWS_MIN, CELLS / 4.0).ceil();
        let step_ms = work_ms / rows;
        Self {
            step_ms,
            rows: rows as usize,
            columns: ((slack_ms / step_ms).ceil() as usize + 1).min(COLUMNS_MAX),
            boot: task.move_ms as f64 / step_ms,
            look: (task.look_ms as f64 / step_ms).max(1.0),
            unsaved: task.loss_max_ms() as f64 / step_ms,
            loss: task.loss_max_ms() as f64 / 2.0 / step_ms,
            spot: task.spot.nanos_per_hour() as f64 / task.regular.nanos_per_hour() as f64,
        }
    }

    /// The number of cells of a table.
    fn cells(&self) -> usize {
        (self.rows + 1) * self.columns
    }

    /// Where a moment is on the grid.
    #[expect(clippy::cast_precision_loss, reason = "a point of the grid")]
    pub(super) fn point(&self, moment: &Moment<'_>) -> Point {
        let slack_ms = moment.time_left_ms.saturating_sub(moment.task.reserve_ms(moment.work_left_ms));
        Point {
            work: moment.work_left_ms as f64 / self.step_ms,
            slack: slack_ms as f64 / self.step_ms,
            spot: moment.spot,
            regular_in: (moment.place == Place::Regular).then(|| moment.ready_in_ms as f64 / self.step_ms),
        }
    }

    /// Interpolates one cost in a row of cells; `None` below the net.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the grid")]
    fn in_row(&self, cells: &[Cell], row: usize, slack: f64, cost: impl Fn(&Cell) -> f32) -> Option<f64> {
        let column = (slack >= 0.0).then_some(slack as usize)?.min(self.columns - 1);
        let part = (slack - index(column)).min(1.0);
        let cells = &cells[row * self.columns + column..];
        let low = f64::from(cost(&cells[0]));
        if column + 1 == self.columns || part == 0.0 {
            return Some(low);
        }
        Some(low + part * (f64::from(cost(&cells[1])) - low))
    }
}

impl Table {
    /// Solves the programme backwards, from the end of the work and of the slack.
    pub(super) fn solve(grid: &Grid, chain: &Chain) -> Self {
        let (loss, back) = (chain.loss * grid.step_ms, chain.back * grid.step_ms);
        let mut solver = Solver {
            grid,
            cells: Vec::with_capacity(grid.cells()),
            keep_up: (-loss).exp(),
            keep_down: (-back).exp(),
            keep_boot: (-loss * grid.boot).exp(),
            keep_look: (-back * grid.look).exp(),
        };
        for row in 0..=grid.rows {
            for column in 0..grid.columns {
                solver.push(row, column);
            }
        }
        Self { cells: solver.cells }
    }

    /// The expected cost at `point` of going to, or staying at, `place`.
    pub(super) fn cost(&self, grid: &Grid, point: &Point, place: Place) -> f64 {
        let up = point.spot;
        match (place, point.regular_in) {
            (Place::Spot, _) => self.at(grid, point.work, point.slack, |cell| cell.start_spot),
            (Place::Nothing, _) => {
                self.at(grid, point.work, point.slack, |cell| if up { cell.wait_up } else { cell.wait_down })
            }
            (Place::Regular, Some(0.0)) => {
                self.at(grid, point.work, point.slack, |cell| if up { cell.stay_up } else { cell.stay_down })
            }
            (Place::Regular, boot) => {
                let boot = boot.unwrap_or(grid.boot);
                let regular = |cell: &Cell| if up { cell.regular_up() } else { cell.regular_down() };
                boot + self.at(grid, point.work, point.slack - boot, regular)
            }
        }
    }

    /// Interpolates one cost; below the net all work costs the regular price.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the grid")]
    fn at(&self, grid: &Grid, work: f64, slack: f64, cost: impl Fn(&Cell) -> f32) -> f64 {
        let row = (work as usize).min(grid.rows - 1);
        let part = (work - index(row)).min(1.0);
        let low = grid.in_row(&self.cells, row, slack, &cost);
        let high = grid.in_row(&self.cells, row + 1, slack, &cost);
        low.zip(high).map_or(work, |(low, high)| low + part * (high - low))
    }
}

impl Solver<'_> {
    /// Adds the next cell. Each cost needs those set before it, and cells with less work or slack.
    fn push(&mut self, row: usize, column: usize) {
        if row == 0 || column == 0 {
            self.cells.push(self.edge(row));
            return;
        }
        let (index, slack) = (self.cells.len(), index(column));
        self.cells.push(Cell::default());
        self.cells[index].spot = self.spot(row, slack);
        self.cells[index].start_spot = self.start_spot(row, slack);
        self.cells[index].wait_up = narrow(self.idle(row, slack - self.grid.look, |cell| cell.idle_up));
        self.cells[index].stay_up = self.stay(row, index, self.keep_up, Cell::regular_up, Cell::regular_down);
        let regular = self.start_regular(row, slack, Cell::regular_up);
        self.cells[index].idle_up = self.cells[index].start_spot.min(self.cells[index].wait_up).min(regular);
        self.cells[index].wait_down = self.wait_down(row, slack);
        self.cells[index].stay_down =
            self.stay(row, index, self.keep_down, Cell::regular_down, Cell::regular_up);
        let regular = self.start_regular(row, slack, Cell::regular_down);
        self.cells[index].idle_down = self.cells[index].wait_down.min(regular);
    }

    /// A cell without slack, where the net holds, or without work.
    fn edge(&self, row: usize) -> Cell {
        let working = narrow(index(row));
        // The least that is ever left without a machine is a boot.
        let idle =
            narrow(if row == 0 { self.grid.spot * self.grid.boot } else { index(row) + self.grid.boot });
        Cell {
            spot: if row == 0 { 0.0 } else { idle },
            start_spot: idle,
            idle_up: idle,
            idle_down: idle,
            wait_up: idle,
            wait_down: idle,
            stay_up: working,
            stay_down: working,
        }
    }

    /// A step on Spot. An eviction comes in its middle on average, and loses work.
    fn spot(&self, row: usize, slack: f64) -> f32 {
        let grid = self.grid;
        if slack < grid.unsaved {
            return narrow(index(row) + grid.boot);
        }
        let kept = grid.spot + self.below(row - 1, slack, |cell| cell.spot);
        let slack = (slack - grid.loss).max(0.0);
        let rest = self.below(row - 1, slack, |cell| cell.idle_down);
        let half =
            if row < 2 { 0.5 } else { (rest - self.below(row - 2, slack, |cell| cell.idle_down)) / 2.0 };
        let evicted = grid.spot * (0.5 + grid.loss) + rest + half;
        narrow(self.keep_up * kept + (1.0 - self.keep_up) * evicted)
    }

    /// A boot of a Spot machine, which may be evicted in its middle.
    fn start_spot(&self, row: usize, slack: f64) -> f32 {
        let grid = self.grid;
        let Some(ready) = grid.in_row(&self.cells, row, slack - grid.boot, |cell| cell.spot) else {
            // The net ends the boot.
            return narrow(grid.spot * slack + index(row) + grid.boot);
        };
        let slack_evicted = (slack - grid.boot).min(slack - 1.0);
        let evicted = self.below(row, slack_evicted, |cell| cell.idle_down);
        let kept = grid.spot * grid.boot + ready;
        let lost = grid.spot * grid.boot / 2.0 + evicted;
        narrow(self.keep_boot * kept + (1.0 - self.keep_boot) * lost)
    }

    fn start_regular(&self, row: usize, slack: f64, regular: fn(&Cell) -> f32) -> f32 {
        narrow(self.grid.boot + self.below(row, slack - self.grid.boot, regular))
    }

    /// A step on a regular machine, in which Spot stays as it is, or changes in the middle.
    fn stay(
        &self,
        row: usize,
        index: usize,
        keep: f64,
        same: fn(&Cell) -> f32,
        other: fn(&Cell) -> f32,
    ) -> f32 {
        let before = &self.cells[index - self.grid.columns];
        let changed = if row == 1 { 0.0 } else { other(before) };
        narrow(1.0 + keep * f64::from(same(before)) + (1.0 - keep) * f64::from(changed))
    }

    /// A look without machine and Spot. Spot comes in the middle on average.
    fn wait_down(&self, row: usize, slack: f64) -> f32 {
        let look = self.grid.look;
        let same = self.idle(row, slack - look, |cell| cell.idle_down);
        let came = self.idle(row, slack - look / 2.0, |cell| cell.idle_up);
        narrow(self.keep_look * same + (1.0 - self.keep_look) * came)
    }

    /// A cost without a machine, or what the net costs.
    fn idle(&self, row: usize, slack: f64, cost: impl Fn(&Cell) -> f32) -> f64 {
        self.grid.in_row(&self.cells, row, slack, cost).unwrap_or(index(row) + self.grid.boot)
    }

    /// A cost of a cell that is known, or what the net costs.
    fn below(&self, row: usize, slack: f64, cost: impl Fn(&Cell) -> f32) -> f64 {
        self.grid.in_row(&self.cells, row, slack, cost).unwrap_or(index(row))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "costs have a few digits, and are only compared")]
fn narrow(cost: f64) -> f32 {
    cost as f32
}

#[expect(clippy::cast_precision_loss, reason = "an index of a grid of some thousand cells")]
fn index(index: usize) -> f64 {
    index as f64
}

#[cfg(test)]
mod tests {
    use super::Grid;
    use crate::money::Price;
    use crate::task::Task;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn tables_stay_small_for_every_deadline() {
        let (spot, regular) = (Price::from_nanos_per_hour(1), Price::from_nanos_per_hour(3));
        for job_ms in [1, HOUR_MS, 10_000 * HOUR_MS] {
            for slack_ms in [0, 1, HOUR_MS, 1_000_000 * HOUR_MS] {
                let task = Task { job_ms, deadline_ms: job_ms + slack_ms, ..Task::new(spot, regular) };
                let cells = Grid::new(&task).cells();
                assert!(cells < 40_000, "{cells} cells for {job_ms} ms of work, {slack_ms} ms of slack");
            }
        }
    }
}
