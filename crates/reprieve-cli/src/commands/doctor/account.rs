//! Checks of a storage account: identity, services, clock, permissions and latency.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reprieve::checkpoint::Losses;
use reprieve::checkup::Checkup;
use reprieve::{Result, clock};
use reprieve_azure::storage::Address;
use reprieve_azure::storage::check::{
    Attempt, BlobTrial, Checkup as Account, Copies, Outcome, QueueTrial, Reached, SignedIn, StoreOperation,
    TrialTarget,
};

use super::finding::{Finding, ms_figure};
use super::queues::Queue;
use super::roles::{self, AGAIN, Service};
use super::{pace, queues};
use crate::format::duration;

/// The difference of clocks that is a warning: a third of the tightest margin, the 5 s that a drain
/// keeps before an event's `NotBefore` where the metadata service does not show its own time.
const CLOCK_WARNING: SignedDuration = SignedDuration::from_millis(1_667);

/// The Date header has whole seconds, and the answer was under way.
const DATE_PRECISION: Duration = Duration::from_secs(2);

/// The difference of clocks at which Azure may refuse a new token.
const CLOCK_PROBLEM: SignedDuration = SignedDuration::from_mins(5);

/// The state of the estimate of kept copies, in megabytes.
const STATE_MB: f64 = 100.0;

/// The remaining life of a SAS below which there is a warning.
const SAS_LEFT_MIN: SignedDuration = SignedDuration::from_hours(7 * 24);

const QUEUES: Service = Service { name: "queue roles", thing: "queue" };
const BLOBS: Service = Service { name: "blob roles", thing: "container" };

