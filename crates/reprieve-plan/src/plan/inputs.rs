//! The inputs of a plan, and the faults that refuse them.

use std::fmt;
use std::ops::Range;

use crate::availability::{Life, Loss, Series};
use crate::fleet::{Mix, ModelError, Notice, PriceSteps, StrategyError};
use crate::money::{Cost, Price};
use crate::support::{self, Unsupported};
use crate::vm_state::MaxPrice;
use crate::words::{at_least, at_most};

const MINUTE_MS: u64 = 60_000;

/// All that a plan is made from.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The run time of each job on this size.
    pub jobs_ms: Vec<u64>,
    /// Where those times are from, for the table of assumptions.
    pub jobs_source: Source,
    /// The size of the machines; `None` if only prices are given.
    pub size: Option<String>,
    /// The region; `None` if only prices are given.
    pub region: Option<String>,
    /// The most machines.
    pub instances: u32,
    /// The number of jobs that a machine runs at a time.
    pub slots: u32,
    /// Whether jobs save and go on elsewhere. Those that can't begin again.
    pub can_save: bool,
    /// The time that a save takes; `None` to derive it from the size of a state.
    pub save_ms: Option<u64>,
    /// Where that time is from, if there is one.
    pub save_source: Source,
    /// The size of a saved state, if it is known.
    pub state_bytes: Option<u64>,
    /// The least and longest boot; `None` for [`ASSUMED_BOOT_MS`].
    pub boot_ms: Option<(u64, u64)>,
    /// The time until all jobs have to be done, if there is one.
    pub deadline_ms: Option<u64>,
    /// The most that the batch may cost, if there is a limit.
    pub budget: Option<Cost>,
    /// The prices.
    pub prices: Prices,
    /// The most that a Spot machine may cost; `steady` takes no such limit.
    pub max_price: MaxPrice,
    /// What is known of evictions.
    pub evictions: Known,
    /// The number of machines that could be had over time, for the deadline policies; those of
    /// [`Known::Availability`] come before it.
    pub availability: Option<Series>,
    /// The notice of evictions; `None` if there is none.
    pub notice: Option<Notice>,
    /// The share of requests for a Spot machine that find no capacity.
    pub refused: f64,
    /// The regular machines of `balanced`.
    pub mix: Mix,
    /// The regular machines of `swap`, and after how many interruptions without progress a job moves to them.
    pub swap: (u32, u32),
    /// The number of runs of each strategy.
    pub runs: u32,
    /// The most events of all runs, beyond which there are fewer runs; ten at least, if as many are asked for. A run
    /// that has more than a tenth of it, or of [`EVENTS_MAX`], ends, and there is no plan.
    pub events_max: u64,
    /// The seed of the first run; each further run has the next one.
    pub seed: u64,
}

/// The prices of a size in a region, in USD.
#[derive(Clone, Debug)]
pub struct Prices {
    /// A Spot machine.
    pub spot: PriceSteps,
    /// A regular machine.
    pub regular: Price,
    /// A machine's disks, also while it is deallocated.
    pub disks: Price,
    /// What is paid while the deployment exists: gateways, addresses, private endpoints.
    pub always: Price,
    /// The storage requests of a save.
    pub save: Cost,
    /// The traffic of one saved state, to the store or back; zero within a region.
    pub traffic: Cost,
    /// Where the prices are from, and of which day.
    pub source: Source,
}

/// What is known of evictions.
#[derive(Clone, Debug)]
pub enum Known {
    /// The share of machines that is evicted in an hour lies in an interval.
    Rate {
        /// The lower end.
        low: f64,
        /// The upper end; `None` if the interval is open.
        high: Option<f64>,
        /// The losses of a fleet, in whose pattern machines go; without, each goes for itself.
        pattern: Option<Vec<Loss>>,
        /// Where the rate is from.
        source: Source,
    },
    /// The lives of machines.
    Lives(Vec<Life>, Source),
    /// The losses of a fleet.
    Losses(Vec<Loss>, Source),
    /// The number of machines that could be had over time.
    Availability(Series, Source),
    /// Nothing. It is not the same as no evictions.
    Unknown,
}

