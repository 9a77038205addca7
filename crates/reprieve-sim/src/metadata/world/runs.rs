//! Running scenarios.

use std::collections::VecDeque;

use reprieve_core::ErrorKind;
use tokio::time::Instant;

use super::World;
use crate::metadata::faults::FaultRule;
use crate::metadata::moment::Moment;
use crate::metadata::refusal::{Refusal, refuse};
use crate::metadata::scenario::{Action, Named, Nothing, Scenario};
use crate::metadata::state::{Entry, Running, ScenarioState, What, Which};

/// A running scenario.
#[derive(Debug)]
pub(super) struct Run {
    scenario: String,
    target: String,
    steps: VecDeque<(Moment, Action)>,
    /// The labels and ids of the events it has announced, oldest first.
    announced: Vec<(Option<String>, String)>,
}

impl Run {
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.steps.front().map(|(when, _)| when.at)
    }

    pub(super) fn state(&self) -> Option<Running> {
        Some(Running {
            scenario: self.scenario.clone(),
            target: self.target.clone(),
            steps_left: self.steps.len(),
            next_step_unix_ms: self.steps.front()?.0.unix_ms(),
        })
    }

    /// Returns the event that the step names.
    fn event(&self, named: &Named) -> Result<Which, Refusal> {
        let mut announced = self.announced.iter().rev();
        let found = announced.find(|(label, _)| named.event.is_none() || *label == named.event);
        match found {
            Some((_, id)) => Ok(Which::EventId(id.clone())),
            None => refuse(ErrorKind::NotFound, "its event was not announced"),
        }
    }
}

impl World {
    /// Adds a scenario, and replaces one of the same name.
    pub(in crate::metadata) fn add_scenario(&mut self, scenario: Scenario) {
        match self.scenarios.iter_mut().find(|other| other.name() == scenario.name()) {
            Some(other) => *other = scenario,
            None => self.scenarios.push(scenario),
        }
    }

    pub(in crate::metadata) fn scenarios(&self) -> Vec<ScenarioState> {
        self.scenarios.iter().map(Scenario::state).collect()
    }

    /// Returns the scenario called `name`.
    pub(in crate::metadata) fn scenario(&self, name: &str) -> Result<&Scenario, Refusal> {
        if let Some(scenario) = self.scenarios.iter().find(|scenario| scenario.name() == name) {
            return Ok(scenario);
        }
        let names: Vec<_> = self.scenarios.iter().map(Scenario::name).collect();
        refuse(ErrorKind::NotFound, format!("there is no scenario {name:?}; there are: {}", names.join(", ")))
    }

    /// Runs a scenario for a VM, by default the first; returns the VM's name. Steps that are due at
    /// once have happened on return.
    pub(in crate::metadata) fn run(
        &mut self,
        name: &str,
        target: Option<&str>,
        now: Moment,
    ) -> Result<String, Refusal> {
        let scenario = self.scenario(name)?;
        let target = match (target, self.vms.first()) {
            (Some(target), _) => self.known(target)?,
            (None, Some(first)) => first.name.clone(),
            (None, None) => return refuse(ErrorKind::NotFound, "there is no VM to run it for"),
        };
        let steps = scenario.steps().iter();
        let steps = steps.map(|step| (now.after(self.sped_up(step.at.0)), step.action.clone())).collect();
        let run = Run { scenario: name.to_owned(), target: target.clone(), steps, announced: Vec::new() };
        self.runs.push(run);
        self.note(Entry {
            vms: vec![target.clone()],
            note: name.to_owned(),
            ..Entry::new(now, What::ScenarioBegan)
        });
        self.settle(now);
        Ok(target)
    }

    /// Performs the next step of a run. A failed step is logged, and the run continues.
    pub(super) fn run_step(&mut self, index: usize, now: Moment) {
        let mut run = self.runs.remove(index);
        if let Some((_, action)) = run.steps.pop_front()
            && let Err(refusal) = self.act(&mut run, action, now)
        {
            let note = format!("{}: {}", run.scenario, refusal.message);
            self.note(Entry { note, ..Entry::new(now, What::StepFailed) });
        }
        if !run.steps.is_empty() {
            self.runs.insert(index, run);
        }
    }

    fn act(&mut self, run: &mut Run, action: Action, now: Moment) -> Result<(), Refusal> {
        match action {
            Action::Announce(plan) => {
                let event = self.announce_plan(&plan, Some(&run.target), now)?;
                run.announced.push((plan.label, event.event_id));
            }
            Action::Start(named) => {
                self.start(&run.event(&named)?, now)?;
            }
            Action::Complete(named) => {
                self.complete(&run.event(&named)?, now)?;
            }
            Action::Withdraw(named) => {
                self.withdraw(&run.event(&named)?, now)?;
            }
            Action::Fault(rule) => {
                let target = run.target.clone();
                let vm = rule.vm.map(|vm| if vm == "@target" { target } else { vm });
                self.add_fault(&FaultRule { vm, ..rule }, now)?;
            }
            Action::ClearFaults(Nothing {}) => self.faults.clear(),
            Action::Restart(Nothing {}) => self.restart(now),
        }
        Ok(())
    }
}
