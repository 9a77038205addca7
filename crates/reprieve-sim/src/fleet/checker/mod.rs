//! The independent checker: reads only what happened and what the store held in the end, and says which promises were
//! broken.
//!
//! - [`messages`]: nothing is lost; leases end in time after a notice; nothing is idle while somebody could work on it.
//! - [`owners`]: no older owner writes after a newer one; jobs resume at what was saved; little work is at stake.
//! - [`limits`]: rogues are found within their limits, and nobody else is taken for one.
//! - [`finish`]: what the store holds in the end.

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
    /// The job, by its place in the plan.
    pub job: Option<usize>,
    /// How.
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

/// The checker, as far as it has read.
#[derive(Debug)]
struct Checker<'a> {
    plan: &'a Plan,
    view: View,
    now: Duration,
    violations: Vec<Violation>,
}

/// Says which promises were broken.
#[must_use]
pub fn check(plan: &Plan, history: &History, store: &FinalStore) -> Vec<Violation> {
    let mut checker = Checker { plan, view: View::new(plan), now: Duration::ZERO, violations: Vec::new() };
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
        self.owners(event);
        self.view.update_process(event);
    }
}
