//! Plays a plan: boots machines, takes them away, and disturbs them, until the jobs are done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use reprieve_core::envelope::{Data, Envelope};
use reprieve_core::ports::{NewMessage, Queue, Roster};
use reprieve_core::worker::report_every;
use reprieve_core::{Error, ErrorKind, JobId, Notice, NoticeKind, Result};
use serde_json::value::to_raw_value;
use tokio::time::{Instant, sleep_until};

use super::jobs::KINDS;
use super::journal::{Happened, Journal};
use super::plan::{DEAFNESS, OUTAGE, PRESSURE, Plan, SILENCE};
use super::process::{DISK, MEMORY, Process, Shared, Vm};
use super::trace::{Recorded, SLOTS};
use super::{Care, REPORTS_MAX_AGE};
use crate::fleet::{History, Trouble, What};

/// From the boot of a machine to the start of its worker.
const START_AFTER: Duration = Duration::from_secs(45);

/// How long a control loop hangs until the watchdog of the unit ends the process, and when systemd starts the next.
const WATCHDOG: Duration = Duration::from_secs(30);
const RESTART_AFTER: Duration = Duration::from_secs(2);

/// How often the platform asks for a machine's health, and how long it waits before it replaces it.
/// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-automatic-instance-repairs>
const PROBE_EVERY: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_mins(10);

/// From a machine that is replaced to its successor's boot.
const REPLACED_AFTER: Duration = Duration::from_mins(2);

/// How often to look whether the jobs are done, and how long to wait for the last entries then.
const LOOK: Duration = Duration::from_mins(1);
const LAST_ENTRIES: Duration = Duration::from_mins(3);

/// The latest end of a replay.
const LATEST: Duration = Duration::from_hours(48);

/// What is due.
#[derive(Debug)]
enum Due {
    Boot {
        slot: usize,
        name: String,
    },
    Start {
        slot: usize,
        vm: Arc<Vm>,
    },
    Notice {
        slot: usize,
        lead: Duration,
    },
    Evict {
        slot: usize,
    },
    Hang {
        slot: usize,
    },
    Kill {
        slot: usize,
        process: Arc<Process>,
    },
    /// Cuts these slots off the store, or connects them again.
    Store {
        slots: std::ops::Range<usize>,
        is_away: bool,
    },
    Metadata {
        slot: usize,
        is_away: bool,
    },
    Disk {
        slot: usize,
    },
    Short {
        slot: usize,
        of: Option<&'static str>,
    },
    Roster,
    Probe,
    Look,
}

/// A slot of the fleet.
#[derive(Debug, Default)]
struct Slot {
    vm: Option<Arc<Vm>>,
    process: Option<Arc<Process>>,
    is_cut_off: bool,
    is_deaf: bool,
    unhealthy_since: Option<Duration>,
}