pub(super) async fn examine(checkup: &Checkup, address: &Address) -> Vec<Finding> {
    let account = match Account::new(address, checkup.queues.clone(), checkup.container.clone()) {
        Ok(account) => account,
        Err(error) => {
            return without(vec![Finding::of("identity", &error, AGAIN)], "the account can't be opened");
        }
    };
    let identity = identity(account.sign_in().await);
    if identity.is_problem() {
        return without(vec![identity], "there is no identity");
    }
    let (account_name, save_every) =
        (address.account().to_owned(), checkup.worker.checkpoint_every.interval(None, Losses::default()));
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
                skipped(&QUEUE_CHECKS, "the queue service refuses requests or does not answer")
            }
        },
        async {
            if blob_works {
                blob_findings(account.try_blobs().await, &account_name, save_every)
            } else {
                skipped(&BLOB_CHECKS, "the blob service refuses requests or does not answer")
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
    let validity = left.map_or_else(
        || "without expiry".to_owned(),
        |left| format!("valid for {}", duration(left.unsigned_abs())),
    );
    let finding = match (by, took, left) {
        ("SAS", _, Some(left)) if left.is_negative() => {
            let seen = format!("SAS, expired {} ago", duration(left.unsigned_abs()));
            Finding::problem(NAME, seen, "create a new SAS, or use a managed identity, which does not expire")
        }
        ("SAS", _, Some(left)) if left < SAS_LEFT_MIN => {
            let seen = format!("SAS, {validity}; workers stop when it expires");
            Finding::warning(NAME, seen, "create a new SAS, or use a managed identity, which does not expire")
        }
        (_, Some(took), _) => {
            Finding::ok(NAME, format!("{by}; its token took {} and is {validity}", duration(took)))
        }
        ("account key", ..) => Finding::ok(NAME, "account key: all permissions, no expiry"),
        _ => Finding::ok(NAME, format!("{by}, {validity}")),
    };
    finding
        .with("by", by)
        .with_known("took_ms", took.map(ms_figure))
        .with_known("seconds_left", left.map(|left| left.as_secs()))
}

fn service(name: &'static str, reached: Result<Reached>) -> Finding {
    match reached {
        Err(error) => Finding::of(name, &error, "check the store's address, the network and the firewalls"),
        Ok(Reached { took, turned_away: Some(error), .. }) => {
            Finding::of(name, &error, "check the identity, key or SAS in the settings")
                .with("took_ms", ms_figure(took))
        }
        Ok(Reached { took, .. }) => {
            Finding::ok(name, format!("answered after {}", duration(took))).with("took_ms", ms_figure(took))
        }
    }
}

fn clock(reached: &[&Result<Reached>]) -> Finding {
    const NAME: &str = "clock";
    const CURE: &str = "set this machine's clock, and synchronise it with chrony or NTP";
    let answers = reached.iter().filter_map(|reached| reached.as_ref().ok());
    let ahead = answers.filter_map(|reached| reached.ahead).max_by_key(|ahead| ahead.unsigned_abs());
    let Some(ahead) = ahead else { return Finding::skipped(NAME, "no answer had a Date header") };
    let off = ahead.abs();
    let side = if ahead.is_positive() { "behind" } else { "ahead of" };
    let seen = format!("this machine's clock is {} {side} the service's", duration(off.unsigned_abs()));
    let finding = if off >= CLOCK_PROBLEM {
        Finding::problem(NAME, format!("{seen}; Azure refuses its tokens and signatures"), CURE)
    } else if off >= CLOCK_WARNING {
        Finding::warning(NAME, seen, CURE)
    } else {
        Finding::ok(
            NAME,
            format!("equal to the service's within {}", duration(off.unsigned_abs().max(DATE_PRECISION))),
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
    let QueueTrial { target, attempts, round_trips } = &trial;
    let mut findings = roles::judged(QUEUES, target, attempts);
    if roles::is_refused_everything(&findings) {
        findings.extend(skipped(&QUEUE_CHECKS[1..], "no queue operation is allowed"));
        return findings;
    }
    let looks: Vec<_> = looks.into_iter().map(Queue::from).collect();
    findings.extend(queues::judged(&looks, is_done(attempts, StoreOperation::Create)));
    findings.extend(pace::judged(&checkup.worker, round_trips, no_round_trips(attempts)));
    findings
}

fn no_round_trips(attempts: &[Attempt]) -> &'static str {
    match attempts.iter().find(|one| one.operation == StoreOperation::Renew).map(|one| &one.outcome) {
        Some(Outcome::Failed(_)) => "no lease could be renewed",
        _ => "there was no message to renew a lease of",
    }
}

/// The container, what may be done in it, and whether conditions are kept.
fn blob_findings(trial: Result<BlobTrial>, account: &str, save_every: Duration) -> Vec<Finding> {
    let BlobTrial { target, attempts, conditions_kept, copies, has_directories, left_behind } = match trial {
        Ok(trial) => trial,
        Err(error) => return vec![Finding::of("blob roles", &error, AGAIN)],
    };
    let container = match (&target, attempts.iter().find(|one| one.operation == StoreOperation::Create)) {
        (TrialTarget::Own(name), _) => Finding::ok("container", format!("{name} exists")),
        (TrialTarget::Scratch(_), Some(Attempt { outcome: Outcome::Failed(error), .. })) => {
            let mut findings = vec![Finding::of("container", error, AGAIN)];
            findings.extend(skipped(&BLOB_CHECKS[1..], "there is no container to try them in"));
            return findings;
        }
        (TrialTarget::Scratch(_), _) => {
            Finding::ok("container", "does not exist yet; the first worker creates it")
        }
    };
    let roles = roles::judged(BLOBS, &target, &attempts);
    if roles::is_refused_everything(&roles) {
        let look = Finding::skipped("container", "no blob operation is allowed");
        let conditions = Finding::skipped("conditions", "no blob operation is allowed");
        return std::iter::once(look).chain(roles).chain([conditions]).collect();
    }
    let mut findings = vec![container];
    findings.extend(roles);
    findings.push(conditions(conditions_kept));
    findings.extend(copies.and_then(|copies| kept_copies(copies, account, save_every)));
    if has_directories == Some(true) {
        findings.push(Finding::warning(
            "hierarchical namespace",
            "is on: operations cost more, and empty directories may stay where the account refuses to delete them",
            "use an account without one; it can't be switched off later",
        ));
    }
    if let Some(blob) = left_behind {
        let seen = format!("failed to delete {blob}");
        findings.push(Finding::warning("clearing up", seen, "delete it; it is harmless"));
    }
    findings
}

/// A warning if the account keeps, and bills, what workers overwrite and delete.
fn kept_copies(copies: Copies, account: &str, save_every: Duration) -> Option<Finding> {
    let on = match (copies.versions, copies.deleted) {
        (true, true) => "versioning and soft delete are on",
        (true, false) => "versioning is on",
        (false, true) => "soft delete is on",
        (false, false) => return None,
    };
    let week = Duration::from_hours(7 * 24).as_secs_f64() / save_every.as_secs_f64().max(1.0) * STATE_MB;
    let seen = format!(
        "{on}, so every overwritten checkpoint is kept and billed: about {:.1} GB a week for each slot, with states \
         of {STATE_MB} MB that are saved every {}",
        week / 1_000.0,
        duration(save_every)
    );
    let cure = format!(
        "use an account that holds nothing else, without them: `az storage account blob-service-properties update \
         --account-name {account} --enable-versioning false --enable-delete-retention false`"
    );
    Some(Finding::warning("copies", seen, cure).with("mb_a_week_for_each_slot", week.round()))
}

fn conditions(kept: Option<bool>) -> Finding {
    match kept {
        Some(true) => Finding::ok("conditions", "If-Match and If-None-Match prevent overwriting"),
        Some(false) => Finding::problem(
            "conditions",
            "a blob was overwritten despite If-Match or If-None-Match",
            "use an Azure storage account or Azurite; on this service two owners of a job could overwrite each \
             other's progress",
        ),
        None => Finding::skipped("conditions", "no blob could be written"),
    }
}

fn is_done(attempts: &[Attempt], operation: StoreOperation) -> bool {
    attempts.iter().any(|one| one.operation == operation && matches!(one.outcome, Outcome::Done))
}
