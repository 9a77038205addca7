//! Made-up parts of stories for tests: each as plain as it can be, to be changed where a test is about it.

use crate::store::StoreKind;
use crate::story::{JobStory, Story, VmEnd, VmStory};

/// A story in which these jobs and VMs are all there is.
pub(super) fn story(jobs: Vec<JobStory>, vms: Vec<VmStory>) -> Story {
    Story {
        seed: 1,
        store: StoreKind::Sqlite,
        took_ms: 28_400,
        notice_ms: 5_000,
        checkpoint_every_ms: 1_000,
        steps_per_job: 40,
        jobs,
        vms,
        output_digest: "a".into(),
        reference_digest: "a".into(),
    }
}

/// A VM that did nothing and ended so.
pub(super) fn vm(end: VmEnd, announced_in_vain_ms: Option<u64>) -> VmStory {
    let (name, shifts) = ("vm-1".into(), Vec::new());
    VmStory { name, began_ms: 0, ended_ms: 9, end, announced_in_vain_ms, shifts }
}
