//! A scenario: a file of timed steps that change the mock.

use reprieve_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::faults::FaultRule;
use super::plan::EventPlan;
use super::refusal::{Refusal, refuse};
use super::span::Span;
use super::state::ScenarioState;

/// A scenario, read from a file.
///
/// # Example
/// ```
/// use reprieve_sim::metadata::Scenario;
///
/// let scenario = Scenario::read(
///     r#"
/// name = "short-notice"
/// description = "The VM is taken back with 5 seconds' notice, and the service is busy meanwhile."
///
/// [[steps]]
/// action = "fault"
/// kind = "429"
/// requests = 2
///
/// [[steps]]
/// at = "10s"
/// action = "announce"
/// type = "Preempt"
/// vms = ["@target"]
/// notice = "5s"
/// "#,
/// )?;
/// assert_eq!(scenario.name(), "short-notice");
/// # Ok::<(), reprieve_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    contents: Contents,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    name: String,
    description: String,
    steps: Vec<Step>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Step {
    /// The time since the scenario began.
    #[serde(default = "at_once")]
    pub(super) at: Span,
    #[serde(flatten)]
    pub(super) action: Action,
}

const fn at_once() -> Span {
    Span(std::time::Duration::ZERO)
}

/// The action of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub(super) enum Action {
    /// Announces an event.
    Announce(EventPlan),
    /// Starts an event before its time.
    Start(Named),
    /// Ends an event before its time.
    Complete(Named),
    /// Withdraws an event.
    Withdraw(Named),
    /// Injects a fault.
    Fault(FaultRule),
    /// Clears all faults.
    ClearFaults(Nothing),
    /// Restarts the document incarnation at 1.
    Restart(Nothing),
}

/// The event to which an action applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// The label of its announcement; the last announced event when left out.
    #[serde(default)]
    pub(super) event: Option<String>,
}

/// An action without parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The scenarios that every mock has.
const BUILT_IN: [&str; 10] = [
    include_str!("scenarios/live-migration.toml"),
    include_str!("scenarios/host-maintenance.toml"),
    include_str!("scenarios/user-reboot.toml"),
    include_str!("scenarios/user-redeploy.toml"),
    include_str!("scenarios/hardware-failure.toml"),
    include_str!("scenarios/cancelled-maintenance.toml"),
    include_str!("scenarios/preempt.toml"),
    include_str!("scenarios/terminate.toml"),
    include_str!("scenarios/predicted-failure.toml"),
    include_str!("scenarios/rebalance-then-preempt.toml"),
];

impl Scenario {
    /// Reads a file: TOML, or JSON if it begins with a brace.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an invalid scenario, with the line number where known.
    pub fn read(text: &str) -> Result<Self> {
        const OPERATION: &str = "read a scenario";
        let contents = if text.trim_start().starts_with('{') {
            serde_json::from_str(text)
                .map_err(|error| Error::new(ErrorKind::Invalid, OPERATION, error.to_string()))
        } else {
            toml::from_str(text)
                .map_err(|error| Error::new(ErrorKind::Invalid, OPERATION, sentence(&error, text)))
        };
        let mut scenario = Self { contents: contents?, text: text.to_owned() };
        scenario.check().map_err(|refusal| refusal.during(OPERATION))?;
        // The sort is stable, so steps with the same time keep the file's order.
        scenario.contents.steps.sort_by_key(|step| step.at);
        Ok(scenario)
    }

    /// Returns the built-in scenarios.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN.iter().map(|text| Self::read(text).expect("a scenario of ours")).collect()
    }

    /// Returns its name: letters, digits and hyphens.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.contents.name
    }

    /// Returns its description, for people.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.contents.description
    }

    /// Returns the text of its file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.contents.steps
    }

    pub(super) fn state(&self) -> ScenarioState {
        ScenarioState { name: self.name().to_owned(), description: self.description().to_owned() }
    }

    fn check(&self) -> Result<(), Refusal> {
        let name = self.name();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return refuse(ErrorKind::Invalid, format!("{name:?} is no name: letters, digits and hyphens"));
        }
        if self.steps().is_empty() {
            return refuse(ErrorKind::Invalid, format!("{name} has no steps"));
        }
        for (number, step) in (1..).zip(self.steps()) {
            self.check_step(step).map_err(|refusal| Refusal {
                message: format!("step {number} of {name}: {}", refusal.message),
                ..refusal
            })?;
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), Refusal> {
        match &step.action {
            Action::Announce(plan) => plan.check(),
            Action::Fault(rule) => rule.fault().map(|_| ()),
            Action::Start(named) | Action::Complete(named) | Action::Withdraw(named) => {
                let before = self.steps().iter().filter(|other| other.at <= step.at);
                let mut announced = before.filter_map(|other| match &other.action {
                    Action::Announce(plan) => Some(plan.label.as_deref()),
                    _ => None,
                });
                let is_there = match named.event.as_deref() {
                    None => announced.next().is_some(),
                    label => announced.any(|other| other == label),
                };
                if is_there {
                    return Ok(());
                }
                let event = named.event.as_deref().unwrap_or("the event");
                refuse(ErrorKind::Invalid, format!("{event:?} is not announced before it"))
            }
            Action::ClearFaults(Nothing {}) | Action::Restart(Nothing {}) => Ok(()),
        }
    }
}

/// Formats the error on one line.
fn sentence(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', ", ");
    match error.span() {
        Some(span) => {
            let line = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
            format!("line {line}: {message}")
        }
        None => message,
    }
}
