//! The batch of a plan: its jobs, what a save costs, and how many machines it gets.

use reprieve::{Error, ErrorKind, Result};
use reprieve_plan::plan::{ASSUMED_BOOT_MS, Assumption, INSTANCES_MAX, Source};

use super::args::{BatchArgs, FleetArgs};
use super::values::millis;

/// The machines that a plan has without a deadline: those of the presets `elastic` and `balanced`.
const VMS_DEFAULT: u32 = 20;

/// Equal jobs.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) jobs: u64,
    /// The time of a job, on the first size.
    pub(super) job_ms: u64,
    /// Where the jobs and their time are from.
    pub(super) source: Source,
    pub(super) save_ms: Option<u64>,
    /// Where the time of a save is from, if it is known.
    pub(super) save_source: Source,
}

impl Batch {
    /// The batch by its flags.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if a flag is missing.
    pub(super) fn given(args: &BatchArgs) -> Result<Self> {
        let (Some(jobs), Some(job_time)) = (args.jobs, args.job_time) else {
            return Err(invalid("the batch is not known: give --jobs and --job-time, or --like-batch"));
        };
        Ok(Self {
            jobs,
            job_ms: millis(job_time),
            source: Source::Given,
            save_ms: args.save_cost.map(millis),
            save_source: Source::Given,
        })
    }

    /// The time of a job on a machine that is so many times as fast.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a time that was measured, to the next millisecond; a float saturates"
    )]
    pub(super) fn job_ms_at(&self, speed: f64) -> u64 {
        if (speed - 1.0).abs() < f64::EPSILON {
            return self.job_ms;
        }
        ((self.job_ms as f64 / speed).ceil() as u64).max(1)
    }

    /// How many machines the batch gets if its jobs take `job_ms`, and why.
    pub(super) fn machines(&self, job_ms: u64, args: &BatchArgs, fleet: &FleetArgs) -> (u32, Assumption) {
        let slots = u64::from(fleet.slots);
        let useful = self.jobs.div_ceil(slots);
        let (machines, source) = match (fleet.vms, args.deadline) {
            (Some(given), _) => (u64::from(given), Source::Given),
            (None, Some(deadline)) => {
                let boot_ms = fleet.boot.unwrap_or(ASSUMED_BOOT_MS).1;
                let time_ms = millis(deadline).saturating_sub(boot_ms) / 4 * 3;
                let waves = (time_ms / job_ms.max(1)).max(1);
                let why =
                    "as many as are done in three quarters of the deadline without an eviction; give --vms";
                let needed = self.jobs.div_ceil(waves.saturating_mul(slots));
                let most = u64::from(INSTANCES_MAX);
                let too_many = "the most that infra/ deploys; three quarters of the deadline would take more";
                (needed.min(most), Source::Assumed(if needed > most { too_many } else { why }))
            }
            (None, None) => {
                let why =
                    "as many as the preset elastic has, or as there are jobs for; give --vms or --deadline";
                (useful.min(VMS_DEFAULT.into()), Source::Assumed(why))
            }
        };
        let machines = u32::try_from(machines).unwrap_or(u32::MAX);
        let each = if fleet.slots == 1 { "one job".to_owned() } else { format!("{slots} jobs") };
        let value = format!("up to {machines}, {each} at a time on each");
        (machines, Assumption { subject: "VMs", value, source })
    }
}

/// A fault of the command line.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "plan the batch", message.into())
}
