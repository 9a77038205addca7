//! Reconstructs the history from the journal, the logs and the lifetimes of the VMs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::fleet::{End, Lifetime};
use crate::history::{Eviction, History, JobHistory, Recovery, Shift, ShiftEnd, VmEnd, VmHistory};
use crate::journal::{Entry, StepEvent};
use crate::log::{Drained, LogEvent, Logged};
use crate::store::StoreKind;

/// The observations of a demo.
#[derive(Debug)]
pub(crate) struct Observations {
    pub(crate) seed: u64,
    pub(crate) store: StoreKind,
    pub(crate) notice: Duration,
    pub(crate) checkpoint_every: Duration,
    pub(crate) steps_per_job: u32,
    pub(crate) outputs: Vec<Output>,
    pub(crate) output_digest: String,
    pub(crate) reference_digest: String,
    /// In the order in which they began.
    pub(crate) lifetimes: Vec<Lifetime>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) logged: Vec<Logged>,
}

/// The output of a job.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) id: String,
    /// Whether its result is there.
    pub(crate) has_result: bool,
    pub(crate) png: Option<Vec<u8>>,
    pub(crate) matches_reference: bool,
}

/// A shift of a VM at a job, as in the journal.
#[derive(Debug)]
struct RawShift {
    vm: String,
    job: usize,
    from: i64,
    last: i64,
    first_step: u32,
    steps: u32,
    redone: u32,
}

impl RawShift {
    /// The step after the last one that it did.
    const fn reached(&self) -> u32 {
        self.first_step + self.steps
    }
}

/// The end of a VM, with the report of its drain.
struct VmOutcome<'a> {
    life: &'a Lifetime,
    /// When it read its notice, and the drain that followed.
    drained: Option<(i64, Drained)>,
}

impl Observations {
    /// The history.
    pub(crate) fn reconstruct(self) -> History {
        let clock = Clock { began: self.lifetimes.first().map_or(0, |life| life.began_unix_ms) };
        let raw_shifts = raw_shifts(&self.entries);
        let completed: HashMap<_, _> = self.completions().map(|(vm, id, at)| ((vm, id), at)).collect();
        let ended =
            completed.values().copied().chain(self.entries.iter().map(|entry| entry.at_unix_ms)).max();
        let took_ms = clock.ms(completed.values().copied().max().or(ended).unwrap_or(clock.began));
        let reconstruction =
            Reconstruction { seen: &self, raw_shifts: &raw_shifts, completed: &completed, clock };
        let vms = self.lifetimes.iter().map(|life| reconstruction.vm(life)).collect();
        let logged = |id: &str| self.completions().filter(|(_, of, _)| *of == id).count();
        let jobs = self.outputs.iter().map(|output| JobHistory {
            id: output.id.clone(),
            png: output.png.clone(),
            matches_reference: output.matches_reference,
            // A worker that was killed just after completing a job has not logged it, but the
            // result exists. Without a result a job is not completed, whatever the logs have.
            completions: if output.has_result {
                u32::try_from(logged(&output.id).max(1)).unwrap_or(u32::MAX)
            } else {
                0
            },
        });
        History {
            seed: self.seed,
            store: self.store,
            took_ms,
            notice_ms: millis(self.notice),
            checkpoint_every_ms: millis(self.checkpoint_every),
            steps_per_job: self.steps_per_job,
            jobs: jobs.collect(),
            vms,
            output_digest: self.output_digest.clone(),
            reference_digest: self.reference_digest.clone(),
        }
    }

    /// The logged completions: VM, job and time.
    fn completions(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        self.logged.iter().filter_map(|logged| match &logged.what {
            LogEvent::Completed { id } => Some((logged.vm.as_str(), id.as_str(), logged.at_unix_ms)),
            LogEvent::Drained(_) => None,
        })
    }
}

/// The data for the history of one VM.
struct Reconstruction<'a> {
    seen: &'a Observations,
    raw_shifts: &'a [RawShift],
    completed: &'a HashMap<(&'a str, &'a str), i64>,
    clock: Clock,
}

