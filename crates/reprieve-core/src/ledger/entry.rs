//! The entries: what is written down of a boot, an interruption, a failed delivery and a healing action.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, WorkerId};
use crate::report::DrainReport;
use crate::shorten::shorten;

/// The longest reason that is kept, in bytes of JSON. With everything else an entry then takes less than half of
/// a note of 4 KiB.
const REASON_BYTES_MAX: usize = 1_000;

/// The longest other text, in bytes of JSON: longer than any name that Azure gives.
const TEXT_BYTES_MAX: usize = 120;

/// The most bytes of JSON that the ids of held jobs take: 25 of those that Reprieve gives.
const JOBS_BYTES_MAX: usize = 1_000;

/// One entry. Entries are never changed, but for the last sign of life of a boot; retention removes old ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// A machine booted, and a worker started there.
    Boot(Boot),
    /// A worker was interrupted: it drained, or died.
    Interruption(Box<Interruption>),
    /// A delivery of a job failed.
    Failure(Failure),
    /// A worker tried to heal a fault.
    Healing(HealingAction),
}

/// A machine as its platform describes it. A text that is not known is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The platform's name, by which the machine's events name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vm: String,
    /// The size, such as `Standard_D2s_v5`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// The availability zone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// `Spot` or `Regular`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority: String,
    /// `Deallocate` or `Delete` for a Spot VM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub eviction_policy: String,
    /// The scale set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scale_set: String,
    /// When it booted, in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted_unix_ms: Option<i64>,
}

/// A machine booted. The first worker that starts there writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The id of the boot; the worker's, where the system has none.
    pub boot: String,
    /// The worker that wrote this.
    pub worker: WorkerId,
    /// When that worker started, in milliseconds since the Unix epoch: from then on the machine is observed.
    pub at_unix_ms: i64,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// When the machine was last seen to live, in milliseconds since the Unix epoch. Its workers renew it after one, two,
    /// four minutes and so on, and then once an hour; `None` before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_unix_ms: Option<i64>,
    /// When a worker there last went back to work after a drain, in milliseconds since the Unix epoch: the notice was
    /// withdrawn, or its event was over. `None` if none ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_on_unix_ms: Option<i64>,
}

/// A worker was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// The worker.
    pub worker: WorkerId,
    /// The id of its machine's boot; the worker's, where that is not known.
    pub boot: String,
    /// Its machine, as far as it is known.
    #[serde(default)]
    pub machine: Machine,
    /// Its queue; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queue: String,
    /// When it was noticed, in milliseconds since the Unix epoch: when the notice came, or, of a worker that died,
    /// when it was last seen.
    pub at_unix_ms: i64,
    /// The jobs that it held, as far as an entry has room for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobId>,
    /// How it went.
    pub how: How,
}

/// How an interruption went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The worker drained; it wrote this itself.
    Drained(DrainReport),
    /// The worker died without a drain. Whoever resumed the first of its jobs wrote this.
    Died(Death),
}

/// The death of a worker, as far as its last report tells. Durations are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Death {
    /// When another worker found it, in milliseconds since the Unix epoch.
    pub found_unix_ms: i64,
    /// Whether the machine went on: another worker of the same boot was seen later.
    pub machine_lives: bool,
    /// The jobs that it held.
    pub held: u64,
    /// Work of these jobs since they were last saved, summed. It is at least so much: what was done after the last
    /// report is not known.
    pub work_lost_ms: u64,
    /// Work of these jobs, in these deliveries, that was saved, summed.
    pub work_kept_ms: u64,
}

/// A delivery of a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// The number of the delivery: 1 the first time.
    pub delivery: u32,
    /// The reason, as the job gave it, cut to about 1,000 bytes.
    pub reason: String,
    /// Whether it was the last: the job is in the poison queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poisoned: bool,
    /// The worker.
    pub worker: WorkerId,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
}

/// A worker tried to heal a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealingAction {
    /// The layer of the fault: `job`, `slot`, `worker`, `dependency`, `vm`, `fleet`.
    pub layer: String,
    /// The fault, such as `read-only file system`.
    pub fault: String,
    /// What was done about it.
    pub action: String,
    /// What came of it: `begun` if it is written when it is decided, else `healed` or `failed`.
    pub outcome: String,
    /// The worker.
    pub worker: WorkerId,
    /// The id of its machine's boot; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// Its machine; empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vm: String,
    /// When the fault was found, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// How long after it began the fault was found, in milliseconds; `None` when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_after_ms: Option<u64>,
    /// How long the action took, in milliseconds; `None` when it has no end that the worker sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

impl Entry {
    /// The same entry with every text cut to a length for which a note has room.
    pub(super) fn shortened(mut self) -> Self {
        let cut = |texts: &mut [&mut String]| texts.iter_mut().for_each(|text| shorten(text, TEXT_BYTES_MAX));
        match &mut self {
            Self::Boot(boot) => {
                cut(&mut [&mut boot.boot]);
                cut(&mut boot.machine.texts());
            }
            Self::Interruption(it) => {
                cut(&mut [&mut it.boot, &mut it.queue]);
                let mut bytes = 0;
                it.jobs.retain(|job| {
                    bytes += job.as_str().len() + r#""","#.len();
                    bytes <= JOBS_BYTES_MAX
                });
                cut(&mut it.machine.texts());
                if let How::Drained(report) = &mut it.how {
                    cut(&mut [&mut report.queue, &mut report.notice]);
                }
            }
            Self::Failure(failure) => {
                cut(&mut [&mut failure.kind]);
                shorten(&mut failure.reason, REASON_BYTES_MAX);
            }
            Self::Healing(it) => {
                let HealingAction { layer, fault, action, outcome, boot, vm, .. } = it;
                cut(&mut [layer, boot, vm]);
                for text in [fault, action, outcome] {
                    shorten(text, REASON_BYTES_MAX / 2);
                }
            }
        }
        self
    }
}

