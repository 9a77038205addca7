//! The scripted faults: the active rules, and the fault for each request.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reprieve_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::operation::Operation;
use super::rule::{Action, Rule};

/// An active rule and its counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActiveFault {
    /// Its number, which removes it.
    pub id: u64,
    /// The rule.
    pub rule: Rule,
    /// The number of requests that it matched.
    pub matched: u64,
    /// How often it was injected.
    #[serde(rename = "befell")]
    pub injected: u64,
}

/// The active rules.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<(ActiveFault, ChaCha8Rng)>,
    last_id: u64,
}

/// The faults of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disturbance {
    pub(super) apply_after: Duration,
    pub(super) answer_after: Duration,
    pub(super) skew_seconds: i64,
    /// How it ends, if not normally.
    pub(super) end: Option<Action>,
}

impl Faults {
    pub(super) fn add(&mut self, rule: Rule) -> Result<u64> {
        rule.check()?;
        self.last_id += 1;
        let id = self.last_id;
        // ChaCha, because its numbers are the same on every machine and in every version.
        let rng = ChaCha8Rng::seed_from_u64(rule.seed);
        self.rules.push((ActiveFault { id, rule, matched: 0, injected: 0 }, rng));
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: u64) -> Result<()> {
        let before = self.rules.len();
        self.rules.retain(|(active, _)| active.id != id);
        if self.rules.len() == before {
            return Err(Error::new(ErrorKind::NotFound, "remove a fault", format!("there is no fault {id}")));
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn list(&self) -> Vec<ActiveFault> {
        self.rules.iter().map(|(active, _)| active.clone()).collect()
    }

    /// Decides the faults of a request for `resource`, and counts it.
    pub(super) fn decide(&mut self, operation: Operation, resource: &str) -> Disturbance {
        let mut disturbance = Disturbance::default();
        for (active, rng) in &mut self.rules {
            let ActiveFault { rule, matched, injected, .. } = active;
            if rule.operation.is_some_and(|only| only != operation) || !resource.starts_with(&rule.prefix) {
                continue;
            }
            *matched += 1;
            let due = *matched > rule.skip && rule.times.is_none_or(|times| *injected < times);
            if !due || !rng.random_bool(rule.probability) {
                continue;
            }
            *injected += 1;
            match rule.action {
                Action::Delay { by } => {
                    disturbance.answer_after = disturbance.answer_after.saturating_add(by);
                }
                Action::ApplyLate { by } => {
                    disturbance.apply_after = disturbance.apply_after.saturating_add(by);
                }
                Action::SkewClock { seconds } => {
                    disturbance.skew_seconds = disturbance.skew_seconds.saturating_add(seconds);
                }
                ref end => {
                    disturbance.end = Some(end.clone());
                    break;
                }
            }
        }
        disturbance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: impl IntoIterator<Item = Rule>) -> Faults {
        let mut faults = Faults::default();
        for rule in rules {
            faults.add(rule).unwrap();
        }
        faults
    }

    #[test]
    fn a_rule_skips_then_happens_so_many_times() {
        let mut faults = faults([Rule { skip: 2, ..Rule::new(Action::Reset).on(Operation::Send).times(3) }]);
        let ends: Vec<_> = (0..8).map(|_| faults.decide(Operation::Send, "q").end.is_some()).collect();
        assert_eq!(ends, [false, false, true, true, true, false, false, false]);
        assert_eq!(faults.decide(Operation::Receive, "q"), Disturbance::default());
        let [active] = &faults.list()[..] else { panic!("one") };
        assert_eq!((active.matched, active.injected), (8, 3));
    }

    #[test]
    fn names_choose_and_the_first_end_wins() {
        let delay = Duration::from_secs(1);
        let mut faults = faults([
            Rule::new(Action::Delay { by: delay }),
            Rule { prefix: "a-".into(), ..Rule::new(Action::Truncate) },
            Rule::new(Action::SkewClock { seconds: -60 }),
            Rule::new(Action::Reset),
            Rule::new(Action::LoseAnswer),
        ]);
        let disturbance = faults.decide(Operation::BlobGet, "a-container/name");
        assert_eq!(
            (disturbance.answer_after, disturbance.skew_seconds, disturbance.end),
            (delay, 0, Some(Action::Truncate))
        );
        let disturbance = faults.decide(Operation::BlobGet, "b");
        assert_eq!(
            (disturbance.answer_after, disturbance.skew_seconds, disturbance.end),
            (delay, -60, Some(Action::Reset))
        );
        faults.remove(2).unwrap();
        assert_eq!(faults.remove(2).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(faults.decide(Operation::BlobGet, "a-").end, Some(Action::Reset));
        faults.clear();
        assert_eq!(faults.decide(Operation::BlobGet, "a-"), Disturbance::default());
    }

    #[test]
    fn the_same_seed_throws_the_same_dice() {
        let thrown = |seed| {
            let mut faults =
                faults([Rule { probability: 0.25, seed, ..Rule::new(Action::OperationTimedOut) }]);
            (0..1000).map(|_| faults.decide(Operation::Update, "q").end.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(thrown(7), thrown(7));
        assert_ne!(thrown(7), thrown(8));
        let injected = thrown(7).iter().filter(|injected| **injected).count();
        assert!((200..300).contains(&injected), "{injected} of 1000");
    }

    #[test]
    fn rules_are_read_from_short_json_and_written_whole() {
        let rule: Rule =
            serde_json::from_str(r#"{"operation":"any","action":{"kind":"delay","ms":5}}"#).unwrap();
        assert_eq!(rule, Rule::new(Action::Delay { by: Duration::from_millis(5) }));
        let rule = Rule::new(Action::ServerBusy { retry_after_seconds: Some(2) }).on(Operation::BlockList);
        let json = serde_json::to_string(&rule).unwrap();
        assert!(json.contains(r#""operation":"block-list""#), "{json}");
        assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule);
        for bad in [
            r#"{"action":{"kind":"explode"}}"#,
            r#"{"operation":"get","action":{"kind":"reset"}}"#,
            r#"{"time":1,"action":{"kind":"reset"}}"#,
        ] {
            assert!(serde_json::from_str::<Rule>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        let refuse = Rule::new(Action::Refuse { status: 200, code: "Fine".into() });
        let unlikely = Rule { probability: 1.5, ..Rule::new(Action::Reset) };
        for rule in [refuse, unlikely] {
            assert_eq!(Faults::default().add(rule).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
