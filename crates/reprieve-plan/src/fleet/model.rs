//! The work, the machines and the market of a simulated batch.

use std::fmt;
use std::num::NonZeroU64;

use super::bursts::Bursts;
use super::prices::PriceSteps;
use crate::availability::Series;
use crate::lifetime::Lifetime;
use crate::money::{Cost, Price};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// The longest time after which a run ends. Results have a row for each hour.
pub const LIMIT_MAX_MS: u64 = 3_650 * DAY_MS;

/// A batch and the world that it runs in; the same for all strategies.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The jobs.
    pub work: Work,
    /// The machines.
    pub machines: Machines,
    /// Prices and evictions.
    pub market: Market,
    /// The time after which a run ends that has not finished: a fleet may lose all its machines for good.
    pub limit_ms: u64,
}

/// The jobs of a batch, all in the queue at the beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The run time of each job, in the order of the queue: equal, or as measured.
    pub jobs_ms: Vec<u64>,
    /// The run time between two saves of a job; `None` for jobs that can't be cut.
    pub checkpoint_ms: Option<NonZeroU64>,
    /// Whether a job whose worker died saves more often for an interval, as workers do.
    pub is_careful: bool,
    /// The time that a save takes. The job does not work in it.
    pub save_ms: u64,
    /// The time until a job that was saved works again on another machine.
    pub restore_ms: u64,
    /// The price of the storage requests of one save.
    pub save_cost: Cost,
    /// The price of the traffic of one saved state, on its way to the store or back.
    pub traffic_cost: Cost,
}

/// What machines of both priorities have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// The number of jobs that one machine runs at a time.
    pub slots: u32,
    /// The least and the longest time from allocation until a machine takes jobs. It is billed.
    pub boot_ms: (u64, u64),
    /// How long a message stays leased after its last renewal.
    pub lease_ms: u64,
}

/// Prices, and how machines come and go.
#[derive(Clone, Debug, PartialEq)]
pub struct Market {
    /// The price of a Spot machine over time.
    pub spot: PriceSteps,
    /// The price of a regular machine. It is never evicted, and can always be had.
    pub regular: Price,
    /// The price of a machine's disks, which are billed from its first allocation until it is deleted.
    pub disks: Price,
    /// What is paid for each hour of the run, whatever machines there are: gateways, addresses.
    pub always: Price,
    /// How Spot machines are evicted for capacity.
    pub evictions: Evictions,
    /// The notice of an eviction; `None` if there is none.
    pub notice: Option<Notice>,
    /// The share of requests for a Spot machine that find no capacity (`SkuNotAvailable`), besides those that
    /// [`Evictions::Capacity`] refuses.
    pub refused: f64,
    /// The time between two attempts to get a machine.
    pub retry_ms: u64,
}

/// How Spot machines are evicted for capacity.
#[derive(Clone, Debug, PartialEq)]
pub enum Evictions {
    /// Each machine for itself.
    Each(Lifetime),
    /// Several at a moment, as a fleet of a trace lost them.
    Together(Bursts),
    /// As the number of Spot machines falls that can be had. A run begins at a random moment of the series.
    Capacity(Series),
}

/// The notice of an eviction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Notice {
    /// The time from the notice until the machine is gone; jobs save and are released in it.
    pub lead_ms: u64,
    /// The share of evictions that are announced.
    pub share: f64,
    /// The time after a boot in which there is no notice yet: events flow within five minutes of the first poll.
    pub blind_ms: u64,
}

impl Work {
    /// The checkpoint interval as workers count it: from the beginning of a save to that of the next. `None` for jobs
    /// that can't be cut.
    #[must_use]
    pub fn interval_ms(&self) -> Option<u64> {
        self.checkpoint_ms.map(|work_ms| work_ms.get().saturating_add(self.save_ms))
    }

    /// Sets that interval. A save that takes longer leaves hardly any time to work.
    pub fn set_interval_ms(&mut self, interval_ms: u64) {
        self.checkpoint_ms = NonZeroU64::new(interval_ms.saturating_sub(self.save_ms).max(1));
    }
}

impl Model {
    /// A model of `jobs` equal jobs without evictions, saves and boot times, as a base for changes.
    ///
    /// Leases are those of workers, 60 s; attempts for a machine come once a minute; a run ends after 30 days.
    #[must_use]
    pub fn new(jobs: usize, job_ms: u64, spot: Price, regular: Price) -> Self {
        Self {
            work: Work {
                jobs_ms: vec![job_ms; jobs],
                checkpoint_ms: NonZeroU64::new(5 * MINUTE_MS),
                is_careful: true,
                save_ms: 0,
                restore_ms: 0,
                save_cost: Cost::default(),
                traffic_cost: Cost::default(),
            },
            machines: Machines { slots: 1, boot_ms: (0, 0), lease_ms: MINUTE_MS },
            market: Market {
                spot: PriceSteps::constant(spot),
                regular,
                disks: Price::from_nanos_per_hour(0),
                always: Price::from_nanos_per_hour(0),
                evictions: Evictions::Each(Lifetime::Endless),
                notice: None,
                refused: 0.0,
                retry_ms: MINUTE_MS,
            },
            limit_ms: 30 * DAY_MS,
        }
    }

    /// Checks that the model can be simulated.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.work.jobs_ms.is_empty() || self.work.jobs_ms.contains(&0) {
            Err(ModelError::NoWork)
        } else if self.limit_ms > LIMIT_MAX_MS {
            Err(ModelError::Limit)
        } else if self.machines.slots == 0 {
            Err(ModelError::NoSlots)
        } else if self.machines.boot_ms.0 > self.machines.boot_ms.1 {
            Err(ModelError::Boot)
        } else if self.market.retry_ms == 0 {
            Err(ModelError::NoRetry)
        } else if !(0.0..1.0).contains(&self.market.refused) {
            Err(ModelError::Refused)
        } else if self.market.notice.is_some_and(|notice| !(0.0..=1.0).contains(&notice.share)) {
            Err(ModelError::NoticeShare)
        } else {
            Ok(())
        }
    }
}

/// A reason why a model can't be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelError {
    /// There is no job, or one that takes no time.
    NoWork,
    /// A run may take longer than [`LIMIT_MAX_MS`].
    Limit,
    /// A machine runs no job.
    NoSlots,
    /// The longest boot is shorter than the least.
    Boot,
    /// Attempts for a machine follow each other without time between.
    NoRetry,
    /// The share of refused requests is not from 0 to below 1.
    Refused,
    /// The share of announced evictions is not from 0 to 1.
    NoticeShare,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWork => "the batch has no work: give at least one job, and times above zero",
            Self::Limit => "the limit of a run is longer than ten years: give a shorter one",
            Self::NoSlots => "a machine has no slot for a job: give at least one",
            Self::Boot => "the longest boot is shorter than the least: give them in order",
            Self::NoRetry => {
                "the time between two attempts for a machine is zero: give at least a millisecond"
            }
            Self::Refused => "the share of refused requests has to be from 0 to below 1",
            Self::NoticeShare => "the share of evictions with a notice has to be from 0 to 1",
        })
    }
}

impl std::error::Error for ModelError {}