/// Where a number is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user gave it.
    Given,
    /// It was measured or looked up: where, and when.
    Measured(String),
    /// A page of documentation.
    Documented(&'static str),
    /// Nobody knows; why it is this.
    Assumed(&'static str),
}

/// The assumed least and longest boot, until a worker takes jobs.
pub const ASSUMED_BOOT_MS: (u64, u64) = (2 * MINUTE_MS, 5 * MINUTE_MS);

/// The assumed notice: the 30 s that Azure documents, none in the first five minutes after a boot, in which events
/// may not flow yet.
pub const ASSUMED_NOTICE: Notice = Notice { lead_ms: 30_000, share: 1.0, blind_ms: 5 * MINUTE_MS };

/// The price of storage requests of a save: one blob written, by the list of 2024 in docs/azure.md.
pub const ASSUMED_SAVE_COST: Cost = Cost::from_nanos(5_500);

/// The regular machines of `balanced` and of `swap`, as the presets of `infra/` have them.
pub const MIX_DEFAULT: Mix = Mix { base: 2, percent_above: 25 };
/// See [`Inputs::swap`].
pub const SWAP_DEFAULT: (u32, u32) = (2, 3);

/// The fewest runs of a strategy, unless fewer are asked for: fewer say nothing of nine in ten.
pub(super) const RUNS_MIN: u64 = 10;

/// The most events of all runs of a plan: they take some five seconds on two cores.
pub const EVENTS_MAX: u64 = 150_000_000;

impl Inputs {
    /// A plan of `jobs` equal jobs on up to `instances` machines, as a base for changes.
    ///
    /// Jobs save, in 20 ms as workers assume before they have measured; machines have one slot and the assumed boot
    /// and notice; `balanced` has the preset's base of 2 and 25 % above; nothing is known of evictions; 200 runs, after
    /// which the interval of a mean is a few percent of its spread, or fewer if they have more than [`EVENTS_MAX`].
    #[must_use]
    pub fn new(jobs: usize, job_ms: u64, instances: u32, spot: Price, regular: Price) -> Self {
        let free = Price::from_nanos_per_hour(0);
        Self {
            jobs_ms: vec![job_ms; jobs],
            jobs_source: Source::Given,
            size: None,
            region: None,
            instances,
            slots: 1,
            can_save: true,
            save_ms: None,
            save_source: Source::Given,
            state_bytes: None,
            boot_ms: None,
            deadline_ms: None,
            budget: None,
            prices: Prices {
                spot: PriceSteps::constant(spot),
                regular,
                disks: free,
                always: free,
                save: ASSUMED_SAVE_COST,
                traffic: Cost::from_nanos(0),
                source: Source::Given,
            },
            max_price: MaxPrice::OnDemand,
            evictions: Known::Unknown,
            availability: None,
            notice: Some(ASSUMED_NOTICE),
            refused: 0.0,
            mix: MIX_DEFAULT,
            swap: SWAP_DEFAULT,
            runs: 200,
            events_max: EVENTS_MAX,
            seed: 0,
        }
    }

    /// The most events of one run: ten with more would exceed what all may have.
    pub(super) fn run_events_max(&self) -> u64 {
        self.events_max.min(EVENTS_MAX) / RUNS_MIN
    }

    /// The seeds of the runs.
    pub(super) fn seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(u64::from(self.runs))
    }

    /// Checks what can be said without a simulation.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), PlanError> {
        if let Some(size) = &self.size {
            support::check_size(size)?;
        }
        if let Some(region) = &self.region {
            support::check_region(region)?;
        }
        if let MaxPrice::Of(price) = self.max_price {
            support::check_max_price(price.nanos_per_hour())?;
            if self.prices.spot.bounds().0 > price {
                return Err(PlanError::MaxPrice);
            }
        }
        if self.seeds().is_empty() {
            return Err(PlanError::NoRuns);
        }
        if self.prices.regular.nanos_per_hour() == 0 {
            return Err(PlanError::FreeRegular);
        }
        self.evictions.check()
    }
}

