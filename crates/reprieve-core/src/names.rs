//! The names of a job's inputs and outputs, and of the blobs that Reprieve writes itself. Each of the
//! latter's prefixes belongs to one kind of blob alone, so that retention never removes another.

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, JobId, WorkerId};

/// The prefix of the results: `results/<job>.json`.
pub(crate) const RESULTS: &str = "results/";

/// The prefix of long arguments: `args/<job>.json`.
pub(crate) const ARGUMENTS: &str = "args/";

/// The prefix of the blobs that contain drain reports. Their names sort by time.
pub const DRAINS: &str = "drains/";

/// The prefix of the diagnoses of machines that were to be replaced: `diagnoses/<machine>.json`.
pub const DIAGNOSES: &str = "diagnoses/";

/// The prefix of the marks of workers that are ready for an event:
/// `ready/<event>/<machine>/<worker>`.
pub(crate) const READY: &str = "ready/";

/// The prefix of the marks of cancelled jobs: `cancelled/<job>.json`.
pub(crate) const CANCELLATIONS: &str = "cancelled/";

/// The blob that changes whenever a job is cancelled.
pub(crate) const CANCELLED: &str = "cancelled.json";

/// The prefix of the names of slots of the fleet, which are records and no jobs.
pub(crate) const SLOT_IDS: &str = "reprieve-slot.";

/// The prefix of the names of the ledger's entries, which are records and no jobs.
pub(crate) const LEDGER_IDS: &str = "reprieve-ledger.";

/// What a record with this id is, if it is no job's; `None` for a job's.
pub(crate) fn what_but_a_job(id: &str) -> Option<&'static str> {
    [(SLOT_IDS, "a slot of the fleet"), (LEDGER_IDS, "an entry of the ledger")]
        .into_iter()
        .find_map(|(prefix, what)| id.starts_with(prefix).then_some(what))
}

/// The blob that states how far the workers' cleaning is.
pub(crate) const CLEANING: &str = "cleaning.json";

/// The blob that states how often machines lost work.
pub(crate) const LOST_WORK: &str = "lost-work.json";

/// The prefix of the outputs with relative names: `jobs/<job>/<name>`.
const OUTPUTS: &str = "jobs/";

/// The prefix of the job's outputs with relative names. A segment of a blob's name must not end in a
/// dot, but an id may: it gets a `~`, which no id has.
pub(crate) fn outputs_of(job: &JobId) -> String {
    let mark = if job.as_str().ends_with('.') { "~" } else { "" };
    format!("{OUTPUTS}{job}{mark}/")
}

/// The blob of the job's output with this name: relative to the job's outputs, or from the root if it
/// begins with `/`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) for a bad name, and for one of Reprieve's own blobs.
pub(crate) fn output_blob(operation: &'static str, job: &JobId, name: &str) -> Result<BlobName> {
    let blob = match name.strip_prefix('/') {
        Some(absolute) => BlobName::parse(absolute)?,
        None => BlobName::parse(outputs_of(job) + name)?,
    };
    check_own(operation, &blob)?;
    Ok(blob)
}

/// The blob of the input with this name, from the root with or without `/`.
pub(crate) fn input_blob(name: &str) -> Result<BlobName> {
    BlobName::parse(name.strip_prefix('/').unwrap_or(name))
}

/// The blob of a job's long arguments, kept until the job is completed.
pub(crate) fn args_blob(job: &JobId) -> Result<BlobName> {
    BlobName::parse(format!("{ARGUMENTS}{job}.json"))
}

/// The blob of a job's result.
pub(crate) fn result_blob(job: &JobId) -> Result<BlobName> {
    BlobName::parse(format!("{RESULTS}{job}.json"))
}

/// The mark of a cancelled job.
pub(crate) fn cancellation_blob(job: &JobId) -> Result<BlobName> {
    BlobName::parse(format!("{CANCELLATIONS}{job}.json"))
}

/// The blob of a drain's report, which ended at `at_unix_ms`.
pub(crate) fn drain_blob(at_unix_ms: i64, worker: &WorkerId) -> Result<BlobName> {
    BlobName::parse(format!("{DRAINS}{at_unix_ms:013}-{worker}.json"))
}

/// The job of a blob with arguments; `None` for a name that is none.
pub(crate) fn job_of_arguments(blob: &BlobName) -> Option<JobId> {
    job_of(blob, ARGUMENTS)
}

/// The job of a result; `None` for a name that is none.
pub(crate) fn job_of_result(blob: &BlobName) -> Option<JobId> {
    job_of(blob, RESULTS)
}

/// The job of a mark; `None` for a name that is none.
pub(crate) fn job_of_cancellation(blob: &BlobName) -> Option<JobId> {
    job_of(blob, CANCELLATIONS)
}

/// Whether this is the name of a result.
pub(crate) fn is_result(blob: &BlobName) -> bool {
    job_of_result(blob).is_some()
}

