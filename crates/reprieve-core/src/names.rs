//! The names of the blobs that Reprieve writes itself. Each prefix belongs to one kind of blob alone,
//! so that retention never removes another.

use crate::error::Result;
use crate::ids::{BlobName, JobId};

/// The prefix of the results: `results/<job>.json`.
pub(crate) const RESULTS: &str = "results/";

/// The prefix of long arguments: `args/<job>.json`.
pub(crate) const ARGUMENTS: &str = "args/";

/// The prefix of the blobs that contain drain reports. Their names sort by time.
pub const DRAINS: &str = "drains/";

/// The prefix of the marks of workers that are ready for an event:
/// `ready/<event>/<machine>/<worker>`.
pub(crate) const READY: &str = "ready/";

/// The blob that states how far the workers' cleaning is.
pub(crate) const CLEANING: &str = "cleaning.json";

/// The blob of a job's long arguments, kept until the job is completed.
pub(crate) fn args_blob(job: &JobId) -> Result<BlobName> {
    BlobName::parse(format!("{ARGUMENTS}{job}.json"))
}

/// The blob of a job's result.
pub(crate) fn result_blob(job: &JobId) -> Result<BlobName> {
    BlobName::parse(format!("{RESULTS}{job}.json"))
}

/// The job of a blob with arguments; `None` for a name that is none.
pub(crate) fn job_of_arguments(blob: &BlobName) -> Option<JobId> {
    let job = blob.as_str().strip_prefix(ARGUMENTS)?.strip_suffix(".json")?;
    JobId::parse(job).ok()
}
