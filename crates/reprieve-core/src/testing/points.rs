//! The points at which a job is disturbed.

use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How many awaits of each step are points in any case, of a job of many steps, too.
const AWAITS_MIN: u32 = 3;

/// How many runs a failing store has.
const FAILING_RUNS: u8 = 10;

/// What is done to the first worker of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// Gets a notice, and is gone once it has drained.
    Evicted,
    /// Dies without notice.
    Killed {
        /// Whether the states after earlier steps were saved.
        saved: bool,
    },
    /// Is suspended until its lease is over and another worker has the job.
    Frozen {
        /// Whether it continues while the other runs the job, and not after the job's end.
        midway: bool,
    },
}

/// A moment in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    /// At this await that does not complete at once, from 1. At the step's end if it has fewer.
    Await(u32),
    /// When the step has returned, before its state is saved.
    End,
}

/// A disturbance at one moment of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) blow: Blow,
    /// The number of the step in the run, from 1.
    pub(super) step: u64,
    pub(super) moment: Moment,
}

/// A series of disturbed runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    Evicted,
    Killed,
    Frozen,
    FailingStore(u64),
}

/// The disturbance of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    None,
    At(Point),
    FailingStore(u64),
}

impl Series {
    /// Chooses `max` of the series' disturbances of a job with these numbers of awaits in its steps,
    /// evenly and by the seed, and returns them with the number of all. Of each step's awaits there are as
    /// many among them as leave room for the ends of all steps.
    pub(super) fn choose(self, awaits: &[u32], max: usize, seed: u64) -> (Vec<Disturbance>, usize) {
        let most = awaits.iter().copied().max().unwrap_or_default();
        let [mut fits, mut above] = [AWAITS_MIN, most.max(AWAITS_MIN) + 1];
        while above - fits > 1 {
            let between = fits + (above - fits) / 2;
            *(if self.count(awaits, between) <= max { &mut fits } else { &mut above }) = between;
        }
        (choose(&self.some(awaits, fits, seed), max, seed), self.count(awaits, most))
    }

    /// The disturbances at up to `of_step` awaits of each step, in each at others.
    fn some(self, awaits: &[u32], of_step: u32, seed: u64) -> Vec<Disturbance> {
        if let Self::FailingStore(seed) = self {
            return (0..FAILING_RUNS)
                .map(|run| Disturbance::FailingStore(seed.wrapping_add(u64::from(run))))
                .collect();
        }
        let mut points = Vec::new();
        if self == Self::Evicted {
            points.push(Point { blow: Blow::Evicted, step: 1, moment: Moment::Before });
        }
        for (step, awaits) in (1..).zip(awaits) {
            let all: Vec<_> = (1..=*awaits).collect();
            let some = choose(&all, of_step as usize, seed.wrapping_add(step)).into_iter();
            for moment in some.map(Moment::Await).chain([Moment::End]) {
                points.extend(self.blows().iter().map(|blow| Point { blow: *blow, step, moment }));
            }
        }
        points.into_iter().map(Disturbance::At).collect()
    }

    /// The number of disturbances at up to `of_step` awaits of each step.
    fn count(self, awaits: &[u32], of_step: u32) -> usize {
        if let Self::FailingStore(_) = self {
            return usize::from(FAILING_RUNS);
        }
        let moments: usize = awaits.iter().map(|awaits| (*awaits).min(of_step) as usize + 1).sum();
        moments * self.blows().len() + usize::from(self == Self::Evicted)
    }

    const fn blows(self) -> &'static [Blow] {
        match self {
            Self::Evicted => &[Blow::Evicted],
            Self::Killed => &[Blow::Killed { saved: true }, Blow::Killed { saved: false }],
            Self::Frozen => &[Blow::Frozen { midway: true }, Blow::Frozen { midway: false }],
            Self::FailingStore(_) => &[],
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::FailingStore(_) => "failing store",
        }
    }
}

/// Chooses `max` of these evenly. The seed decides which of each part.
fn choose<T: Copy>(all: &[T], max: usize, seed: u64) -> Vec<T> {
    if all.len() <= max {
        return all.to_vec();
    }
    let mut random = SmallRng::seed_from_u64(seed);
    let part = |of: usize| -> Range<usize> { of * all.len() / max..(of + 1) * all.len() / max };
    (0..max).map(|of| all[random.random_range(part(of))]).collect()
}

impl Disturbance {
    /// The step that is disturbed.
    pub(super) const fn step(self) -> Option<u64> {
        match self {
            Self::At(point) => Some(point.step),
            Self::None | Self::FailingStore(_) => None,
        }
    }

