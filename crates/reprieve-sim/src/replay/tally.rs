//! Counts of what happened, from the journal and from the workers' calls to the store. They are what a perfect ledger
//! could know: of a machine that was cut off, only what was so before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_core::MessageId;

use super::jobs::{Habit, KINDS};
use super::journal::{Happened, Noted, StepEnd};
use super::process::STALL_AFTER;
use super::{Plan, Replay};
use crate::fleet::{Event, PACE, What};

/// A machine, from its boot to its end.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) zone: &'static str,
    pub(super) booted: Duration,
    pub(super) started: Duration,
    /// Until when it was known to live.
    pub(super) until: Duration,
    pub(super) evicted: Option<Evicted>,
}

/// An eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evicted {
    /// The lead time that its worker heard; `None` if it heard nothing.
    pub(super) lead: Option<Duration>,
}

/// An interruption of a worker.
#[derive(Debug, Clone)]
pub(super) struct Interrupted {
    pub(super) process: u32,
    /// When it was announced; of a process that died, when it last reached the store.
    pub(super) at: Duration,
    /// The kind of notice, or `died`.
    pub(super) kind: &'static str,
    /// The jobs that it held.
    pub(super) jobs: Vec<usize>,
    /// Those that it began or ceased to hold so late that its last report may not tell. None of a drain.
    pub(super) unsure: BTreeMap<usize, Work>,
    /// How the drain left them: those that were saved and cut, and those that ended.
    pub(super) saved: u64,
    pub(super) cut: u64,
    pub(super) finished: u64,
    /// When the last one was released.
    pub(super) released: Option<Duration>,
    pub(super) lost: Duration,
    pub(super) kept: Duration,
}

/// The work of a delivery, since its last save and before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) lost: Duration,
    pub(super) kept: Duration,
}

impl Interrupted {
    /// Those that it may have held by its last report.
    pub(super) fn possible_jobs(&self) -> BTreeSet<usize> {
        self.jobs.iter().chain(self.unsure.keys()).copied().collect()
    }
}

/// The failures of one kind of job for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Failures {
    pub(super) count: u64,
    pub(super) poisoned: u64,
}

/// The counts.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) lives: Vec<Life>,
    pub(super) interruptions: Vec<Interrupted>,
    /// By the kind of job and the reason.
    pub(super) failures: BTreeMap<(&'static str, &'static str), Failures>,
    pub(super) failures_of: BTreeMap<usize, u64>,
    /// By layer and action.
    pub(super) healings: BTreeMap<(&'static str, &'static str), u64>,
}

/// What is known of one process.
struct Process {
    number: u32,
    machine: usize,
    started: Duration,
    /// When it ended; the end of the replay if it did not.
    ended: Duration,
    /// When it was cut off from the store, and until when.
    cut_off: Vec<(Duration, Duration)>,
    /// The notice that it got: when, and how long ahead.
    noticed: Option<(Duration, Duration)>,
}

impl Process {
    fn is_cut_off(&self, at: Duration) -> bool {
        self.cut_off.iter().any(|(from, to)| *from <= at && at < *to)
    }

    /// When it last reached the store.
    fn last_contact(&self) -> Duration {
        let cut_off = self.cut_off.iter().find(|(_, to)| *to >= self.ended);
        cut_off.map_or(self.ended, |(from, _)| *from)
    }

    /// Whether it ever did.
    fn was_known(&self) -> bool {
        self.last_contact() > self.started
    }

    /// The notice, if it could do something about it.
    fn heard(&self) -> Option<(Duration, Duration)> {
        self.noticed.filter(|(at, _)| !self.is_cut_off(*at))
    }
}

/// Reads the journal.
struct Reader<'a> {
    plan: &'a Plan,
    journal: &'a [Noted],
    calls: &'a [Event],
    end: Duration,
}

