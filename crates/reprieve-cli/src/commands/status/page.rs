//! The status as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use reprieve::dependency::DependencyReport;
use reprieve::ports::{DeferredMessage, InFlight, LimitedKind, Progress, WorkerReport};

use super::intervals::intervals;
use super::machines::{machines, pressure, short as machine_name, shown};
use super::timeline::{Foretold, Timeline};
use super::{Dead, Drained, Moved, Status};
use crate::format::{bytes, duration, plain, table};

/// The missed reports after which a worker is called silent.
const REPORTS_MISSED_MAX: u32 = 3;

/// The whole status. Empty tables are left out.
pub(super) fn page(status: &Status) -> String {
    let now = status.at_unix_ms;
    let silent_after = silent_after(status.report_every);
    let mut page = depth(status);
    page.push_str(&age_of_reports(status, silent_after));
    if status.workers.is_empty() {
        page.push_str("\nno workers\n");
    } else {
        let rows: Vec<_> = status.workers.iter().map(|report| worker(report, now, silent_after)).collect();
        section(&mut page, &table(["WORKER", "VM", "STAGE", "HELD", "DONE", "REPORTED"], &rows));
    }
    let rows: Vec<_> = status.timelines.iter().flat_map(|vm| timeline(vm, now)).collect();
    if !rows.is_empty() {
        section(&mut page, &table(["VM", "EVENT", "BEGINS", "MEANS", "WORKERS ARE", "APPROVED"], &rows));
    }
    let machines = machines(&status.workers);
    let rows = pressure(&machines, now, ago);
    if !rows.is_empty() {
        section(&mut page, &table(["PRESSURE ON", "CAUSE", "SINCE", "WORKERS ARE", "WHY"], &rows));
    }
    let rows = shown(&machines);
    if !rows.is_empty() {
        section(&mut page, &table(["MACHINE", "WAITS FOR I/O", "STEAL", "MEMORY ERRORS", "CLOCK"], &rows));
    }
    let rows: Vec<_> = held(status).map(|(report, one)| job(report, one, now, silent_after)).collect();
    if !rows.is_empty() {
        let headings = ["JOB", "KIND", "PROGRESS", "MOVED", "STEPS", "DELIVERY", "WORKER", "SINCE"];
        section(&mut page, &table(headings, &rows));
    }
    let rows = limits(status);
    if !rows.is_empty() {
        section(&mut page, &table(["LIMITED KIND", "RUNNING", "DEFERRED", "LIMITS"], &rows));
    }
    let rows = intervals(&status.workers);
    if !rows.is_empty() {
        section(&mut page, &table(["SAVED KIND", "EVERY", "A SAVE TAKES", "WHY"], &rows));
    }
    let rows = dependencies(status);
    if !rows.is_empty() {
        section(&mut page, &table(["DEPENDENCY", "STATE", "SINCE", "WORKERS", "NEXT LOOK", "WHY"], &rows));
    }
    let rows: Vec<_> = held(status).filter_map(|(_, job)| escalated(job)).chain(waiting(status)).collect();
    if !rows.is_empty() {
        section(&mut page, &table(["ESCALATED", "KIND", "REASON"], &rows));
    }
    let rows: Vec<_> = deferred(status).map(|message| deferral(message, now)).collect();
    if !rows.is_empty() {
        section(&mut page, &table(["DEFERRED", "KIND", "SINCE", "REASON"], &rows));
    }
    let rows: Vec<_> = status.drains.iter().map(|drained| drain(drained, now)).collect();
    if !rows.is_empty() {
        let headings = [
            "DRAIN",
            "WORKER",
            "NOTICE",
            "HELD",
            "UNSTARTED",
            "SAVED",
            "CUT",
            "UNCONFIRMED",
            "FINISHED",
            "LOST",
            "ABANDONED",
            "RELEASED IN",
            "WORK LOST",
            "LEFT",
        ];
        section(&mut page, &table(headings, &rows));
    }
    let rows: Vec<_> = status.dead_letters.iter().map(dead).collect();
    if !rows.is_empty() {
        section(&mut page, &table(["POISONED", "KIND", "REASON"], &rows));
        let more = status.queue.poisoned.unwrap_or_default().saturating_sub(rows.len() as u64);
        if more > 0 {
            // Writing to a string can't fail.
            let _infallible = writeln!(page, "and {more} more");
        }
    }
    page
}

