//! The independent checker: reads only the history and the store's final contents, and reports
//! broken promises.
//!
//! - [`messages`]: nothing is lost; leases end in time after a notice; no message waits while a
//!   worker is free.
//! - [`owners`]: no older owner writes after a newer one; jobs resume from the saved state; little
//!   work is at stake.
//! - [`limits`]: rogues are found within their limits, and no other job is mistaken for one; no job
//!   wakes before its time.
//! - [`ceilings`]: no more jobs of a kind run at once than may, and a cancelled job stops.
//! - [`finish`]: the store's final contents.

mod ceilings;
mod finish;
mod limits;
mod messages;
mod owners;
mod view;

use std::fmt;
use std::time::Duration;

use self::view::View;
use super::history::{Event, History, What};
use super::plan::Plan;
use super::store::FinalStore;

/// A broken promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// When it was noticed.
    pub at: Duration,
    /// The rule.
    pub rule: &'static str,
    /// The job's number in the plan.
    pub job: Option<usize>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.3}s", self.rule, self.at.as_secs_f64())?;
        if let Some(job) = self.job {
            write!(f, ", job {job}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// The checker's state after the events read so far.
#[derive(Debug)]
struct Checker<'a> {
    plan: &'a Plan,
    view: View,
    now: Duration,
    /// The time of the event before.
    now_before: Duration,
    violations: Vec<Violation>,
}

/// Returns the broken promises.
#[must_use]
pub fn check(plan: &Plan, history: &History, store: &FinalStore) -> Vec<Violation> {
    let (now, view) = (Duration::ZERO, View::new(plan));
    let mut checker = Checker { plan, view, now, now_before: now, violations: Vec::new() };
    let mut rested = false;
    for event in history.events() {
        checker.now = event.at;
        checker.end_drains();
        checker.read(&event);
        rested |= event.what == What::Rest;
    }
    checker.finish(store, rested);
    checker.violations
}

impl Checker<'_> {
    fn accuse(&mut self, rule: &'static str, job: Option<usize>, why: impl Into<String>) {
        self.violations.push(Violation { at: self.now, rule, job, why: why.into() });
    }

    fn read(&mut self, event: &Event) {
        self.messages(event);
        self.limits(event);
        self.ceilings(event);
        self.owners(event);
        self.view.update_process(event);
    }
}