impl Tally {
    pub(super) fn of(replay: &Replay) -> Self {
        let reader =
            Reader { plan: &replay.plan, journal: &replay.journal, calls: &replay.calls, end: replay.lasted };
        let processes = reader.processes();
        let interruptions: Vec<_> =
            processes.iter().filter_map(|process| reader.interruption(process)).collect();
        let repairs = reader.repairs(&processes);
        let (failures, failures_of) = reader.failures();
        let stalled =
            failures.iter().filter(|((_, reason), _)| *reason == STALLED).map(|(_, it)| it.count).sum();
        let reported = repairs.len() as u64;
        let healings = [
            (("job", "stop_job"), stalled),
            (("vm", "diagnose"), reported),
            (("vm", "report_unhealthy"), reported),
        ];
        let lives = reader.lives(&processes, &interruptions);
        Self {
            lives,
            interruptions: [interruptions, repairs].concat(),
            failures,
            failures_of,
            healings: healings.into(),
        }
    }
}

/// The reasons of failures, without their numbers.
const QUOTA: &str = "disk quota of tenant # is used up";
const PANICKED: &str = "the job panicked: page # of the book is missing";
const STALLED: &str = "stalled: a step made no save and no progress for # s (step #)";

impl Reader<'_> {
    fn processes(&self) -> Vec<Process> {
        let mut processes: Vec<Process> = Vec::new();
        for Noted { at, what } in self.journal {
            let of = |process: u32| move |it: &&mut Process| it.number == process;
            match *what {
                Happened::Started { machine, process: number } => processes.push(Process {
                    number,
                    machine,
                    started: *at,
                    ended: self.end,
                    cut_off: Vec::new(),
                    noticed: None,
                }),
                Happened::Evicted { machine } | Happened::Repaired { machine } => {
                    for process in
                        processes.iter_mut().filter(|it| it.machine == machine && it.ended == self.end)
                    {
                        process.ended = *at;
                    }
                }
                Happened::Killed { process } => {
                    processes.iter_mut().filter(of(process)).for_each(|it| it.ended = *at);
                }
                Happened::CutOff { process } => {
                    let until = self.end;
                    processes.iter_mut().filter(of(process)).for_each(|it| it.cut_off.push((*at, until)));
                }
                Happened::Reached { process } => {
                    let open =
                        processes.iter_mut().filter(of(process)).filter_map(|it| it.cut_off.last_mut());
                    open.for_each(|it| it.1 = *at);
                }
                Happened::Noticed { process, lead, .. } => {
                    processes.iter_mut().filter(of(process)).for_each(|it| it.noticed = Some((*at, lead)));
                }
                _ => {}
            }
        }
        processes
    }

    /// Whether the process was killed, and its machine goes on.
    fn was_killed(&self, number: u32) -> bool {
        self.journal.iter().any(|it| it.what == Happened::Killed { process: number })
    }

    fn was_evicted(&self, number: usize) -> bool {
        self.journal.iter().any(|it| it.what == Happened::Evicted { machine: number })
    }

    /// The drain or the death of a process; `None` if it lives, was repaired, or held nothing when it died: nobody
    /// finds that out.
    fn interruption(&self, process: &Process) -> Option<Interrupted> {
        if process.was_known()
            && let Some((at, _)) = process.heard()
        {
            return Some(self.drain(process, at, "Preempt"));
        }
        if !self.was_killed(process.number) && !self.was_evicted(process.machine) {
            return None;
        }
        let at = process.last_contact();
        let jobs = held(self.calls, process.number, at);
        let work = |job: usize| {
            let (began, saved) = self.work(process.number, job, at);
            Work { lost: at.saturating_sub(saved), kept: saved.saturating_sub(began) }
        };
        let lost = jobs.iter().map(|job| work(*job).lost).sum();
        let kept = jobs.iter().map(|job| work(*job).kept).sum();
        let unsure =
            unreported(self.calls, process.number, at).into_iter().map(|job| (job, work(job))).collect();
        let died = Interrupted {
            process: process.number,
            at,
            kind: "died",
            jobs,
            unsure,
            saved: 0,
            cut: 0,
            finished: 0,
            released: None,
            lost,
            kept,
        };
        // The ledger may have a worker whose only jobs are unsure, or not. In the plans, each worker that dies has had a job for
        // minutes.
        (!died.jobs.is_empty()).then_some(died)
    }

    fn drain(&self, process: &Process, at: Duration, kind: &'static str) -> Interrupted {
        let number = process.number;
        let jobs = held(self.calls, number, at);
        let (mut saved, mut cut, mut finished) = (0, 0, 0);
        let (mut lost, mut kept) = (Duration::ZERO, Duration::ZERO);
        for job in &jobs {
            // In a save between two steps it yields without another one.
            let step = self.last_step(number, *job, at, process.ended);
            let step = step.or_else(|| self.last_step(number, *job, Duration::ZERO, at));
            let Some((ended, step)) = step else { continue };
            // A save in the drain comes right after the step's end.
            let (began, last_saved) = self.work(number, *job, ended + AFTER_STEP);
            match step {
                StepEnd::Dropped => {
                    cut += 1;
                    lost += ended.saturating_sub(last_saved);
                }
                StepEnd::Done | StepEnd::Yielded => saved += 1,
                _ => {
                    finished += 1;
                    continue;
                }
            }
            kept += last_saved.saturating_sub(began);
        }
        let later = self.calls.iter().filter(|it| it.process == Some(number) && it.at >= at);
        let released = later.filter(|it| matches!(it.what, What::Released { .. })).map(|it| it.at).max();
        let unsure = BTreeMap::new();
        Interrupted { process: number, at, kind, jobs, unsure, saved, cut, finished, released, lost, kept }
    }

    /// The drains of the machines that reported themselves as unhealthy.
    fn repairs(&self, processes: &[Process]) -> Vec<Interrupted> {
        let unhealthy = self.journal.iter().filter_map(|it| match it.what {
            Happened::Unhealthy { machine } => Some((it.at, machine)),
            _ => None,
        });
        let drain = |(seen, machine): (Duration, usize)| {
            let process = processes.iter().find(|it| it.machine == machine && it.ended > seen)?;
            // Nothing says when it began; it has released everything in the half a minute before it was seen.
            let number = Some(process.number);
            let is_of_drain = |it: &&Event| it.process == number && it.at + PROBE > seen && it.at < seen;
            let released = |it: &&Event| matches!(it.what, What::Released { .. });
            let began = self.calls.iter().filter(is_of_drain).find(released).map_or(seen, |it| it.at);
            Some(self.drain(process, began.saturating_sub(AFTER_STEP), "Repair"))
        };
        unhealthy.filter_map(drain).collect()
    }

    /// When the present delivery of a job began on this process, and up to when its work was saved.
    fn work(&self, process: u32, job: usize, at: Duration) -> (Duration, Duration) {
        let steps = || {
            self.journal.iter().take_while(|it| it.at <= at).filter_map(|it| match it.what {
                Happened::Step { process: of, job: which, delivery, end }
                    if of == process && which == job =>
                {
                    Some((it.at, delivery, end))
                }
                _ => None,
            })
        };
        let Some((_, present, _)) = steps().last() else { return (at, at) };
        let began = steps().find(|(_, delivery, _)| *delivery == present).map_or(at, |it| it.0);
        let is_save = |it: &&Event| {
            it.process == Some(process)
                && (began..=at).contains(&it.at)
                && matches!(it.what, What::Written { job: which, saved: true, .. } if which == job)
        };
        let saved = self.calls.iter().filter(is_save).map(|it| it.at).max();
        // What is saved is the last step that had ended then.
        (began, saved.unwrap_or(began))
    }

    /// How the last step of a job on this process ended between these times.
    fn last_step(
        &self,
        process: u32,
        job: usize,
        from: Duration,
        to: Duration,
    ) -> Option<(Duration, StepEnd)> {
        let within = self.journal.iter().filter(|it| (from..=to).contains(&it.at));
        let mut of_job = within.filter_map(|it| match it.what {
            Happened::Step { process: of, job: which, end, .. } if of == process && which == job => {
                Some((it.at, end))
            }
            _ => None,
        });
        of_job.next_back()
    }

    fn lives(&self, processes: &[Process], interruptions: &[Interrupted]) -> Vec<Life> {
        let mut lives = Vec::new();
        for noted in self.journal {
            let Happened::Booted { machine, zone, .. } = noted.what else { continue };
            let on_it: Vec<_> =
                processes.iter().filter(|it| it.machine == machine && it.was_known()).collect();
            let (Some(first), Some(last)) = (on_it.first(), on_it.last()) else { continue };
            let is_known = interruptions.iter().any(|it| it.process == last.number);
            let evicted = (self.was_evicted(machine) && is_known)
                .then(|| Evicted { lead: last.heard().map(|(_, lead)| lead) });
            let until = match last.heard() {
                Some((at, lead)) => at + lead,
                None => last.last_contact(),
            };
            lives.push(Life { zone, booted: noted.at, started: first.started, until, evicted });
        }
        lives
    }

    #[expect(clippy::type_complexity, reason = "two maps of one pass")]
    fn failures(&self) -> (BTreeMap<(&'static str, &'static str), Failures>, BTreeMap<usize, u64>) {
        let (mut by_reason, mut by_job) = (BTreeMap::<_, Failures>::new(), BTreeMap::new());
        let mut hung: BTreeMap<usize, Duration> = BTreeMap::new();
        for noted in self.journal {
            let Happened::Step { job, end, .. } = noted.what else { continue };
            let march = &self.plan.jobs[job];
            let failed = match end {
                StepEnd::Hung => {
                    hung.insert(job, noted.at);
                    None
                }
                StepEnd::Failed { last } if matches!(march.habit, Habit::Panics(_)) => Some((PANICKED, last)),
                StepEnd::Failed { last } => Some((QUOTA, last)),
                // It was cut off for standing still, and not by a drain.
                StepEnd::Dropped if hung.remove(&job).is_some_and(|at| noted.at >= at + STALL_AFTER) => {
                    Some((STALLED, false))
                }
                _ => None,
            };
            let Some((reason, is_last)) = failed else { continue };
            let failures = by_reason.entry((KINDS[march.kind], reason)).or_default();
            failures.count += 1;
            failures.poisoned += u64::from(is_last);
            *by_job.entry(job).or_default() += 1;
        }
        (by_reason, by_job)
    }
}

