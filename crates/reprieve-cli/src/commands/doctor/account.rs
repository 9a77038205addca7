//! A storage account: who is let in, whether its services answer, what may be done there, and how fast.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reprieve::checkup::Checkup;
use reprieve::{Result, clock};
use reprieve_azure::storage::Address;
use reprieve_azure::storage::check::{
    BlobTrial, Checkup as Account, Deed, Ground, Outcome, QueueTrial, Reached, SignedIn, Tried,
};

use super::finding::{Finding, ms_figure};
use super::queues::Queue;
use super::roles::{self, AGAIN, Service};
use super::{pace, queues};
use crate::format::duration;

/// From what difference of clocks on it is worth mending: leases and times to live are reckoned at the service, stamps and
/// the ages of reports here.
const CLOCK_WARNING: SignedDuration = SignedDuration::from_mins(1);

/// The Date header has whole seconds, and the answer was under way.
const DATE_PRECISION: Duration = Duration::from_secs(2);

/// From what difference on a token's beginning may be refused.
const CLOCK_PROBLEM: SignedDuration = SignedDuration::from_mins(5);

/// How long a SAS must last that is not warned of.
const SAS_LEFT_MIN: SignedDuration = SignedDuration::from_hours(7 * 24);

const QUEUES: Service = Service { name: "queue roles", thing: "queue" };
const BLOBS: Service = Service { name: "blob roles", thing: "container" };

pub(super) async fn examine(checkup: &Checkup, address: &Address) -> Vec<Finding> {
    let account = match Account::new(address, checkup.queues.clone(), checkup.container.clone()) {
        Ok(account) => account,
        Err(error) => return without(vec![Finding::of("identity", &error, AGAIN)], "there is no way in"),
    };
    let identity = identity(account.sign_in().await);
    if identity.is_problem() {
        return without(vec![identity], "there is no identity to ask with");
    }
    let [queue, blob] = account.reach().await;
    let clock = clock(&[&queue, &blob]);
    let (queue, blob) = (service("queue service", queue), service("blob service", blob));
    let (queue_works, blob_works) = (!queue.is_problem(), !blob.is_problem());
    let mut findings = vec![identity, queue, blob, clock];
    let (queue, blob) = tokio::join!(
        async {
            if queue_works {
                queue_findings(checkup, &account).await
            } else {
                skipped(&QUEUE_CHECKS, "the queue service lets nobody in or does not answer")
            }
        },
        async {
            if blob_works {
                blob_findings(account.try_blobs().await)
            } else {
                skipped(&BLOB_CHECKS, "the blob service lets nobody in or does not answer")
            }
        }
    );
    findings.extend(queue);
    findings.extend(blob);
    findings
}

/// The checks that follow from one another, in their order; each group needs those before it.
const FIRST_CHECKS: [&str; 3] = ["queue service", "blob service", "clock"];
const QUEUE_CHECKS: [&str; 5] = ["queue roles", "queues", "round trip", "lease", "drain"];
const BLOB_CHECKS: [&str; 3] = ["container", "blob roles", "conditions"];

fn without(mut findings: Vec<Finding>, why: &str) -> Vec<Finding> {
    findings.extend(skipped(&FIRST_CHECKS, why));
    findings.extend(skipped(&QUEUE_CHECKS, why));
    findings.extend(skipped(&BLOB_CHECKS, why));
    findings
}

fn skipped(names: &[&str], why: &str) -> Vec<Finding> {
    names.iter().map(|name| Finding::skipped(*name, why)).collect()
}

fn identity(signed_in: Result<SignedIn>) -> Finding {
    const NAME: &str = "identity";
    let SignedIn { by, until, took } = match signed_in {
        Ok(signed_in) => signed_in,
        Err(error) => {
            return Finding::of(NAME, &error, "assign a managed identity to this VM, or run `az login`");
        }
    };
    let now = Timestamp::try_from(clock::wall_now()).unwrap_or_default();
    let left = until.map(|until| until.duration_since(now));
    let good_for = left.map_or_else(
        || "no end of its own".to_owned(),
        |left| format!("good for {}", duration(left.unsigned_abs())),
    );
    let finding = match (by, took, left) {
        ("SAS", _, Some(left)) if left.is_negative() => {
            let seen = format!("SAS, which ended {} ago", duration(left.unsigned_abs()));
            Finding::problem(NAME, seen, "make a new SAS, or use a managed identity, which has no end")
        }
        ("SAS", _, Some(left)) if left < SAS_LEFT_MIN => {
            let seen = format!("SAS, {good_for}; workers stop when it ends");
            Finding::warning(NAME, seen, "make a new SAS, or use a managed identity, which has no end")
        }
        (_, Some(took), _) => {
            Finding::ok(NAME, format!("{by}; its token took {} and is {good_for}", duration(took)))
        }
        ("account key", ..) => Finding::ok(NAME, "account key, which may do everything and has no end"),
        _ => Finding::ok(NAME, format!("{by}, {good_for}")),
    };
    finding
        .with("by", by)
        .with_known("took_ms", took.map(ms_figure))
        .with_known("seconds_left", left.map(|left| left.as_secs()))
}