/// Whether this is the name of a drain's report.
pub(crate) fn is_drain(blob: &BlobName) -> bool {
    let stem = blob.as_str().strip_prefix(DRAINS).and_then(|name| name.strip_suffix(".json"));
    stem.and_then(|stem| stem.split_once('-')).is_some_and(|(at, worker)| {
        at.len() >= 13 && at.bytes().all(|digit| digit.is_ascii_digit()) && !worker.contains('/')
    })
}

/// Whether this is the name of a diagnosis.
pub(crate) fn is_diagnosis(blob: &BlobName) -> bool {
    let machine = blob.as_str().strip_prefix(DIAGNOSES).and_then(|name| name.strip_suffix(".json"));
    machine.is_some_and(|machine| !machine.contains('/'))
}

/// Whether this is the name of a mark.
pub(crate) fn is_mark(blob: &BlobName) -> bool {
    blob.as_str().strip_prefix(READY).is_some_and(|rest| rest.split('/').count() == 3)
}

fn job_of(blob: &BlobName, prefix: &str) -> Option<JobId> {
    let job = blob.as_str().strip_prefix(prefix)?.strip_suffix(".json")?;
    JobId::parse(job).ok()
}

/// Fails for a name that is kept for Reprieve's own blobs.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid).
pub(crate) fn check_own(operation: &'static str, blob: &BlobName) -> Result<()> {
    let name = blob.as_str();
    let prefixes = [RESULTS, ARGUMENTS, DRAINS, DIAGNOSES, READY, CANCELLATIONS];
    let message = if let Some(prefix) = prefixes.into_iter().find(|prefix| name.starts_with(prefix)) {
        format!("names that begin with {prefix} are Reprieve's own; use another name")
    } else if [CLEANING, CANCELLED, LOST_WORK].contains(&name) {
        format!("the name {name} is Reprieve's own; use another name")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, operation, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_lies_under_its_job_or_where_an_absolute_name_says() {
        let job = |id: &str| JobId::parse(id).unwrap();
        let output = |id: &str, name: &str| output_blob("write", &job(id), name).map(|blob| blob.to_string());
        for (id, name, blob) in [
            ("a", "x.png", "jobs/a/x.png"),
            ("a", "results/x", "jobs/a/results/x"),
            ("a", "/thumbs/x.png", "thumbs/x.png"),
            ("a", "/jobs/b/x", "jobs/b/x"),
            ("a.b", "x", "jobs/a.b/x"),
            ("a.", "x", "jobs/a.~/x"),
            ("a..", "x", "jobs/a..~/x"),
        ] {
            assert_eq!(output(id, name).unwrap(), blob);
        }
        for bad in ["", "/", "//x", "x/", "../b/x", "x//y", "/../x", "/results/x", "/cleaning.json"] {
            assert!(output("a", bad).is_err(), "{bad:?}");
        }
        let (longest_id, longest_name) = ("i".repeat(128), "n".repeat(240));
        assert!(output(&longest_id, &longest_name).is_ok());
        let too_long = format!("{longest_name}/").repeat(4);
        assert!(output(&longest_id, &too_long).is_err());
    }

    #[test]
    fn an_input_is_named_from_the_root() {
        for name in ["photos/a", "/photos/a"] {
            assert_eq!(input_blob(name).unwrap().as_str(), "photos/a");
        }
        assert!(input_blob("//a").is_err() && input_blob("/").is_err());
    }

    #[test]
    fn only_the_names_that_reprieve_gives_are_its_own() {
        let name = |name: &str| BlobName::parse(name).unwrap();
        let job = JobId::unique();
        assert!(is_result(&result_blob(&job).unwrap()) && !is_result(&name("results/of-2025/all.json")));
        assert!(!is_result(&name("results/all.csv")));
        assert_eq!(job_of_arguments(&args_blob(&job).unwrap()), Some(job));
        let job = JobId::parse("a.").unwrap();
        assert_eq!(job_of_cancellation(&cancellation_blob(&job).unwrap()), Some(job));
        assert!(is_drain(&drain_blob(1_700_000_000_000, &WorkerId::unique()).unwrap()));
        for other in ["drains/pumps.json", "drains/2025-pumps.json", "drains/1700000000000-a/b.json"] {
            assert!(!is_drain(&name(other)), "{other}");
        }
        assert!(is_diagnosis(&name("diagnoses/set_3.json")) && !is_diagnosis(&name("diagnoses/a/b.json")));
        assert!(is_mark(&name("ready/event/vm/worker")) && !is_mark(&name("ready/to-render.csv")));
        for own in [
            "results/a",
            "args/a",
            "drains/a",
            "diagnoses/a",
            "ready/a",
            "cleaning.json",
            "cancelled/a",
            "cancelled.json",
        ] {
            assert!(check_own("write", &name(own)).is_err(), "{own}");
        }
        for other in ["results", "result/a", "inputs/results/a", "cleaning.jsonl"] {
            assert!(check_own("write", &name(other)).is_ok(), "{other}");
        }
    }
}