/// How long after the end of a step its save, and the release of its message, come in a drain.
const AFTER_STEP: Duration = Duration::from_millis(500);

/// How long ago a machine that is seen to be unhealthy was healthy at most, with its drain.
const PROBE: Duration = Duration::from_secs(45);

/// For how long a worker may hold a job, or hold it no more, before a report tells: it reports no faster than the roster's
/// pace, at its look each second.
const UNTOLD: Duration = PACE.saturating_add(Duration::from_millis(1_500));

/// The jobs that a process may have received or let go of since its last report before `at`.
fn unreported(calls: &[Event], process: u32, at: Duration) -> Vec<usize> {
    let since = at.saturating_sub(UNTOLD);
    let of_call = |it: &Event| match &it.what {
        What::Received { message, .. }
        | What::Completed { message }
        | What::Released { message, .. }
        | What::DeadLettered { message, .. } => Some(message.clone()),
        _ => None,
    };
    let late = calls.iter().filter(|it| it.process == Some(process) && (since..at).contains(&it.at));
    jobs_of(calls, &late.filter_map(of_call).collect())
}

/// The jobs whose messages a process had a lease of.
pub(super) fn held(calls: &[Event], process: u32, at: Duration) -> Vec<usize> {
    let mut until = BTreeMap::new();
    for call in calls.iter().filter(|it| it.process == Some(process) && it.at < at) {
        match &call.what {
            What::Received { message, lease, .. } | What::Renewed { message, lease } => {
                until.insert(message, call.at + *lease);
            }
            What::Completed { message }
            | What::Released { message, .. }
            | What::DeadLettered { message, .. } => {
                until.remove(message);
            }
            _ => {}
        }
    }
    until.retain(|_, until| *until > at);
    jobs_of(calls, &until.into_keys().cloned().collect())
}

/// The jobs of these messages.
fn jobs_of(calls: &[Event], messages: &BTreeSet<MessageId>) -> Vec<usize> {
    let of_message = |it: &Event| match &it.what {
        What::Sent { job, message, .. } if messages.contains(message) => Some(*job),
        _ => None,
    };
    calls.iter().filter_map(of_message).collect()
}