/// The age of a report in milliseconds after which its worker is silent.
pub(super) fn silent_after(report_every: Duration) -> u128 {
    (report_every * REPORTS_MISSED_MAX).as_millis()
}

fn section(page: &mut String, table: &str) {
    page.push('\n');
    page.push_str(table);
}

fn depth(status: &Status) -> String {
    let depth = &status.queue;
    let mut line = format!("{} {}", depth.total, if depth.total == 1 { "job" } else { "jobs" });
    let counts = [
        ("ready", depth.ready),
        ("leased", depth.leased),
        ("delayed", depth.delayed),
        ("poisoned", depth.poisoned),
    ];
    for (state, count) in counts {
        // A backend that can't count cheaply has no value.
        if let Some(count) = count {
            // Writing to a string can't fail.
            let _infallible = write!(line, " · {count} {state}");
        }
    }
    line + "\n"
}

/// A note of how old the workers' reports are, where what they hold is not what the queue counts as
/// leased.
fn age_of_reports(status: &Status, silent_after: u128) -> String {
    let now = status.at_unix_ms;
    let live = || status.workers.iter().filter(|report| !is_silent(report, now, silent_after));
    let held = held(status).filter(|(report, _)| !is_silent(report, now, silent_after)).count() as u64;
    let oldest = live().map(|report| now.saturating_sub(report.at_unix_ms)).max();
    match (status.queue.leased, oldest) {
        (Some(leased), Some(oldest)) if leased != held => format!(
            "workers report {held} held, in reports up to {} old; the counts above are current\n",
            whole_seconds(oldest)
        ),
        _ => String::new(),
    }
}

/// The messages that workers could not use, each as it was seen last, but for those that are known
/// to be gone: dead letters, those that were not received when they were due, and those that a
/// worker holds since.
fn deferred(status: &Status) -> impl Iterator<Item = &DeferredMessage> {
    let is_dead =
        |job: &str| status.dead_letters.iter().any(|dead| dead.job.as_deref().unwrap_or(&dead.id) == job);
    let is_held = |message: &DeferredMessage| {
        let mut held = status.workers.iter().flat_map(|report| &report.in_flight);
        held.any(|one| one.job.as_str() == message.job && one.since_unix_ms > message.seen_unix_ms)
    };
    let all = || status.workers.iter().flat_map(|report| &report.deferred);
    let mut latest: BTreeMap<&str, &DeferredMessage> = BTreeMap::new();
    for message in all() {
        let known = latest.entry(&message.job).or_insert(message);
        if known.seen_unix_ms < message.seen_unix_ms {
            *known = message;
        }
    }
    latest.into_values().filter(move |message| {
        !message.is_gone(status.at_unix_ms) && !is_dead(&message.job) && !is_held(message)
    })
}

fn deferral(message: &DeferredMessage, now: i64) -> [String; 4] {
    [
        plain(&message.job),
        if message.kind.is_empty() { "-".to_owned() } else { plain(&message.kind) },
        ago(now.saturating_sub(message.since_unix_ms)),
        cut(&plain(&message.reason)),
    ]
}