impl Reconstruction<'_> {
    fn vm(&self, life: &Lifetime) -> VmHistory {
        let drained = self.seen.logged.iter().filter(|logged| logged.vm == life.vm);
        let mut drained = drained.filter_map(|logged| match &logged.what {
            LogEvent::Drained(report) => Some((logged.noticed_unix_ms(report), *report)),
            LogEvent::Completed { .. } => None,
        });
        let outcome = VmOutcome { life, drained: drained.next_back() };
        let own = || self.raw_shifts.iter().enumerate().filter(|(_, raw)| raw.vm == life.vm);
        let (end, missed_notice_ms) = match (life.end, outcome.drained) {
            (End::Finished, _) => (VmEnd::Finished, None),
            (End::Evicted { announced_unix_ms }, Some((noticed, report))) => {
                (VmEnd::Evicted(self.eviction(announced_unix_ms, noticed, &report)), None)
            }
            (End::Evicted { announced_unix_ms }, None) => {
                (VmEnd::Killed(self.recoveries(&outcome)), Some(self.clock.ms(announced_unix_ms)))
            }
            (End::Killed, _) => (VmEnd::Killed(self.recoveries(&outcome)), None),
        };
        VmHistory {
            name: life.vm.clone(),
            began_ms: self.clock.ms(life.began_unix_ms),
            ended_ms: self.clock.ms(life.ended_unix_ms),
            end,
            missed_notice_ms,
            shifts: own().map(|(index, raw)| self.shift(index, raw, &outcome)).collect(),
        }
    }

    fn eviction(&self, announced: i64, noticed: i64, report: &Drained) -> Eviction {
        Eviction {
            announced_ms: self.clock.ms(announced),
            noticed_ms: self.clock.ms(noticed),
            released_after_ms: report.released_after_ms,
            held: report.held,
            abandoned: report.abandoned,
            work_lost_ms: report.work_lost_ms,
        }
    }

    /// The recoveries of the jobs that a killed VM held. A job that no VM resumed is lost, and
    /// counted elsewhere.
    fn recoveries(&self, outcome: &VmOutcome<'_>) -> Vec<Recovery> {
        let own = self.raw_shifts.iter().enumerate().filter(|(_, raw)| raw.vm == outcome.life.vm);
        let held = own.filter(|(index, raw)| self.end(*index, raw, outcome).0 == ShiftEnd::Killed);
        let recovery = |(index, raw): (usize, &RawShift)| {
            let next = self.next(index)?;
            Some(Recovery {
                job: raw.job,
                after_ms: positive(next.from - outcome.life.ended_unix_ms),
                steps_redone: raw.reached().saturating_sub(next.first_step),
            })
        };
        held.filter_map(recovery).collect()
    }

    fn shift(&self, index: usize, raw: &RawShift, outcome: &VmOutcome<'_>) -> Shift {
        let (end, to) = self.end(index, raw, outcome);
        Shift {
            job: raw.job,
            from_ms: self.clock.ms(raw.from),
            to_ms: self.clock.ms(to.max(raw.from)),
            first_step: raw.first_step,
            steps: raw.steps,
            redone: raw.redone,
            end,
        }
    }

    /// The end of a shift, and its time.
    fn end(&self, index: usize, raw: &RawShift, outcome: &VmOutcome<'_>) -> (ShiftEnd, i64) {
        let id = self.seen.outputs.get(raw.job).map_or("", |output| output.id.as_str());
        if let Some(&at) = self.completed.get(&(raw.vm.as_str(), id)) {
            return (ShiftEnd::Completed, at);
        }
        // As above: it was killed before it logged the completion.
        if raw.reached() == self.seen.steps_per_job && self.next(index).is_none() {
            return (ShiftEnd::Completed, raw.last);
        }
        match (outcome.life.end, outcome.drained) {
            (End::Evicted { .. }, Some((noticed, report))) => {
                (ShiftEnd::Released, noticed.saturating_add_unsigned(report.released_after_ms))
            }
            (End::Evicted { .. }, None) | (End::Killed, _) => (ShiftEnd::Killed, outcome.life.ended_unix_ms),
            // It released the job itself, as after a failed step.
            (End::Finished, _) => (ShiftEnd::Released, raw.last),
        }
    }

    /// The next shift at the same job.
    fn next(&self, index: usize) -> Option<&RawShift> {
        let (job, after) = (self.raw_shifts[index].job, &self.raw_shifts[index + 1..]);
        after.iter().find(|raw| raw.job == job)
    }
}

/// The journal's entries by owner, in the order in which they began.
fn raw_shifts(entries: &[Entry]) -> Vec<RawShift> {
    let mut index: BTreeMap<(&str, usize, u32), usize> = BTreeMap::new();
    let (mut raw_shifts, mut done) = (Vec::new(), HashSet::new());
    for entry in entries {
        let Entry { vm, job, delivery, step, at_unix_ms, what } = entry;
        let at = *index.entry((vm, *job, *delivery)).or_insert_with(|| {
            raw_shifts.push(RawShift {
                vm: vm.clone(),
                job: *job,
                from: *at_unix_ms,
                last: *at_unix_ms,
                first_step: *step,
                steps: 0,
                redone: 0,
            });
            raw_shifts.len() - 1
        });
        let raw = &mut raw_shifts[at];
        raw.last = raw.last.max(*at_unix_ms);
        if *what == StepEvent::Done {
            raw.steps += 1;
            raw.redone += u32::from(!done.insert((*job, *step)));
        }
    }
    raw_shifts
}

/// Turns times since the epoch into times since the demo began.
#[derive(Debug, Clone, Copy)]
struct Clock {
    began: i64,
}

impl Clock {
    fn ms(self, at_unix_ms: i64) -> u64 {
        positive(at_unix_ms - self.began)
    }
}

/// A span between two clocks' readings, which is not less than nothing.
fn positive(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
