//! The worlds in which strategies are compared: one for each end of what is known of evictions.

use super::inputs::{ASSUMED_BOOT_MS, Inputs, Known, PlanError};
use crate::availability::Loss;
use crate::checkpoint::{between_ms, young_ms};
use crate::fleet::{Bursts, Evictions, LIMIT_MAX_MS, Model, Strategy, simulate_within};
use crate::lifetime::{Lifetime, Resampled};
use crate::words::percent;

/// The time that workers assume for a save before they have measured one.
const ASSUMED_SAVE_MS: u64 = 20;

/// The assumed speed at which a state is saved or restored, in bytes per millisecond: 50 MB/s.
const ASSUMED_BYTES_PER_MS: u64 = 50_000;

/// The rates an hour that are simulated where nothing is known: none, and the end of Azure's highest closed band.
const UNKNOWN_RATES: [f64; 2] = [0.0, 0.2];

/// The least time after which a run ends.
const LIMIT_MIN_MS: u64 = 7 * 24 * 3_600_000;

/// One world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How machines are evicted in it, for the head of a column.
    pub name: String,
    /// The model.
    pub model: Model,
}

/// The time of a save, and of a restore.
pub(super) fn save_ms(inputs: &Inputs) -> u64 {
    let derived = inputs.state_bytes.map(|bytes| bytes.div_ceil(ASSUMED_BYTES_PER_MS).max(ASSUMED_SAVE_MS));
    inputs.save_ms.or(derived).unwrap_or(ASSUMED_SAVE_MS)
}

/// The worlds of `inputs`, each with the interval at which workers would save in it.
pub(super) fn scenarios(inputs: &Inputs) -> Vec<Scenario> {
    let worlds = match &inputs.evictions {
        Known::Rate { low, high, pattern, .. } => {
            let mut rates = vec![*low];
            rates.extend(high.filter(|high| high > low));
            rates.into_iter().map(|rate| at_rate(rate, pattern.as_deref())).collect()
        }
        Known::Lives(lives, _) => {
            let resampled = Lifetime::Resampled(Resampled::new(lives));
            vec![("lives of the trace".to_owned(), Evictions::Each(resampled))]
        }
        Known::Losses(losses, _) => {
            vec![("losses of the trace".to_owned(), Evictions::Together(Bursts::new(losses.clone())))]
        }
        Known::Availability(series, _) => {
            vec![("availability of the trace".to_owned(), Evictions::Capacity(series.clone()))]
        }
        Known::Unknown => UNKNOWN_RATES.map(|rate| at_rate(rate, None)).into(),
    };
    worlds.into_iter().map(|(name, evictions)| scenario(inputs, name, evictions)).collect()
}

fn at_rate(rate: f64, pattern: Option<&[Loss]>) -> (String, Evictions) {
    let evictions = match pattern {
        Some(losses) if rate > 0.0 => Evictions::Together(Bursts::new(losses.to_vec()).at_hourly_rate(rate)),
        Some(_) | None => Evictions::Each(Lifetime::from_hourly_rate(rate)),
    };
    (format!("{} % evicted an hour", percent(rate)), evictions)
}

fn scenario(inputs: &Inputs, name: String, evictions: Evictions) -> Scenario {
    let mut model = Model::new(0, 0, inputs.prices.spot.at(0), inputs.prices.regular);
    model.work.jobs_ms.clone_from(&inputs.jobs_ms);
    model.work.save_ms = save_ms(inputs);
    model.work.restore_ms = model.work.save_ms;
    model.work.save_cost = inputs.prices.save;
    model.work.traffic_cost = inputs.prices.traffic;
    model.machines.slots = inputs.slots;
    model.machines.boot_ms = inputs.boot_ms.unwrap_or(ASSUMED_BOOT_MS);
    model.market.spot = inputs.prices.spot.clone();
    model.market.disks = inputs.prices.disks;
    model.market.always = inputs.prices.always;
    model.market.evictions = evictions;
    model.market.notice = inputs.notice;
    model.market.refused = inputs.refused;
    model.limit_ms = limit_ms(inputs);
    Scenario { name, model }
}

/// Ten times the work of each slot, and a week and the deadline at least: a batch that takes longer than that is not being
/// done. No more than a run may have.
fn limit_ms(inputs: &Inputs) -> u64 {
    let slots = u64::from(inputs.instances.max(1)) * u64::from(inputs.slots.max(1));
    let work_ms = inputs.jobs_ms.iter().fold(0, |sum: u64, job_ms| sum.saturating_add(*job_ms));
    let longest_ms = inputs.jobs_ms.iter().copied().max().unwrap_or_default();
    let least_ms = inputs.deadline_ms.unwrap_or(0).clamp(LIMIT_MIN_MS, LIMIT_MAX_MS);
    (work_ms / slots).max(longest_ms).saturating_mul(10).clamp(least_ms, LIMIT_MAX_MS)
}

impl Scenario {
    /// Sets the interval to which workers come in this world: by the losses of a first run, and those that they assume.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooManyEvents`] if that run has more than `events_max`; [`PlanError::OnlySaves`] if a save takes as long
    /// as the interval, and a job is longer than that.
    pub(super) fn set_interval(&mut self, instances: u32, events_max: u64) -> Result<(), PlanError> {
        let work = &mut self.model.work;
        let interval_ms = young_ms(work.save_ms, between_ms(0, 0));
        // The first save comes a whole interval after a job began.
        let has_saves = work.jobs_ms.iter().any(|job_ms| *job_ms > interval_ms);
        if has_saves && interval_ms <= work.save_ms {
            return Err(PlanError::OnlySaves { save_ms: work.save_ms, interval_ms });
        }
        work.set_interval_ms(interval_ms);
        let pilot = simulate_within(&self.model, &Strategy::steady_fleet(instances), 0, events_max);
        if pilot.events > events_max {
            return Err(PlanError::TooManyEvents);
        }
        let vm_ms = pilot.hours.iter().map(|hour| hour.spot_ms).sum();
        let work = &mut self.model.work;
        work.set_interval_ms(young_ms(work.save_ms, between_ms(pilot.unsaved, vm_ms)));
        Ok(())
    }
}