impl Known {
    fn check(&self) -> Result<(), PlanError> {
        // A second between losses at least, on average: fewer is another unit of time, and endless events.
        let takes_time = |losses: &[Loss]| {
            let time_ms = losses.iter().fold(0, |sum: u64, loss| sum.saturating_add(loss.after_ms));
            let is_lost = losses.iter().any(|loss| loss.lost > 0);
            is_lost && time_ms >= losses.len() as u64 * 1000
        };
        match self {
            Self::Rate { low, high, pattern, .. } => {
                let high = high.unwrap_or(*low);
                if !(0.0..1.0).contains(low) || !(0.0..1.0).contains(&high) {
                    Err(PlanError::Rate)
                } else if high < *low {
                    Err(PlanError::RateOrder)
                } else if pattern.as_ref().is_some_and(|losses| !takes_time(losses)) {
                    Err(PlanError::NoLosses)
                } else {
                    Ok(())
                }
            }
            Self::Losses(losses, _) if !takes_time(losses) => Err(PlanError::NoLosses),
            Self::Losses(..) | Self::Lives(..) | Self::Availability(..) | Self::Unknown => Ok(()),
        }
    }
}

/// A reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Azure has no such Spot machine.
    Unsupported(Unsupported),
    /// The batch can't be simulated.
    Model(ModelError),
    /// A strategy can't be simulated.
    Strategy(StrategyError),
    /// There is no run.
    NoRuns,
    /// A regular machine costs nothing.
    FreeRegular,
    /// All machines are evicted within an hour, or a share is negative.
    Rate,
    /// The interval of the rate ends below where it begins.
    RateOrder,
    /// The Spot price is always above the maximum.
    MaxPrice,
    /// The losses of a fleet have no time between them, or there are none.
    NoLosses,
    /// Regular machines alone take longer than a run may.
    TooLong,
    /// A run has more events than can be simulated in good time.
    TooManyEvents,
    /// Jobs would save all the time.
    OnlySaves {
        /// The time of a save.
        save_ms: u64,
        /// The time after which workers save again.
        interval_ms: u64,
    },
    /// Regular machines alone take longer than the deadline allows.
    ImpossibleDeadline {
        /// The deadline.
        deadline_ms: u64,
        /// The time that regular machines take.
        needed_ms: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(fault) => fault.fmt(f),
            Self::Model(fault) => fault.fmt(f),
            Self::Strategy(fault) => fault.fmt(f),
            Self::NoRuns => f.write_str("the plan has no run: give at least one"),
            Self::FreeRegular => {
                f.write_str("the regular price is zero: give the price of a regular machine")
            }
            Self::Rate => f.write_str(
                "an eviction rate has to be from 0 to below 100 % an hour: at 100 % no machine is there to plan with",
            ),
            Self::RateOrder => {
                f.write_str("the interval of the eviction rate is backwards: give its lower end first")
            }
            Self::MaxPrice => f.write_str(
                "the Spot price is above the maximum price at all times, so there would be no Spot machine: give a \
                 higher one, or none",
            ),
            Self::NoLosses => {
                f.write_str("the trace has no losses with time between them: check its unit of time")
            }
            Self::TooLong => f.write_str(
                "the batch takes more than ten years on regular machines alone: check the times of jobs, or give \
                 more machines",
            ),
            Self::TooManyEvents => f.write_str(
                "a run has too many events to be simulated: give fewer machines, a trace with coarser steps, or a \
                 shorter batch",
            ),
            Self::OnlySaves { save_ms, interval_ms } => write!(
                f,
                "a save takes {}, and jobs save again {} after they began to, so they would do nothing else: make saves \
                 shorter, or let jobs save nothing",
                at_most(*save_ms),
                at_most(*interval_ms),
            ),
            Self::ImpossibleDeadline { deadline_ms, needed_ms } => write!(
                f,
                "the deadline of {} can't be met: regular machines alone take {}, so allow more time or more machines",
                at_most(*deadline_ms),
                at_least(*needed_ms),
            ),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<Unsupported> for PlanError {
    fn from(fault: Unsupported) -> Self {
        Self::Unsupported(fault)
    }
}

impl From<ModelError> for PlanError {
    fn from(fault: ModelError) -> Self {
        Self::Model(fault)
    }
}

impl From<StrategyError> for PlanError {
    fn from(fault: StrategyError) -> Self {
        Self::Strategy(fault)
    }
}
