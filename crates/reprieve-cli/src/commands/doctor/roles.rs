//! Checks of permissions, operation by operation, with the role that is missing.

use reprieve::ErrorKind;
use reprieve_azure::storage::check::{Deed, Ground, Outcome, Tried};

use super::finding::{Finding, State, explained};
use crate::format::list;

/// The cure for a failure that names none.
pub(super) const AGAIN: &str =
    "run this again in a minute; if it still fails, check the account's health in the Azure portal";

/// The service whose permissions a finding is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service {
    /// The finding's name.
    pub(super) name: &'static str,
    /// The word for a queue or a container.
    pub(super) thing: &'static str,
}

/// One finding with the permitted operations, and one for each that failed.
pub(super) fn judged(service: Service, ground: &Ground, tried: &[Tried]) -> Vec<Finding> {
    let done = names(tried, |outcome| matches!(outcome, Outcome::Done));
    let failed: Vec<_> = tried.iter().filter_map(|one| failure(service, one, tried)).collect();
    let attempts = tried.iter().filter(|one| !matches!(one.outcome, Outcome::NotTried(_))).count();
    if done.is_empty() && attempts > 1 && tried.iter().all(|one| is_denied(one) || is_not_tried(one)) {
        // One finding stands for the same refusal of every operation.
        return whole_refusal(service, tried).into_iter().collect();
    }
    let scratch = if matches!(ground, Ground::Scratch(_)) && !done.is_empty() {
        "; tried on one created for the check"
    } else {
        ""
    };
    let uncreated = if may_not_create(ground, tried) {
        format!("; may not create {}s, which is only needed where they are missing", service.thing)
    } else {
        String::new()
    };
    let untried = not_tried(tried).concat();
    let seen = format!("may {}{scratch}{uncreated}{untried}", list(&done));
    let permitted =
        if done.is_empty() { Finding::skipped(service.name, seen) } else { Finding::ok(service.name, seen) };
    let figures =
        tried.iter().fold(permitted, |finding, one| finding.with(one.deed.name(), word(&one.outcome)));
    std::iter::once(figures).chain(failed).collect()
}

/// Whether the check used an existing queue or container because it may not create one.
fn may_not_create(ground: &Ground, tried: &[Tried]) -> bool {
    matches!(ground, Ground::Own(_)) && tried.iter().any(|one| one.deed == Deed::Create && is_denied(one))
}

/// The finding about one failed operation; `None` when it succeeded or does not matter.
fn failure(service: Service, one: &Tried, all: &[Tried]) -> Option<Finding> {
    let Outcome::Failed(error) = &one.outcome else { return None };
    let name = format!("{}: {}", service.name, one.deed.name());
    let denied = error.kind() == ErrorKind::Denied;
    match one.deed {
        // The finding about the queue reports whether it must be created.
        Deed::Create if denied && service.thing == "queue" => None,
        Deed::Count if denied => {
            let (seen, cure) = explained(error);
            let seen = format!("{seen}; `reprieve status` and the metrics can't show the queue's length");
            Some(Finding::warning(name, seen, cure.unwrap_or_else(|| AGAIN.to_owned())))
        }
        Deed::Remove => {
            let (seen, _) = explained(error);
            let cure = format!("delete the {}s whose names begin with reprieve-doctor-", service.thing);
            Some(Finding::warning(name, format!("failed to clean up: {seen}"), cure))
        }
        Deed::Renew if denied && has_process_only(all) => {
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
fn has_process_only(tried: &[Tried]) -> bool {
    let done = |deed| tried.iter().any(|one| one.deed == deed && matches!(one.outcome, Outcome::Done));
    done(Deed::Delete) && done(Deed::Peek)
}

fn whole_refusal(service: Service, tried: &[Tried]) -> Option<Finding> {
    tried.iter().find_map(|one| match &one.outcome {
        Outcome::Failed(error) => {
            let (seen, cure) = explained(error);
            let cure = cure.unwrap_or_else(|| AGAIN.to_owned());
            let finding = Finding::problem(service.name, format!("no operation is allowed: {seen}"), cure);
            Some(tried.iter().fold(finding, |finding, one| finding.with(one.deed.name(), word(&one.outcome))))
        }
        _ => None,
    })
}

/// Whether every operation was refused, so that the other checks of the service are skipped.
pub(super) fn is_refused_everything(findings: &[Finding]) -> bool {
    matches!(findings, [only] if only.state == State::Problem)
}

fn names(tried: &[Tried], which: impl Fn(&Outcome) -> bool) -> Vec<&'static str> {
    tried.iter().filter(|one| which(&one.outcome)).map(|one| one.deed.name()).collect()
}

/// The operations that were not tried, by reason.
fn not_tried(tried: &[Tried]) -> Vec<String> {
    let mut reasons: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for one in tried {
        let Outcome::NotTried(why) = one.outcome else { continue };
        // Only the check itself removes a queue or a container.
        if one.deed == Deed::Remove {
            continue;
        }
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, deeds)) => deeds.push(one.deed.name()),
            None => reasons.push((why, vec![one.deed.name()])),
        }
    }
    reasons.iter().map(|(why, deeds)| format!("; {} not tried: {why}", list(deeds))).collect()
}

fn is_denied(one: &Tried) -> bool {
    matches!(&one.outcome, Outcome::Failed(error) if error.kind() == ErrorKind::Denied)
}

fn is_not_tried(one: &Tried) -> bool {
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

    fn tried<const N: usize>(deeds: [(Deed, Outcome); N]) -> Vec<Tried> {
        deeds.into_iter().map(|(deed, outcome)| Tried { deed, outcome }).collect()
    }

    fn own() -> Ground {
        Ground::Own("work".to_owned())
    }

    #[test]
    fn the_role_that_can_not_renew_is_named() {
        let tried = tried([
            (Deed::Create, denied()),
            (Deed::Peek, Outcome::Done),
            (Deed::Count, denied()),
            (Deed::Send, denied()),
            (Deed::Renew, denied()),
            (Deed::Delete, Outcome::Done),
            (Deed::Receive, Outcome::NotTried("it would take a job from a worker")),
        ]);
        let findings = judged(QUEUES, &own(), &tried);
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
        let tried = tried([
            (Deed::Create, denied()),
            (Deed::Peek, denied()),
            (Deed::Renew, denied()),
            (Deed::Receive, Outcome::NotTried("it would take a job from a worker")),
        ]);
        let findings = judged(QUEUES, &own(), &tried);
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
        let tried =
            tried([(Deed::Create, Outcome::Done), (Deed::Send, Outcome::Done), (Deed::Remove, denied())]);
        let findings = judged(QUEUES, &Ground::Scratch("reprieve-doctor-1".to_owned()), &tried);
        assert_eq!(findings[0].seen, "may create and send; tried on one created for the check");
        assert_eq!((findings.len(), findings[1].state), (2, State::Warning));
        assert!(findings[1].cure.as_deref().is_some_and(|cure| cure.contains("reprieve-doctor-")));
    }
}
