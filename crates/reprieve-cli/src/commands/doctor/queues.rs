//! Checks of the queues and poison queues: existence, length and expiring messages.

use jiff::tz::TimeZone;
use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::storage::check::{Next, QueueLook};

use super::finding::{Finding, State, explained};
use super::roles::AGAIN;
use crate::format::count;

/// With more queues than this, the healthy ones share one line.
const EACH_MAX: usize = 4;

/// The observations of one queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) poison: String,
    pub(super) messages: Result<u64>,
    pub(super) poisoned: Result<u64>,
    pub(super) next: Result<Next>,
}

impl From<QueueLook> for Queue {
    fn from(look: QueueLook) -> Self {
        let QueueLook { name, messages, poisoned, next } = look;
        let poison = name.poison().as_str().to_owned();
        Self { name: name.as_str().to_owned(), poison, messages, poisoned, next }
    }
}

/// A finding for each queue, each poison queue and for messages that expire. A missing queue is ok
/// when `creatable`: a worker creates it.
pub(super) fn judged(queues: &[Queue], creatable: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for queue in queues {
        findings.push(depth(&queue.name, &queue.messages, creatable));
        findings.push(poisoned(&queue.poison, &queue.poisoned, creatable));
        findings.extend(expiry(&queue.name, &queue.next));
    }
    if queues.len() <= EACH_MAX {
        return findings;
    }
    let well = findings.iter().filter(|finding| finding.state == State::Ok).count();
    findings.retain(|finding| finding.state != State::Ok);
    let sum = |count: fn(&Queue) -> &Result<u64>| -> u64 {
        queues.iter().filter_map(|queue| count(queue).as_ref().ok()).sum()
    };
    let (messages, poisoned) = (sum(|queue| &queue.messages), sum(|queue| &queue.poisoned));
    let seen = format!(
        "{} and {} in {} queues; {well} findings are ok",
        count(messages, "message"),
        count(poisoned, "dead letter"),
        queues.len()
    );
    let all = Finding::ok("queues", seen).with("messages", messages).with("poisoned", poisoned);
    findings.insert(0, all);
    findings
}

fn depth(name: &str, messages: &Result<u64>, creatable: bool) -> Finding {
    let finding = format!("queue {name}");
    match messages {
        Ok(messages) => Finding::ok(finding, count(*messages, "message")).with("messages", *messages),
        Err(error) => absent(finding, error, creatable),
    }
}

fn poisoned(name: &str, messages: &Result<u64>, creatable: bool) -> Finding {
    let finding = format!("queue {name}");
    match messages {
        Ok(0) => Finding::ok(finding, "0 messages").with("messages", 0),
        Ok(messages) => {
            let seen = format!("{}: jobs that failed for good", count(*messages, "message"));
            let cure =
                "see the reasons in `reprieve status`, fix the cause, then run `reprieve redrive --all`";
            Finding::warning(finding, seen, cure).with("messages", *messages)
        }
        Err(error) => absent(finding, error, creatable),
    }
}

fn absent(name: String, error: &Error, creatable: bool) -> Finding {
    match error.kind() {
        ErrorKind::NotFound if creatable => {
            Finding::ok(name, "does not exist yet; the first worker creates it")
        }
        // The finding about roles reports it.
        ErrorKind::Denied => {
            Finding::skipped(name, format!("failed to count its messages: {}", explained(error).0))
        }
        _ => Finding::of(name, error, AGAIN),
    }
}

/// `None` when no message could be peeked at.
fn expiry(name: &str, next: &Result<Next>) -> Option<Finding> {
    let next = next.as_ref().ok().filter(|next| next.peeked > 0)?;
    let finding = format!("expiry in {name}");
    let peeked = count(next.peeked as u64, "message");
    let finding = if let Some(end) = next.first_end {
        let end = end.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M UTC").to_string();
        let seen = format!("{} of the next {peeked} expire, done or not, the first at {end}", next.expiring);
        Finding::warning(finding, seen, "send messages with a time to live of -1, as `reprieve enqueue` does")
    } else {
        Finding::ok(finding, format!("none of the next {peeked} expires"))
    };
    Some(finding.with("peeked", next.peeked).with("expiring", next.expiring))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Error {
        let message = "queue \"work\": it does not exist; create it with `az storage queue create --name work` (404 QueueNotFound)";
        Error::new(ErrorKind::NotFound, "count messages", message)
    }

    fn queue(name: &str, messages: Result<u64>, poisoned: Result<u64>, next: Next) -> Queue {
        Queue { name: name.to_owned(), poison: format!("{name}-poison"), messages, poisoned, next: Ok(next) }
    }

    #[test]
    fn a_missing_queue_is_a_problem_only_where_it_can_not_be_made() {
        for (creatable, state) in [(true, State::Ok), (false, State::Problem)] {
            let findings =
                judged(&[queue("work", Err(missing()), Err(missing()), Next::default())], creatable);
            assert_eq!(findings.iter().map(|one| one.state).collect::<Vec<_>>(), [state, state]);
            let cure = findings[0].cure.as_deref().unwrap_or_default();
            assert_eq!(cure.contains("az storage queue create"), !creatable, "{cure}");
        }
    }

    #[test]
    fn expiring_messages_are_reported_with_the_first_time() {
        let next = Next { peeked: 32, expiring: 3, first_end: Some("2026-11-28T08:30:00Z".parse().unwrap()) };
        let findings = judged(&[queue("work", Ok(40), Ok(2), next)], true);
        let states: Vec<_> = findings.iter().map(|one| one.state).collect();
        assert_eq!(states, [State::Ok, State::Warning, State::Warning]);
        let expected = "3 of the next 32 messages expire, done or not, the first at 2026-11-28 08:30 UTC";
        assert_eq!(findings[2].seen, expected);
    }

    #[test]
    fn of_many_queues_only_those_with_something_wrong_have_lines_of_their_own() {
        let mut queues: Vec<_> =
            (0..8).map(|at| queue(&format!("work-{at}"), Ok(2), Ok(0), Next::default())).collect();
        queues[3].poisoned = Ok(1);
        let findings = judged(&queues, true);
        let names: Vec<_> = findings.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["queues", "queue work-3-poison"]);
        assert_eq!(findings[0].seen, "16 messages and 1 dead letter in 8 queues; 15 findings are ok");
    }
}
