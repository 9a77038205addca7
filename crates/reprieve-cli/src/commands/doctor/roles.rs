//! Checks of permissions, operation by operation, with the role that is missing.

use reprieve::ErrorKind;
use reprieve_azure::storage::check::{Attempt, Outcome, StoreOperation, TrialTarget};

use super::finding::{Finding, State, explained};
use crate::format::list;

/// The cure for a failure that names none.
pub(super) const AGAIN: &str =
    "run this again in a minute; if it still fails, check the account's health in the Azure portal";

/// The service that a finding about permissions is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service {
    /// The finding's name.
    pub(super) name: &'static str,
    /// The word for a queue or a container.
    pub(super) thing: &'static str,
}

/// One finding with the permitted operations, and one for each that failed.
pub(super) fn judged(service: Service, target: &TrialTarget, attempts: &[Attempt]) -> Vec<Finding> {
    let done = names(attempts, |outcome| matches!(outcome, Outcome::Done));
    let failed: Vec<_> = attempts.iter().filter_map(|one| failure(service, one, attempts)).collect();
    let tried_count = attempts.iter().filter(|one| !matches!(one.outcome, Outcome::NotTried(_))).count();
    if done.is_empty() && tried_count > 1 && attempts.iter().all(|one| is_denied(one) || is_not_tried(one)) {
        // One finding covers the same refusal of every operation.
        return whole_refusal(service, attempts).into_iter().collect();
    }
    let scratch = if matches!(target, TrialTarget::Scratch(_)) && !done.is_empty() {
        "; tried on one created for the check"
    } else {
        ""
    };
    let uncreated = if may_not_create(target, attempts) {
        format!("; may not create {}s, which is only needed where they are missing", service.thing)
    } else {
        String::new()
    };
    let untried = not_tried(attempts).concat();
    let seen = format!("may {}{scratch}{uncreated}{untried}", list(&done));
    let permitted =
        if done.is_empty() { Finding::skipped(service.name, seen) } else { Finding::ok(service.name, seen) };
    let figures = attempts
        .iter()
        .fold(permitted, |finding, one| finding.with(one.operation.name(), word(&one.outcome)));
    std::iter::once(figures).chain(failed).collect()
}

/// Whether the check used an existing queue or container because it may not create one.
fn may_not_create(target: &TrialTarget, attempts: &[Attempt]) -> bool {
    matches!(target, TrialTarget::Own(_))
        && attempts.iter().any(|one| one.operation == StoreOperation::Create && is_denied(one))
}

/// The finding about one failed operation; `None` when it succeeded or does not matter.
fn failure(service: Service, one: &Attempt, all: &[Attempt]) -> Option<Finding> {
    let Outcome::Failed(error) = &one.outcome else { return None };
    let name = format!("{}: {}", service.name, one.operation.name());
    let denied = error.kind() == ErrorKind::Denied;
    match one.operation {
        // The finding about the queue reports whether it must be created.
        StoreOperation::Create if denied && service.thing == "queue" => None,
        StoreOperation::Count if denied => {
            let (seen, cure) = explained(error);
            let seen = format!("{seen}; `reprieve status` and the metrics can't show the queue's length");
            Some(Finding::warning(name, seen, cure.unwrap_or_else(|| AGAIN.to_owned())))
        }
        StoreOperation::Remove => {
            let (seen, _) = explained(error);
            let cure = format!("delete the {}s whose names begin with reprieve-doctor-", service.thing);
            Some(Finding::warning(name, format!("failed to clean up: {seen}"), cure))
        }
        StoreOperation::Renew if denied && has_process_only(all) => {
            let (seen, cure) = explained(error);
            let seen = format!(
                "{seen}; the identity may receive and delete messages but not renew leases, as with the role Storage Queue \
                 Data Message Processor: a job longer than its lease would run twice"
            );
            Some(Finding::problem(name, seen, cure.unwrap_or_else(|| AGAIN.to_owned())))
        }
        _ => Some(Finding::of(name, error, AGAIN)),
    }
}

/// Whether messages may be deleted and peeked at but not updated, as with the role in many
/// tutorials.
fn has_process_only(attempts: &[Attempt]) -> bool {
    let done = |operation| {
        attempts.iter().any(|one| one.operation == operation && matches!(one.outcome, Outcome::Done))
    };
    done(StoreOperation::Delete) && done(StoreOperation::Peek)
}

fn whole_refusal(service: Service, attempts: &[Attempt]) -> Option<Finding> {
    attempts.iter().find_map(|one| match &one.outcome {
        Outcome::Failed(error) => {
            let (seen, cure) = explained(error);
            let cure = cure.unwrap_or_else(|| AGAIN.to_owned());
            let finding = Finding::problem(service.name, format!("no operation is allowed: {seen}"), cure);
            Some(
                attempts
                    .iter()
                    .fold(finding, |finding, one| finding.with(one.operation.name(), word(&one.outcome))),
            )
        }
        _ => None,
    })
}