    /// What to look for when a run differs.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            Self::None => {
                "Two undisturbed runs must be the same: does the job use chance, the time, or what an \
                 earlier run left behind? See `Harness::before_each_run`."
            }
            Self::At(Point { blow: Blow::Evicted, moment: Moment::Before | Moment::End, .. }) => {
                "Between two steps a job is its checkpoint alone. Does the next step need something \
                 that the checkpoint lacks, or that comes back from it as another value?"
            }
            Self::At(Point { blow: Blow::Evicted, .. }) => {
                "A step that is asked to yield returns the state so far, or is dropped at an await and \
                 runs again from the checkpoint before it."
            }
            Self::At(Point { blow: Blow::Killed { .. }, .. }) => {
                "What ran since the last checkpoint ran again: every effect of a step must be safe to \
                 repeat."
            }
            Self::At(Point { blow: Blow::Frozen { .. }, .. }) => {
                "The frozen worker's step went on after another worker had run it: effects outside \
                 must be safe to repeat, or be refused by `cx.fence()`."
            }
            Self::FailingStore(_) => {
                "A call that fails or loses its answer can make a step run again, on another worker, \
                 too: every effect of a step must be safe to repeat."
            }
        }
    }
}

impl Disturbance {
    /// Describes the disturbance of a job that takes so many steps undisturbed.
    pub(super) fn describe(self, steps: Option<usize>) -> String {
        match self {
            Self::None => "undisturbed".to_owned(),
            Self::At(point) => point.describe(steps),
            Self::FailingStore(seed) => format!("with a failing store (seed {seed})"),
        }
    }
}

impl Point {
    fn describe(self, steps: Option<usize>) -> String {
        let blow = match self.blow {
            Blow::Evicted => "evicted",
            Blow::Killed { .. } => "killed",
            Blow::Frozen { .. } => "frozen",
        };
        let step = match steps {
            Some(steps) => format!("step {} of {steps}", self.step),
            None => format!("step {}", self.step),
        };
        let moment = match self.moment {
            Moment::Before => format!("before {step}"),
            Moment::Await(number) => format!("at await {number} in {step}"),
            Moment::End => format!("at the end of {step}"),
        };
        let how = match self.blow {
            Blow::Evicted => "",
            Blow::Killed { saved: true } => ", with all before it saved",
            Blow::Killed { saved: false } => ", with nothing saved",
            Blow::Frozen { midway: true } => ", until another worker had run a step",
            Blow::Frozen { midway: false } => ", until another worker had run the job",
        };
        format!("{blow} {moment}{how}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The number of chosen disturbances in each step, and of all that there are.
    fn chosen(awaits: &[u32], max: usize) -> (Vec<usize>, usize) {
        let (chosen, all) = Series::Killed.choose(awaits, max, 7);
        let in_step = |step| chosen.iter().filter(|one| one.step() == Some(step)).count();
        ((1..).take(awaits.len()).map(in_step).collect(), all)
    }

    #[test]
    fn every_await_is_a_point_while_there_is_room_and_no_step_takes_the_room_of_others() {
        assert_eq!(chosen(&[20, 0, 4], 100), (vec![42, 2, 10], 54));
        assert_eq!(chosen(&[3_601, 0, 4], 100), (vec![88, 2, 10], 7_216));
        assert_eq!(chosen(&[], 100), (vec![], 0));
        let (in_step, all) = chosen(&[50; 100], 100);
        assert_eq!((in_step.iter().sum::<usize>(), all), (100, 10_200));
        assert!(in_step.iter().all(|points| *points <= 2), "{in_step:?}");
    }

    /// A window of one await in a step of many is met by some seed, also where all steps are alike.
    #[test]
    fn every_await_is_a_point_with_some_seed() {
        for steps in [1, 3, 5, 10, 50] {
            let mut met = HashSet::new();
            for seed in 0..40 {
                let (chosen, _) = Series::Killed.choose(&vec![20; steps], 100, seed);
                met.extend(chosen.into_iter().filter_map(|one| match one {
                    Disturbance::At(Point { moment: Moment::Await(number), .. }) => Some(number),
                    _ => None,
                }));
            }
            assert_eq!(met.len(), 20, "{steps} steps: {met:?}");
        }
    }

    #[test]
    fn points_are_chosen_evenly_and_by_the_seed() {
        let all: Vec<u32> = (0..1_000).collect();
        let chosen = choose(&all, 100, 7);
        assert_eq!((chosen.len(), &chosen), (100, &choose(&all, 100, 7)));
        assert!(chosen.iter().zip(0..).all(|(one, part)| one / 10 == part), "{chosen:?}");
        assert_ne!(chosen, choose(&all, 100, 8));
        assert_eq!(choose(&all[..3], 100, 7), [0, 1, 2]);
    }
}