fn service(name: &'static str, reached: Result<Reached>) -> Finding {
    match reached {
        Err(error) => Finding::of(
            name,
            &error,
            "check the store's address, the network, and that no firewall is in the way",
        ),
        Ok(Reached { took, turned_away: Some(error), .. }) => {
            Finding::of(name, &error, "check which identity, key or SAS this program was given")
                .with("took_ms", ms_figure(took))
        }
        Ok(Reached { took, .. }) => {
            Finding::ok(name, format!("answered after {}", duration(took))).with("took_ms", ms_figure(took))
        }
    }
}

fn clock(reached: &[&Result<Reached>]) -> Finding {
    const NAME: &str = "clock";
    const CURE: &str = "set this machine's clock, and keep it right with chrony or NTP";
    let answers = reached.iter().filter_map(|reached| reached.as_ref().ok());
    let ahead = answers.filter_map(|reached| reached.ahead).max_by_key(|ahead| ahead.unsigned_abs());
    let Some(ahead) = ahead else { return Finding::skipped(NAME, "no answer had a date") };
    let off = ahead.abs();
    let side = if ahead.is_positive() { "behind" } else { "ahead of" };
    let seen = format!("this machine's is {} {side} the service's", duration(off.unsigned_abs()));
    let finding = if off >= CLOCK_PROBLEM {
        Finding::problem(NAME, format!("{seen}; tokens and signatures are refused for that"), CURE)
    } else if off >= CLOCK_WARNING {
        Finding::warning(NAME, seen, CURE)
    } else {
        Finding::ok(
            NAME,
            format!("as the service's, to {}", duration(off.unsigned_abs().max(DATE_PRECISION))),
        )
    };
    finding.with("service_ahead_ms", i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX))
}

/// Roles, queues and round trips.
async fn queue_findings(checkup: &Checkup, account: &Account) -> Vec<Finding> {
    let (trial, looks) = tokio::join!(account.try_queue(), account.look());
    let trial = match trial {
        Ok(trial) => trial,
        Err(error) => return vec![Finding::of("queue roles", &error, AGAIN)],
    };
    let QueueTrial { ground, tried, round_trips } = &trial;
    let mut findings = roles::judged(QUEUES, ground, tried);
    if roles::may_nothing(&findings) {
        findings.extend(skipped(&QUEUE_CHECKS[1..], "nothing may be done with queues"));
        return findings;
    }
    let looks: Vec<_> = looks.into_iter().map(Queue::from).collect();
    findings.extend(queues::judged(&looks, is_done(tried, Deed::Create)));
    findings.extend(pace::judged(&checkup.worker, round_trips, no_round_trips(tried)));
    findings
}

fn no_round_trips(tried: &[Tried]) -> &'static str {
    match tried.iter().find(|one| one.deed == Deed::Renew).map(|one| &one.outcome) {
        Some(Outcome::Failed(_)) => "no lease could be renewed",
        _ => "there was no message whose lease could be renewed",
    }
}

/// The container, what may be done in it, and whether conditions are kept.
fn blob_findings(trial: Result<BlobTrial>) -> Vec<Finding> {
    let BlobTrial { ground, tried, conditions_kept, left_behind } = match trial {
        Ok(trial) => trial,
        Err(error) => return vec![Finding::of("blob roles", &error, AGAIN)],
    };
    let container = match (&ground, tried.iter().find(|one| one.deed == Deed::Create)) {
        (Ground::Own(name), _) => Finding::ok("container", format!("{name} is there")),
        (Ground::Scratch(_), Some(Tried { outcome: Outcome::Failed(error), .. })) => {
            let mut findings = vec![Finding::of("container", error, AGAIN)];
            findings.extend(skipped(&BLOB_CHECKS[1..], "there is no container to try it in"));
            return findings;
        }
        (Ground::Scratch(_), _) => Finding::ok("container", "is not there yet; the first worker makes it"),
    };
    let roles = roles::judged(BLOBS, &ground, &tried);
    if roles::may_nothing(&roles) {
        let look = Finding::skipped("container", "nothing may be done with blobs");
        let conditions = Finding::skipped("conditions", "nothing may be done with blobs");
        return std::iter::once(look).chain(roles).chain([conditions]).collect();
    }
    let mut findings = vec![container];
    findings.extend(roles);
    findings.push(conditions(conditions_kept));
    if let Some(blob) = left_behind {
        let seen = format!("{blob} could not be deleted");
        findings.push(Finding::warning("clearing up", seen, "delete it by hand; it does no harm"));
    }
    findings
}

fn conditions(kept: Option<bool>) -> Finding {
    match kept {
        Some(true) => {
            Finding::ok("conditions", "If-Match and If-None-Match keep a blob from being overwritten")
        }
        Some(false) => Finding::problem(
            "conditions",
            "a blob was overwritten in spite of If-Match or If-None-Match",
            "use a storage account of Azure's, or Azurite; with what answers here, two owners of a job could overwrite each \
             other's progress",
        ),
        None => Finding::skipped("conditions", "no blob could be written"),
    }
}

fn is_done(tried: &[Tried], deed: Deed) -> bool {
    tried.iter().any(|one| one.deed == deed && matches!(one.outcome, Outcome::Done))
}