/// Whether every operation was refused, so that the other checks of the service are skipped.
pub(super) fn is_refused_everything(findings: &[Finding]) -> bool {
    matches!(findings, [only] if only.state == State::Problem)
}

fn names(attempts: &[Attempt], which: impl Fn(&Outcome) -> bool) -> Vec<&'static str> {
    attempts.iter().filter(|one| which(&one.outcome)).map(|one| one.operation.name()).collect()
}

/// The operations that were not tried, by reason.
fn not_tried(attempts: &[Attempt]) -> Vec<String> {
    let mut reasons: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for one in attempts {
        let Outcome::NotTried(why) = one.outcome else { continue };
        // Only the check itself removes a queue or a container.
        if one.operation == StoreOperation::Remove {
            continue;
        }
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, operations)) => operations.push(one.operation.name()),
            None => reasons.push((why, vec![one.operation.name()])),
        }
    }
    reasons.iter().map(|(why, operations)| format!("; {} not tried: {why}", list(operations))).collect()
}

fn is_denied(one: &Attempt) -> bool {
    matches!(&one.outcome, Outcome::Failed(error) if error.kind() == ErrorKind::Denied)
}

fn is_not_tried(one: &Attempt) -> bool {
    matches!(one.outcome, Outcome::NotTried(_))
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Failed(error) if error.kind() == ErrorKind::Denied => "denied",
        Outcome::Failed(_) => "failed",
        Outcome::NotTried(_) => "not tried",
    }
}

#[cfg(test)]
mod tests {
    use reprieve::Error;

    use super::*;

    const QUEUES: Service = Service { name: "queue roles", thing: "queue" };

    fn denied() -> Outcome {
        let message = "queue \"work\": the identity in use may not do this; give it the role Storage Queue Data Contributor on \
                       account thumbs (403 AuthorizationPermissionMismatch)";
        Outcome::Failed(Error::new(ErrorKind::Denied, "try it", message))
    }

    fn attempts<const N: usize>(operations: [(StoreOperation, Outcome); N]) -> Vec<Attempt> {
        operations.into_iter().map(|(operation, outcome)| Attempt { operation, outcome }).collect()
    }

    fn own() -> TrialTarget {
        TrialTarget::Own("work".to_owned())
    }

    #[test]
    fn the_role_that_can_not_renew_is_named() {
        let attempts = attempts([
            (StoreOperation::Create, denied()),
            (StoreOperation::Peek, Outcome::Done),
            (StoreOperation::Count, denied()),
            (StoreOperation::Send, denied()),
            (StoreOperation::Renew, denied()),
            (StoreOperation::Delete, Outcome::Done),
            (StoreOperation::Receive, Outcome::NotTried("it would take a job from a worker")),
        ]);
        let findings = judged(QUEUES, &own(), &attempts);
        let states: Vec<_> = findings.iter().map(|one| (one.name.as_str(), one.state)).collect();
        let wanted = [
            ("queue roles", State::Ok),
            ("queue roles: count", State::Warning),
            ("queue roles: send", State::Problem),
            ("queue roles: renew", State::Problem),
        ];
        assert_eq!(states, wanted);
        assert_eq!(
            findings[0].seen,
            "may peek and delete; may not create queues, which is only needed where they are missing; receive not tried: it would \
             take a job from a worker"
        );
        let renew = &findings[3];
        assert!(renew.seen.contains("Storage Queue Data Message Processor"), "{}", renew.seen);
        let cure = renew.cure.as_deref();
        assert_eq!(cure, Some("give it the role Storage Queue Data Contributor on account thumbs"));
    }

    #[test]
    fn a_refusal_of_everything_is_one_finding() {
        let attempts = attempts([
            (StoreOperation::Create, denied()),
            (StoreOperation::Peek, denied()),
            (StoreOperation::Renew, denied()),
            (StoreOperation::Receive, Outcome::NotTried("it would take a job from a worker")),
        ]);
        let findings = judged(QUEUES, &own(), &attempts);
        assert!(is_refused_everything(&findings), "{findings:?}");
        assert!(
            findings[0].seen.starts_with("no operation is allowed: the identity in use"),
            "{}",
            findings[0].seen
        );
        assert_eq!(findings[0].figures["renew"], "denied");
    }

    #[test]
    fn a_scratch_queue_that_stays_is_reported_with_its_cure() {
        let attempts = attempts([
            (StoreOperation::Create, Outcome::Done),
            (StoreOperation::Send, Outcome::Done),
            (StoreOperation::Remove, denied()),
        ]);
        let findings = judged(QUEUES, &TrialTarget::Scratch("reprieve-doctor-1".to_owned()), &attempts);
        assert_eq!(findings[0].seen, "may create and send; tried on one created for the check");
        assert_eq!((findings.len(), findings[1].state), (2, State::Warning));
        assert!(findings[1].cure.as_deref().is_some_and(|cure| cure.contains("reprieve-doctor-")));
    }
}
