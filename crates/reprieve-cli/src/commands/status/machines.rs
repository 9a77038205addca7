//! The machines of the workers: pressure on them, and what is only shown.

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve::ports::WorkerReport;
use reprieve::pressure::{MachineReport, Shown};

use crate::format::{duration, plain};

/// A machine, by its VM, or by its worker where it has no name, with the latest report about it.
pub(super) type Machines<'a> = BTreeMap<&'a str, (&'a WorkerReport, &'a MachineReport)>;

/// Returns the machines that their workers look at.
pub(super) fn machines(workers: &[WorkerReport]) -> Machines<'_> {
    let mut machines = Machines::new();
    for report in workers {
        let Some(machine) = &report.machine else { continue };
        let name = if report.vm.is_empty() { report.worker.as_str() } else { report.vm.as_str() };
        let latest = machines.entry(name).or_insert((report, machine));
        if latest.0.at_unix_ms < report.at_unix_ms {
            *latest = (report, machine);
        }
    }
    machines
}

/// One line for each cause of pressure: the machine, the cause, its beginning as an age in milliseconds, what its
/// workers do, and why.
pub(super) fn pressure(machines: &Machines<'_>, now: i64, ago: impl Fn(i64) -> String) -> Vec<[String; 5]> {
    let lines = |(name, (_, machine)): (&&str, &(&WorkerReport, &MachineReport))| {
        let does = if machine.acts { "taking work only when idle" } else { "going on" };
        let line = |active: &reprieve::pressure::ActivePressure| {
            let since = ago(now.saturating_sub(active.since_unix_ms));
            [short(name), plain(&active.cause), since, does.to_owned(), plain(&active.why)]
        };
        machine.pressure.iter().map(line).collect::<Vec<_>>()
    };
    machines.iter().flat_map(lines).collect()
}

/// One line for each machine of which something was read.
pub(super) fn shown(machines: &Machines<'_>) -> Vec<[String; 5]> {
    let read = machines.iter().filter(|(_, (_, machine))| machine.shown != Shown::default());
    let dash = || "-".to_owned();
    let line = |(name, (_, machine)): (&&str, &(&WorkerReport, &MachineReport))| {
        let shown = &machine.shown;
        let percent = |it: Option<u32>| it.map_or_else(dash, |it| format!("{it}%"));
        let errors = (shown.memory_errors_corrected, shown.memory_errors_uncorrected);
        let errors = match errors {
            (None, None) => dash(),
            (corrected, not) => {
                format!("{} corrected, {} not", corrected.unwrap_or_default(), not.unwrap_or_default())
            }
        };
        [
            short(name),
            percent(shown.io_stall_percent),
            percent(shown.steal_percent),
            errors,
            shown.clock_behind_ms.map_or_else(dash, clock),
        ]
    };
    read.map(line).collect()
}

fn clock(behind_ms: i64) -> String {
    let by = duration(Duration::from_millis(behind_ms.unsigned_abs()));
    match behind_ms {
        0 => "right".to_owned(),
        1.. => format!("{by} behind"),
        _ => format!("{by} ahead"),
    }
}

/// The name of a VM, or the end of a worker's id.
pub(super) fn short(name: &str) -> String {
    const WORKER_CHARS: usize = 32;
    let skipped = if name.len() == WORKER_CHARS { WORKER_CHARS - 8 } else { 0 };
    plain(&name.chars().skip(skipped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use reprieve::WorkerId;
    use reprieve::pressure::ActivePressure;

    use super::*;

    fn report(worker: &str, vm: &str, at_unix_ms: i64, machine: MachineReport) -> WorkerReport {
        let report = WorkerReport::new(WorkerId::new(format!("01a1fdcace1c708f9150fbc0{worker}")));
        WorkerReport { vm: vm.to_owned(), at_unix_ms, machine: Some(machine), ..report }
    }

    #[test]
    fn a_machine_is_shown_once_by_its_latest_report() {
        let low = ActivePressure {
            cause: "memory".to_owned(),
            why: "10 MiB are left".to_owned(),
            since_unix_ms: 40,
        };
        let under = MachineReport { pressure: vec![low], acts: true, ..MachineReport::default() };
        let read = Shown {
            io_stall_percent: Some(93),
            memory_errors_corrected: Some(3),
            clock_behind_ms: Some(-2_500),
            ..Shown::default()
        };
        let calm = MachineReport { shown: read, ..MachineReport::default() };
        let workers = [
            report("aaaaaaaa", "vm_1", 100, under.clone()),
            report("bbbbbbbb", "vm_1", 90, calm.clone()),
            report("cccccccc", "", 90, calm),
        ];
        let machines = machines(&workers);
        let age = |ms: i64| format!("{ms} ms");
        let expected = ["vm_1", "memory", "60 ms", "taking work only when idle", "10 MiB are left"];
        assert_eq!(pressure(&machines, 100, age), [expected.map(str::to_owned)]);
        let expected = ["cccccccc", "93%", "-", "3 corrected, 0 not", "2.5s ahead"];
        assert_eq!(shown(&machines), [expected.map(str::to_owned)]);
    }
}
