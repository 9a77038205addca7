//! The queues and their poison queues: whether they are there, what is in them, and what will vanish by itself.

use jiff::tz::TimeZone;
use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::storage::check::{Next, QueueLook};

use super::finding::{Finding, State, explained};
use super::roles::AGAIN;
use crate::format::count;

/// From how many queues on those that are well are told in one line.
const EACH_MAX: usize = 4;

/// What is known of one queue.
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

/// A finding for each queue and each poison queue, and for messages that expire. Queues that are missing are no matter when
/// `creatable`: a worker makes them.
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
        "{} and {poisoned} poisoned in {} queues; {well} findings about them are well",
        count(messages, "message"),
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
            let seen = format!("{} that could not be done", count(*messages, "message"));
            let cure = "see why with `reprieve status`, mend it, and enqueue them again";
            Finding::warning(finding, seen, cure).with("messages", *messages)
        }
        Err(error) => absent(finding, error, creatable),
    }
}

fn absent(name: String, error: &Error, creatable: bool) -> Finding {
    match error.kind() {
        ErrorKind::NotFound if creatable => Finding::ok(name, "is not there yet; the first worker makes it"),
        // That is told with the roles.
        ErrorKind::Denied => {
            Finding::skipped(name, format!("its length is not to be known: {}", explained(error).0))
        }
        _ => Finding::of(name, error, AGAIN),
    }
}

/// `None` where no message could be looked at.
fn expiry(name: &str, next: &Result<Next>) -> Option<Finding> {
    let next = next.as_ref().ok().filter(|next| next.peeked > 0)?;
    let finding = format!("expiry in {name}");
    let peeked = count(next.peeked as u64, "message");
    let finding = if let Some(end) = next.first_end {
        let end = end.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M UTC").to_string();
        let seen = format!(
            "{} of the next {peeked} will be deleted when their time to live is over, done or not, the first at {end}",
            next.expiring
        );
        Finding::warning(finding, seen, "send messages with a time to live of -1, as `reprieve enqueue` does")
    } else {
        Finding::ok(finding, format!("none of the next {peeked} has an end"))
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
    fn messages_that_will_vanish_are_told_with_the_first_time() {
        let next = Next { peeked: 32, expiring: 3, first_end: Some("2026-11-28T08:30:00Z".parse().unwrap()) };
        let findings = judged(&[queue("work", Ok(40), Ok(2), next)], true);
        let states: Vec<_> = findings.iter().map(|one| one.state).collect();
        assert_eq!(states, [State::Ok, State::Warning, State::Warning]);
        let said = "3 of the next 32 messages will be deleted when their time to live is over, done or not, the first at \
                    2026-11-28 08:30 UTC";
        assert_eq!(findings[2].seen, said);
    }

    #[test]
    fn of_many_queues_only_those_with_something_wrong_have_lines_of_their_own() {
        let mut queues: Vec<_> =
            (0..8).map(|at| queue(&format!("work-{at}"), Ok(2), Ok(0), Next::default())).collect();
        queues[3].poisoned = Ok(1);
        let findings = judged(&queues, true);
        let names: Vec<_> = findings.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["queues", "queue work-3-poison"]);
        assert_eq!(
            findings[0].seen,
            "16 messages and 1 poisoned in 8 queues; 15 findings about them are well"
        );
    }
}