impl Machine {
    fn texts(&mut self) -> [&mut String; 7] {
        let Self { vm, size, zone, region, priority, eviction_policy, scale_set, booted_unix_ms: _ } = self;
        [vm, size, zone, region, priority, eviction_policy, scale_set]
    }
}

impl Interruption {
    /// The kind of notice by which it was announced; `None` of a worker that died.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        match &self.how {
            How::Drained(report) => Some(&report.notice),
            How::Died(_) => None,
        }
    }

    /// When the worker was last heard of in it, in milliseconds since the Unix epoch.
    pub(super) fn until_unix_ms(&self) -> i64 {
        let took = match &self.how {
            How::Drained(report) => report.patient_ms.saturating_add(report.quiesced_after_ms),
            How::Died(_) => 0,
        };
        self.at_unix_ms.saturating_add(i64::try_from(took).unwrap_or(i64::MAX))
    }

    /// Whether it cost work. A death always did: it was found by a job that the worker held, and its last report may be
    /// older than the work. A drain did if it cut a job off or left one to its lease.
    #[must_use]
    pub const fn lost_work(&self) -> bool {
        match &self.how {
            How::Drained(report) => report.work_lost_ms > 0 || report.abandoned > 0,
            How::Died(_) => true,
        }
    }

    /// The work that it cost, in milliseconds.
    #[must_use]
    pub const fn work_lost_ms(&self) -> u64 {
        match &self.how {
            How::Drained(report) => report.work_lost_ms,
            How::Died(death) => death.work_lost_ms,
        }
    }

    /// The work of these deliveries that was saved, in milliseconds.
    #[must_use]
    pub const fn work_kept_ms(&self) -> u64 {
        match &self.how {
            How::Drained(report) => report.work_kept_ms,
            How::Died(death) => death.work_kept_ms,
        }
    }

    /// The jobs that the worker held.
    #[must_use]
    pub const fn held(&self) -> u64 {
        match &self.how {
            How::Drained(report) => report.held,
            How::Died(death) => death.held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::NOTE_BYTES_MAX;

    fn huge() -> String {
        "\u{1}".repeat(5_000)
    }

    #[test]
    fn the_longest_entry_of_each_kind_fits_into_a_note() {
        let worker = WorkerId::new("w".repeat(64));
        let machine = || Machine {
            vm: huge(),
            size: huge(),
            zone: huge(),
            region: huge(),
            priority: huge(),
            eviction_policy: huge(),
            scale_set: huge(),
            booted_unix_ms: Some(i64::MAX),
        };
        let report =
            DrainReport { queue: huge(), notice: huge(), work_lost_ms: u64::MAX, ..DrainReport::default() };
        let entries = [
            Entry::Boot(Boot {
                boot: huge(),
                worker: worker.clone(),
                at_unix_ms: 0,
                machine: machine(),
                seen_unix_ms: Some(i64::MAX),
                worked_on_unix_ms: Some(i64::MAX),
            }),
            Entry::Interruption(Box::new(Interruption {
                worker: worker.clone(),
                boot: huge(),
                machine: machine(),
                queue: huge(),
                at_unix_ms: i64::MIN,
                jobs: vec![JobId::parse("j".repeat(128)).unwrap(); 500],
                how: How::Drained(report),
            })),
            Entry::Failure(Failure {
                job: JobId::parse("j".repeat(128)).unwrap(),
                kind: huge(),
                delivery: u32::MAX,
                reason: huge(),
                poisoned: true,
                worker: worker.clone(),
                at_unix_ms: 0,
            }),
            Entry::Healing(HealingAction {
                layer: huge(),
                fault: huge(),
                action: huge(),
                outcome: huge(),
                worker,
                boot: huge(),
                vm: huge(),
                at_unix_ms: 0,
                found_after_ms: Some(u64::MAX),
                took_ms: Some(u64::MAX),
            }),
        ];
        for entry in entries {
            let shortened = entry.shortened();
            let note = serde_json::to_string(&shortened).unwrap();
            assert!(note.len() <= NOTE_BYTES_MAX, "{} bytes: {note}", note.len());
            assert_eq!(serde_json::from_str::<Entry>(&note).unwrap(), shortened);
        }
    }

    #[test]
    fn an_entry_of_a_later_version_with_more_in_it_is_read() {
        let note = r#"{"entry":"interruption","worker":"w","boot":"b","at_unix_ms":7,"how":{"died":{"held":3}},"colour":"red"}"#;
        let Entry::Interruption(it) = serde_json::from_str(note).unwrap() else { panic!("another entry") };
        assert_eq!((it.held(), it.work_lost_ms(), it.notice()), (3, 0, None));
    }
}
