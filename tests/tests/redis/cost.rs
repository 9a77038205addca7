//! What a scene cost the jobs, by the log of their worker.

use std::fmt;

use reprieve_tests::{Line, Log};

/// The lines of the breaker's changes.
pub(crate) const OPENED: &str = "a dependency is away; jobs that need it wait";
const ANSWERS: &str = "a dependency answers again; few calls are made to try it";
pub(crate) const CLOSED: &str = "a dependency serves again";

const CALL_FAILED: &str = "failed to call the cache; doing without";
const PROBE_FAILED: &str = "a probe of a dependency failed";
const PRICED: &str = "priced a batch";

/// What a scene cost.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// Calls of the job that failed before the breaker opened.
    pub(crate) before: usize,
    /// Those that were in flight when it opened, and failed.
    pub(crate) in_flight: usize,
    /// Those that began after it had opened, and failed.
    pub(crate) after: usize,
    pub(crate) probes: usize,
    /// How often it opened.
    pub(crate) openings: usize,
    /// How long it was not closed, in milliseconds.
    pub(crate) open_ms: i64,
    /// The rows that the job read from the store.
    pub(crate) read: u64,
    /// The breaker's changes and the calls that failed after it had opened, for the message of a test that fails.
    pub(crate) story: Vec<String>,
}

impl Cost {
    pub(crate) fn of(log: &Log) -> Self {
        let opened: Vec<_> = log.lines(OPENED).iter().map(Line::at_unix_ms).collect();
        let first = opened.first().copied().unwrap_or(i64::MAX);
        let mut cost = Self {
            probes: log.lines(PROBE_FAILED).len(),
            openings: opened.len(),
            open_ms: open_ms(log),
            read: log.lines(PRICED).iter().map(|line| line.number("read")).sum(),
            story: changes(log).iter().map(|(at, change)| format!("{at}: {change}")).collect(),
            ..Self::default()
        };
        for line in log.lines(CALL_FAILED) {
            let ended = line.at_unix_ms();
            let began = ended - i64::try_from(line.number("took_us") / 1_000).expect("a short time");
            // Once it has opened, none is made before it is half-open. The log's time is in milliseconds.
            if began > first + 1 || line.text("breaker") != "closed" {
                cost.after += 1;
                cost.story.push(format!(
                    "{began} to {ended}: {}, {}",
                    line.text("breaker"),
                    line.text("error")
                ));
            } else if ended >= first {
                cost.in_flight += 1;
            } else {
                cost.before += 1;
            }
        }
        cost
    }

    /// The calls that failed.
    pub(crate) const fn failed(&self) -> usize {
        self.before + self.in_flight + self.after
    }
}

/// Returns the breaker's changes, in order: when, and to which state.
fn changes(log: &Log) -> Vec<(i64, &'static str)> {
    let of = |change| log.lines(change).into_iter().map(move |line| (line.at_unix_ms(), change));
    let mut changes: Vec<_> = [OPENED, ANSWERS, CLOSED].into_iter().flat_map(of).collect();
    changes.sort_by_key(|&(at, _)| at);
    changes
}

/// Returns the breaker's last change, by its line.
pub(crate) fn last_change(log: &Log) -> Option<&'static str> {
    changes(log).pop().map(|(_, change)| change)
}

/// Until the end of the log where it did not close again.
fn open_ms(log: &Log) -> i64 {
    let end = log.lines(PRICED).last().map_or(0, Line::at_unix_ms);
    let (mut open_ms, mut since) = (0, None::<i64>);
    for (at, change) in changes(log).into_iter().chain([(end, CLOSED)]) {
        match (change, since) {
            (CLOSED, Some(from)) => (open_ms, since) = (open_ms + (at - from).max(0), None),
            (CLOSED, None) | (_, Some(_)) => {}
            (_, None) => since = Some(at),
        }
    }
    open_ms
}

impl fmt::Display for Cost {
    /// The cells of a row of a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.open_ms + 500) / 1_000;
        write!(
            f,
            "{} | {} | {} | {} | {seconds} s | {} |",
            self.before, self.in_flight, self.after, self.probes, self.read
        )
    }
}