/// The kinds with limits of their own, each with what its workers run. Workers that disagree are apart.
fn limits(status: &Status) -> Vec<[String; 4]> {
    let mut kinds: BTreeMap<(&str, String), (u64, u64)> = BTreeMap::new();
    for kind in status.workers.iter().flat_map(|report| &report.limits) {
        let (running, deferred) = kinds.entry((&kind.kind, limits_of(kind))).or_default();
        *running += kind.running;
        *deferred += kind.deferred;
    }
    let row = |((kind, limits), (running, deferred)): ((&str, String), (u64, u64))| {
        [plain(kind), running.to_string(), deferred.to_string(), limits]
    };
    kinds.into_iter().map(row).collect()
}

/// What jobs depend on, by its name and its state, which each worker finds out by itself, the worst first.
fn dependencies(status: &Status) -> Vec<[String; 6]> {
    let mut known: BTreeMap<(&str, Reverse<Option<usize>>), Vec<&DependencyReport>> = BTreeMap::new();
    for one in status.workers.iter().flat_map(|report| &report.dependencies) {
        let order = DependencyReport::STATES.iter().position(|state| *state == one.shown().0);
        known.entry((&one.name, Reverse(order))).or_default().push(one);
    }
    let now = status.at_unix_ms;
    let until = |at: i64| duration(Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or(0)));
    let row = |all: Vec<&DependencyReport>| {
        let since = all.iter().map(|one| one.shown().1).min().unwrap_or(now);
        let next = all.iter().filter_map(|one| one.next_look_unix_ms).min();
        let why = all.iter().find_map(|one| one.why.as_deref()).map(|why| cut(&plain(why)));
        let scheduled = all.iter().find_map(|one| one.scheduled_unix_ms);
        let scheduled = scheduled.map(|at| format!("a maintenance is announced in {}", until(at)));
        let replicas = all.iter().any(|one| one.avoids_replicas).then(|| "replicas are avoided".to_owned());
        let refuses = all.iter().find_map(|one| one.refuses.as_deref());
        let refuses = refuses.map(|what| format!("{}, so jobs that need it wait", cut(&plain(what))));
        let is_limited = all[0].shown().0 == DependencyReport::LIMITED;
        let limited = is_limited.then(|| {
            "jobs that did without it held their slots for long; few that use it begin until these fare well for a while".to_owned()
        });
        let why: Vec<_> =
            why.into_iter().chain(refuses).chain(limited).chain(scheduled).chain(replicas).collect();
        let dash = || "-".to_owned();
        [
            plain(&all[0].name),
            all[0].shown().0.to_owned(),
            ago(now.saturating_sub(since)),
            all.len().to_string(),
            next.map_or_else(dash, |at| format!("in {}", until(at))),
            if why.is_empty() { dash() } else { why.join("; ") },
        ]
    };
    known.into_values().map(row).collect()
}