pub(super) struct World<'a> {
    plan: &'a Plan,
    care: &'a dyn Care,
    pub(super) journal: Journal,
    pub(super) history: History,
    pub(super) shared: Shared,
    began: Instant,
    slots: [Slot; SLOTS],
    due: BTreeMap<(Duration, u64), Due>,
    scheduled: u64,
    machines: usize,
    processes: u32,
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Plan, care: &'a dyn Care) -> Self {
        Self {
            plan,
            care,
            journal: Journal::begin(),
            history: History::begin(),
            shared: Shared::default(),
            began: Instant::now(),
            slots: Default::default(),
            due: BTreeMap::new(),
            scheduled: 0,
            machines: 0,
            processes: 0,
        }
    }

    /// Plays it until all jobs have ended.
    pub(super) async fn play(&mut self) -> Result<()> {
        self.send().await?;
        self.schedule()?;
        while let Some(((at, _), due)) = self.due.pop_first() {
            sleep_until(self.began + at).await;
            if self.happen(due).await? {
                break;
            }
            if at > LATEST {
                return Err(Error::new(ErrorKind::TimedOut, "replay a fleet", "its jobs do not end"));
            }
        }
        tokio::time::sleep(LAST_ENTRIES).await;
        Ok(())
    }

    fn at(&mut self, at: Duration, due: Due) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), due);
    }

    fn after(&mut self, delay: Duration, due: Due) {
        let at = self.journal.now() + delay;
        self.at(at, due);
    }

    /// Sends all jobs.
    async fn send(&self) -> Result<()> {
        for march in &self.plan.jobs {
            let no_json = |error| Error::new(ErrorKind::Internal, "send a job", "no JSON").with_source(error);
            let args = to_raw_value(march).map_err(no_json)?;
            let body =
                Envelope::new(JobId::parse(march.id())?, KINDS[march.kind], Data::Inline(args)).to_body();
            for message in self.shared.queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await? {
                self.history.note(None, What::Sent { job: march.number, message, generation: 0 });
            }
        }
        Ok(())
    }

    fn schedule(&mut self) -> Result<()> {
        let machines = self.plan.trace.machines()?;
        let mut gone: Vec<(Duration, usize)> =
            machines.iter().filter_map(|it| Some((it.gone?, it.slot))).collect();
        gone.sort_unstable();
        let last = gone.last().map(|it| it.0).unwrap_or_default();
        for (number, (at, slot)) in gone.into_iter().enumerate() {
            if let Some(lead) = Plan::notice(number) {
                self.at(at.saturating_sub(lead), Due::Notice { slot, lead });
            }
            self.at(at, Due::Evict { slot });
        }
        for Recorded { slot, name, booted, .. } in machines {
            self.at(booted, Due::Boot { slot, name });
        }
        // The record is over: nobody is taken back any more.
        for slot in 0..SLOTS {
            self.at(last + minutes(5), Due::Boot { slot, name: format!("calm{slot}") });
        }
        self.at(last + minutes(10), Due::Look);
        self.at(Duration::ZERO, Due::Probe);
        self.schedule_faults();
        Ok(())
    }

    fn schedule_faults(&mut self) {
        let Plan { outage, hang, silence, deafness, read_only, low_memory, full_disk, .. } = *self.plan;
        let all = || 0..SLOTS;
        let one = |slot: usize| slot..slot + 1;
        self.at(minutes(outage), Due::Store { slots: all(), is_away: true });
        self.at(minutes(outage) + OUTAGE, Due::Store { slots: all(), is_away: false });
        self.at(minutes(silence.0), Due::Store { slots: one(silence.1), is_away: true });
        self.at(minutes(silence.0) + SILENCE, Due::Store { slots: one(silence.1), is_away: false });
        self.at(minutes(hang.0), Due::Hang { slot: hang.1 });
        let (at, slot) = deafness;
        self.at(minutes(at), Due::Metadata { slot, is_away: true });
        self.at(minutes(at) + DEAFNESS, Due::Metadata { slot, is_away: false });
        self.at(minutes(read_only.0), Due::Disk { slot: read_only.1 });
        for ((at, slot), of) in [(low_memory, MEMORY), (full_disk, DISK)] {
            self.at(minutes(at), Due::Short { slot, of: Some(of) });
            self.at(minutes(at) + PRESSURE, Due::Short { slot, of: None });
        }
        for (at, _) in [silence, low_memory, full_disk] {
            self.at(minutes(at + 2), Due::Roster);
        }
    }

    /// Does what is due. Returns whether all jobs have ended.
    async fn happen(&mut self, due: Due) -> Result<bool> {
        match due {
            Due::Boot { slot, name } => self.boot(slot, &name),
            Due::Start { slot, vm } => self.start(slot, &vm)?,
            Due::Notice { slot, lead } => self.announce(slot, lead),
            Due::Evict { slot } => {
                if let Some(machine) = self.take_away(slot) {
                    self.journal.note(Happened::Evicted { machine });
                }
            }
            Due::Hang { slot } => {
                if let Some(process) = self.slots[slot].process.clone() {
                    process.gate.freeze();
                    self.journal.note(Happened::CutOff { process: process.link.process });
                    self.after(WATCHDOG, Due::Kill { slot, process });
                }
            }
            Due::Kill { slot, process } => self.kill(slot, &process),
            Due::Store { slots, is_away } => slots.for_each(|slot| self.cut_off(slot, is_away)),
            Due::Metadata { slot, is_away } => self.deafen(slot, is_away),
            Due::Disk { slot } => {
                if let Some(vm) = &self.slots[slot].vm {
                    vm.is_read_only.store(true, Relaxed);
                    self.journal.note(Happened::Faulty { machine: vm.number });
                }
            }
            Due::Short { slot, of } => {
                if let Some(vm) = &self.slots[slot].vm {
                    vm.run_short(of);
                    self.journal.note(Happened::Short { machine: vm.number, of });
                }
            }
            Due::Roster => self.look_at_roster().await?,
            Due::Probe => {
                (0..SLOTS).for_each(|slot| self.probe(slot));
                self.after(PROBE_EVERY, Due::Probe);
            }
            Due::Look => {
                if self.shared.queue.depth().await?.total == 0 {
                    return Ok(true);
                }
                self.after(LOOK, Due::Look);
            }
        }
        Ok(false)
    }

    fn boot(&mut self, slot: usize, name: &str) {
        if self.slots[slot].vm.is_some() {
            return;
        }
        let zone = ["1", "2"][slot % 2];
        let vm = Vm::boot(self.machines, name, self.plan.trace.size(), zone);
        self.machines += 1;
        self.journal.note(Happened::Booted { machine: vm.number, name: name.to_owned(), zone });
        self.slots[slot].vm = Some(Arc::clone(&vm));
        self.after(START_AFTER, Due::Start { slot, vm });
    }

    fn start(&mut self, slot: usize, vm: &Arc<Vm>) -> Result<()> {
        let Slot { vm: present, is_cut_off, is_deaf, .. } = &self.slots[slot];
        if present.as_ref().is_none_or(|present| present.number != vm.number) {
            return Ok(());
        }
        let (is_cut_off, is_deaf) = (*is_cut_off, *is_deaf);
        self.processes += 1;
        let notes = (&self.journal, &self.history);
        let process = Process::start(self.processes, vm, is_deaf, &self.shared, notes, self.care)?;
        self.slots[slot].process = Some(process);
        if is_cut_off {
            self.cut_off(slot, true);
        }
        Ok(())
    }

    fn announce(&self, slot: usize, lead: Duration) {
        let Slot { vm, process, is_deaf, .. } = &self.slots[slot];
        let (Some(vm), Some(process), false) = (vm, process, *is_deaf) else { return };
        let (machine, number) = (vm.number, process.link.process);
        self.journal.note(Happened::Noticed { machine, process: number, lead });
        let id = format!("eviction-{machine}");
        process.notices.notice(Notice::now(&id, NoticeKind::Preempt).at(Instant::now() + lead));
    }

    /// Takes a machine away, with what runs on it. Returns its number.
    fn take_away(&mut self, slot: usize) -> Option<usize> {
        let Slot { is_cut_off, is_deaf, .. } = self.slots[slot];
        let gone = std::mem::replace(&mut self.slots[slot], Slot { is_cut_off, is_deaf, ..Slot::default() });
        if let Some(process) = gone.process {
            process.kill();
        }
        gone.vm.map(|vm| vm.number)
    }

    /// Kills a process; systemd starts another.
    fn kill(&mut self, slot: usize, process: &Process) {
        if process.has_ended() {
            return;
        }
        process.kill();
        self.journal.note(Happened::Killed { process: process.link.process });
        if let Some(vm) = self.slots[slot].vm.clone() {
            self.after(RESTART_AFTER, Due::Start { slot, vm });
        }
    }

    fn cut_off(&mut self, slot: usize, is_away: bool) {
        self.slots[slot].is_cut_off = is_away;
        let Some(process) = &self.slots[slot].process else { return };
        process.link.set(Trouble { partitioned: is_away, ..Trouble::default() });
        let process = process.link.process;
        self.journal.note(if is_away { Happened::CutOff { process } } else { Happened::Reached { process } });
    }

    fn deafen(&mut self, slot: usize, is_away: bool) {
        self.slots[slot].is_deaf = is_away;
        if let Some(process) = self.slots[slot].process.as_ref().filter(|_| !is_away) {
            process.notices.answer();
            self.journal.note(Happened::Heard { process: process.link.process });
        }
    }

    /// Notes which workers the roster shows as silent, and which as under pressure.
    async fn look_at_roster(&self) -> Result<()> {
        let roster = &*self.shared.roster;
        let fresh = roster.members(report_every(roster) * 3).await?;
        for report in roster.reports(REPORTS_MAX_AGE).await? {
            let running =
                self.slots.iter().filter_map(|slot| slot.process.as_ref()).map(|it| it.link.process);
            let Some(process) = running.into_iter().find(|it| report.worker.as_str() == format!("p{it}"))
            else {
                continue;
            };
            if fresh.iter().all(|member| member.worker != report.worker) {
                self.journal.note(Happened::ShownSilent { process });
            }
            for pressure in report.machine.into_iter().flat_map(|machine| machine.pressure) {
                self.journal.note(Happened::ShownPressed { process, by: pressure.cause });
            }
        }
        Ok(())
    }

    /// Asks a machine for its health, and replaces it when its time of grace is over.
    fn probe(&mut self, slot: usize) {
        let now = self.journal.now();
        let Some(vm) = self.slots[slot].vm.clone() else { return };
        if !vm.is_unhealthy() {
            self.slots[slot].unhealthy_since = None;
            return;
        }
        let Some(since) = self.slots[slot].unhealthy_since else {
            self.slots[slot].unhealthy_since = Some(now);
            return self.journal.note(Happened::Unhealthy { machine: vm.number });
        };
        if now >= since + GRACE {
            self.take_away(slot);
            self.journal.note(Happened::Repaired { machine: vm.number });
            self.after(REPLACED_AFTER, Due::Boot { slot, name: format!("{}-again", vm.name) });
        }
    }
}