fn limits_of(kind: &LimitedKind) -> String {
    let time = |ms: u64| duration(Duration::from_millis(ms));
    let limits = [
        kind.per_worker.map(|most| format!("{most} per worker")),
        kind.in_fleet.map(|most| format!("{most} in the fleet")),
        kind.memory_bytes.map(|each| format!("{} of memory each", bytes(each))),
        kind.step_timeout_ms.map(|limit| format!("{} a step", time(limit))),
        kind.job_timeout_ms.map(|limit| format!("{} a job", time(limit))),
        kind.stall_after_ms.map(|limit| format!("stopped when still for {}", time(limit))),
        Some(format!(
            "{} attempts, {} to {} apart",
            kind.attempts,
            time(kind.backoff_ms),
            time(kind.backoff_max_ms)
        )),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The events of a VM, in the order of their times.
fn timeline(vm: &Timeline, now: i64) -> Vec<[String; 6]> {
    let row = |event: &Foretold| {
        let begins = match event.not_before_unix_ms {
            _ if event.has_begun => "has begun".to_owned(),
            None => "at any moment".to_owned(),
            Some(at) => in_time(at.saturating_sub(now)),
        };
        let all: usize = event.workers.values().sum();
        let doing = event.workers.iter().map(|(doing, count)| {
            if event.workers.len() == 1 { plain(doing) } else { format!("{} ({count})", plain(doing)) }
        });
        let approved = match event.approved {
            0 => "no".to_owned(),
            count if count == all => "yes".to_owned(),
            count => format!("by {count} of {all}"),
        };
        let (vm, doing) = (machine_name(&vm.vm), doing.collect::<Vec<_>>().join(", "));
        [vm, plain(&event.kind), begins, event.meaning.clone(), doing, approved]
    };
    vm.events.iter().map(row).collect()
}

/// The jobs that workers hold, each with its last delivery: the report of a dead worker still lists
/// jobs that others hold by now.
fn held(status: &Status) -> impl Iterator<Item = (&WorkerReport, &InFlight)> {
    let all =
        || status.workers.iter().flat_map(|report| report.in_flight.iter().map(move |job| (report, job)));
    all().filter(move |(_, job)| {
        !all().any(|(_, other)| other.job == job.job && other.delivery > job.delivery)
    })
}

pub(super) fn is_silent(report: &WorkerReport, now: i64, silent_after: u128) -> bool {
    u128::try_from(now.saturating_sub(report.at_unix_ms)).is_ok_and(|age| age > silent_after)
}

fn worker(report: &WorkerReport, now: i64, silent_after: u128) -> [String; 6] {
    let age = now.saturating_sub(report.at_unix_ms);
    let silent = is_silent(report, now, silent_after);
    [
        short(report.worker.as_str()),
        if report.vm.is_empty() { "-".to_owned() } else { plain(&report.vm) },
        match &report.fault {
            _ if silent => "silent".to_owned(),
            Some(fault) => format!("{}, {}", plain(&report.stage), cut(&plain(fault))),
            None => plain(&report.stage),
        },
        report.in_flight.len().to_string(),
        report.completed.to_string(),
        ago(age),
    ]
}

fn job(report: &WorkerReport, job: &InFlight, now: i64, silent_after: u128) -> [String; 8] {
    let worker = short(report.worker.as_str());
    let silent = is_silent(report, now, silent_after);
    [
        job.job.to_string(),
        plain(&job.kind),
        reported(job, now),
        job.moved_unix_ms.map_or_else(|| "-".to_owned(), |at| ago(now.saturating_sub(at))),
        job.steps.to_string(),
        job.delivery.to_string(),
        // It is unknown whether a silent worker still holds the job.
        if silent { format!("{worker} (silent)") } else { worker },
        ago(now.saturating_sub(job.since_unix_ms)),
    ]
}

fn escalated(job: &InFlight) -> Option<[String; 3]> {
    Some([job.job.to_string(), plain(&job.kind), cut(job.escalated.as_ref()?)])
}

/// The moved jobs that no worker holds.
fn waiting(status: &Status) -> impl Iterator<Item = [String; 3]> {
    let is_held = |moved: &Moved| held(status).any(|(_, one)| one.job.as_str() == moved.job);
    let moved = status.moved.iter().filter(move |moved| !is_held(moved));
    moved.map(|moved| [plain(&moved.job), plain(&moved.kind), cut(&plain(&moved.reason))])
}

fn reported(job: &InFlight, now: i64) -> String {
    let progress = progress(&job.progress);
    match job.stalled_since_unix_ms {
        Some(since) => {
            let still = whole_seconds(now.saturating_sub(since));
            let place = job.stalled_in.as_ref().map(|place| format!(" in {}", cut(&plain(place))));
            format!("{progress}, stalled for {still}{}", place.unwrap_or_default())
        }
        None => progress,
    }
}

fn progress(Progress { done, total }: &Progress) -> String {
    match (done, total) {
        (0, 0) => "-".to_owned(),
        (done, 0) => done.to_string(),
        (done, total) => format!("{done}/{total} {}%", u128::from(*done) * 100 / u128::from(*total)),
    }
}

fn drain(drained: &Drained, now: i64) -> [String; 14] {
    let report = &drained.report;
    [
        ago(now.saturating_sub(report.at_unix_ms)),
        short(&drained.worker),
        plain(&report.notice),
        report.held.to_string(),
        report.released_unstarted.to_string(),
        report.released_saved.to_string(),
        report.released_cut.to_string(),
        report.released_unconfirmed.to_string(),
        report.finished.to_string(),
        report.leases_lost.to_string(),
        report.abandoned.to_string(),
        millis(report.released_after_ms),
        millis(report.work_lost_ms),
        millis(report.budget_left_ms),
    ]
}

fn dead(dead: &Dead) -> [String; 3] {
    [
        dead.job.clone().unwrap_or_else(|| plain(&dead.id)),
        plain(dead.kind.as_deref().unwrap_or("-")),
        plain(&cut(dead.reason.as_deref().unwrap_or("-"))),
    ]
}

/// The beginning of a long text. All of it is in the JSON.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// The end of a worker's id, which is its random part: workers that began together have the
/// beginning in common.
fn short(worker: &str) -> String {
    let skipped = worker.chars().count().saturating_sub(8);
    plain(&worker.chars().skip(skipped).collect::<String>())
}

fn millis(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

/// The time since something happened, in whole seconds. A clock that is behind makes it now.
fn ago(ms: i64) -> String {
    format!("{} ago", whole_seconds(ms))
}

/// The time until something happens.
fn in_time(ms: i64) -> String {
    if ms <= 0 { "now".to_owned() } else { format!("in {}", whole_seconds(ms)) }
}

fn whole_seconds(ms: i64) -> String {
    duration(Duration::from_secs(u64::try_from(ms).unwrap_or(0) / 1_000))
}

#[cfg(test)]
mod tests {
    use reprieve::checkpoint::{CheckpointEvery, IntervalReport, Losses};
    use reprieve::dependency::BreakerState;
    use reprieve::ports::{ActiveNotice, Depth};
    use reprieve::worker::DrainReport;
    use reprieve::{JobId, WorkerId};

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn saved() -> IntervalReport {
        let counted = Losses { count: 7, vm_ms: 310 * 3_600_000 };
        let kinds = [("count-to".to_owned(), Some(Duration::from_millis(1_200)))];
        IntervalReport::new(CheckpointEvery::Auto, counted, kinds)
    }

    fn report(worker: &str, vm: &str, age: i64, in_flight: Vec<InFlight>) -> WorkerReport {
        WorkerReport {
            queue: "default".to_owned(),
            kinds: vec!["resize".to_owned()],
            vm: vm.to_owned(),
            pid: 7,
            stage: "start".to_owned(),
            at_unix_ms: NOW - age,
            completed: 17,
            in_flight,
            ..WorkerReport::new(WorkerId::new(format!("01a1fdcace1c708f9150fbc0{worker}")))
        }
    }

    fn reboot() -> ActiveNotice {
        ActiveNotice {
            id: "602d9444-d2cd-49c7-8624-8643e7171297".to_owned(),
            kind: "Reboot".to_owned(),
            started: false,
            not_before_unix_ms: Some(NOW + 874_000),
            doing: "going on".to_owned(),
            approved: false,
        }
    }

    fn held(job: &str, kind: &str, done: u64, total: u64) -> InFlight {
        InFlight {
            job: JobId::parse(job).unwrap(),
            kind: kind.to_owned(),
            delivery: 2,
            progress: Progress { done, total },
            steps: 3,
            since_unix_ms: NOW - 61_000,
            moved_unix_ms: Some(if job == "order-1" { NOW - 754_000 } else { NOW - 2_000 }),
            stalled_since_unix_ms: (job == "order-1").then_some(NOW - 754_000),
            stalled_in: (job == "order-1").then(|| "step 4, span download".to_owned()),
            began_unix_ms: None,
            kept_ms: 0,
            escalated: (job == "order-1").then(|| "3 deliveries ended before".to_owned()),
        }
    }

    fn status() -> Status {
        let drain = DrainReport {
            notice: "Preempt".to_owned(),
            at_unix_ms: NOW - 7_300_000,
            held: 4,
            released_saved: 3,
            released_cut: 1,
            work_lost_ms: 1_239,
            released_after_ms: 214,
            budget_left_ms: 9_786,
            ..DrainReport::default()
        };
        let jobs = vec![
            held("order-1", "count-to", 42, 100),
            held("order-2", "evil\u{1b}[2J", 5, 0),
            held("order-3", "count-to", 0, 0),
        ];
        let status = Status {
            at_unix_ms: NOW,
            queue: Depth { total: 12, ready: Some(9), leased: Some(3), delayed: None, poisoned: Some(1) },
            workers: vec![
                WorkerReport { intervals: Some(saved()), ..report("cd46fd0d", "workers_0", 3_000, jobs) },
                WorkerReport { notices: vec![reboot()], ..report("aaaaaaaa", "", 45_000, Vec::new()) },
            ],
            drains: vec![Drained { worker: "01a1fdcace1c708f9150fbc0cd46fd0d".to_owned(), report: drain }],
            dead_letters: vec![Dead {
                id: "m1".to_owned(),
                job: Some("order-0".to_owned()),
                kind: Some("coutn-to".to_owned()),
                reason: Some("this worker knows no job of kind \"coutn-to\"".to_owned()),
            }],
            timelines: Vec::new(),
            moved: ["order-1", "order-7"].map(moved).into(),
            report_every: Duration::from_secs(10),
        };
        Status { timelines: status.timelines(), ..status }
    }

    fn limited(deferred: u64, in_fleet: Option<u32>) -> LimitedKind {
        LimitedKind {
            kind: "reindex".to_owned(),
            running: 1,
            deferred,
            per_worker: Some(2),
            in_fleet,
            memory_bytes: None,
            step_timeout_ms: Some(90_000),
            job_timeout_ms: None,
            stall_after_ms: Some(600_000),
            attempts: 3,
            backoff_ms: 1_000,
            backoff_max_ms: 300_000,
        }
    }

    #[test]
    fn a_dependency_is_shown_once_for_all_workers_that_agree_on_its_state() {
        let of = |state, why: Option<&str>| DependencyReport {
            name: "cache".to_owned(),
            state,
            since_unix_ms: 1_700_000_000_000 - 60_000,
            why: why.map(str::to_owned),
            refuses: None,
            refuses_since_unix_ms: None,
            limited_since_unix_ms: None,
            next_look_unix_ms: why.map(|_| 1_700_000_000_000 + 5_000),
            scheduled_unix_ms: None,
            avoids_replicas: false,
        };
        let worker = |dependency| WorkerReport {
            dependencies: vec![dependency],
            ..report("cd46fd0d", "vm", 1_700_000_000_000, Vec::new())
        };
        let away = of(BreakerState::Open, Some("a probe failed: refused"));
        let refuses = Some("it refuses writes (OOM)".to_owned());
        let refuses_since_unix_ms = Some(1_700_000_000_000 - 9_000);
        let full = DependencyReport { refuses, refuses_since_unix_ms, ..of(BreakerState::Closed, None) };
        let limited_since_unix_ms = Some(1_700_000_000_000 - 30_000);
        let slow = DependencyReport { limited_since_unix_ms, ..of(BreakerState::Closed, None) };
        let workers = [of(BreakerState::Closed, None), away.clone(), full, away, slow].map(worker).into();
        let status = Status { workers, at_unix_ms: 1_700_000_000_000, ..status() };
        let few_begin = "jobs that did without it held their slots for long; few that use it begin until these fare well for a while";
        let rows = [
            ["cache", "open", "1m ago", "2", "in 5s", "a probe failed: refused"],
            ["cache", "refuses", "9s ago", "1", "-", "it refuses writes (OOM), so jobs that need it wait"],
            ["cache", "limited", "30s ago", "1", "-", few_begin],
            ["cache", "closed", "1m ago", "1", "-", "-"],
        ];
        assert_eq!(dependencies(&status), rows.map(|row| row.map(str::to_owned)));
        let json = serde_json::to_value(&status).expect("JSON");
        let of_slow = &json["workers"][4]["dependencies"][0];
        assert_eq!(
            (&of_slow["state"], &of_slow["since_unix_ms"]),
            (&"limited".into(), &(1_700_000_000_000_i64 - 30_000).into())
        );
        let of_full = &json["workers"][2]["dependencies"][0];
        assert_eq!(
            (&of_full["state"], &of_full["since_unix_ms"]),
            (&"refuses".into(), &(1_700_000_000_000_i64 - 9_000).into())
        );
        assert_eq!(json["workers"][0]["dependencies"][0]["state"], "closed");
    }

    #[test]
    fn limits_are_shown_once_for_all_workers_that_agree() {
        let worker =
            |limits| WorkerReport { limits: vec![limits], ..report("cd46fd0d", "vm", 1_000, Vec::new()) };
        let all = [limited(7, Some(3)), limited(5, Some(3)), limited(1, None)];
        let status = Status { workers: all.map(worker).into(), ..status() };
        let apart = "2 per worker, 1m 30s a step, stopped when still for 10m, 3 attempts, 1s to 5m apart";
        let agreed = "2 per worker, 3 in the fleet, 1m 30s a step, stopped when still for 10m, 3 attempts, 1s to 5m apart";
        let row =
            |numbers: [&str; 2], limits: &str| ["reindex", numbers[0], numbers[1], limits].map(str::to_owned);
        assert_eq!(limits(&status), [row(["1", "1"], apart), row(["2", "12"], agreed)]);
        assert!(page(&status).contains("LIMITED KIND"));
    }

    fn moved(job: &str) -> Moved {
        Moved {
            job: job.to_owned(),
            kind: "count-to".to_owned(),
            reason: "3 deliveries ended before".to_owned(),
        }
    }

    #[test]
    fn a_page_shows_everything() {
        insta::assert_snapshot!(page(&status()));
    }

    #[test]
    fn ages_are_in_whole_seconds() {
        assert_eq!([ago(-5_000), ago(59_999), ago(172_800_000)], ["0s ago", "59s ago", "2d ago"]);
        assert_eq!([in_time(874_000), in_time(-1)], ["in 14m 34s", "now"]);
    }

    #[test]
    fn a_deferred_message_is_listed_until_it_is_known_to_be_gone() {
        let seen = |job: &str, age: i64| DeferredMessage {
            job: job.to_owned(),
            kind: "later".to_owned(),
            reason: "no worker knows it".to_owned(),
            since_unix_ms: NOW - age,
            seen_unix_ms: NOW - age,
        };
        // Two workers hold order-1 and order-2 since a minute and a second, and order-0 is a dead
        // letter.
        let deferred = vec![
            seen("waits", 1_000),
            seen("order-0", 1_000),
            seen("order-1", 62_000),
            seen("order-2", 1_000),
            seen("overdue", 400_000),
        ];
        let mut status = status();
        status.workers[1].deferred = deferred;
        let listed: Vec<_> = super::deferred(&status).map(|message| message.job.as_str()).collect();
        assert_eq!(listed, ["order-2", "waits"]);
    }

    #[test]
    fn json_has_it_all() {
        insta::assert_json_snapshot!(status());
    }

    #[test]
    fn an_empty_queue_is_short() {
        let empty = Status {
            queue: Depth::default(),
            workers: Vec::new(),
            timelines: Vec::new(),
            drains: Vec::new(),
            dead_letters: Vec::new(),
            moved: Vec::new(),
            ..status()
        };
        assert_eq!(page(&empty), "0 jobs\n\nno workers\n");
    }
}
