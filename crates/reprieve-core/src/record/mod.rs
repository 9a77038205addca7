//! The record of a job: its owner, its status, its account and its checkpoints.
//!
//! Each job has one small record, which is written conditionally. It is the only commit point of
//! the job's progress: a checkpoint exists when the record names it. The record states what
//! happened to a job; nothing is inferred.
//!
//! - [`Record`], [`Owner`], [`Status`], [`Checkpoint`]: the content. [`seal`], [`open`]: the
//!   encoding.
//! - [`Manifest`]: the attachments of a checkpoint.
//! - [`Account`], [`End`]: how the job's deliveries ended since it last moved, and the limits.
//! - [`judge`]: decides about a message if its job has a record.
//!
//! A job's first delivery reads no record, and writes none before its first save. Every later
//! delivery claims the job: it writes itself into the record as the owner before the job's
//! arguments or state are decoded.

mod account;
mod attachments;
mod frame;
mod handle;
mod judge;
mod named;
mod note;

use serde::{Deserialize, Serialize};

pub use account::{
    Account, BLOCKED_MAX, CROWDED_MAX, Company, EXCUSED_MAX, End, EndKind, FAILED_MAX, VANISHED_MAX,
    VANISHED_UNPROVED_MAX,
};
pub(crate) use attachments::{Attachments, Chunk, Content, Pinned};
pub use attachments::{CHUNK_BYTES, Manifest};
pub use frame::{Unreadable, open, seal};
pub(crate) use handle::{Handle, Identity, Look, Saving, Vanished, Written};
pub use judge::{Claimant, Verdict, judge};
pub use named::named_payloads;
pub(crate) use note::EndNote;

pub use crate::hash::ContentHash;

use crate::chance;
pub use crate::child_ids::GivenBefore;
use crate::clock::unix_millis;
use crate::ids::{JobId, MessageId, PayloadName, WorkerId};

/// The largest state that is kept inside the record, in bytes. Two of them and everything else fit
/// into [`RECORD_BYTES_MAX`](crate::ports::RECORD_BYTES_MAX).
pub const INLINE_BYTES_MAX: usize = 20 * 1024;

/// How many ends of earlier deliveries a record keeps for operators, besides its account.
const HISTORY_MAX: usize = 16;

/// How many checkpoints a record names.
const CHECKPOINTS_MAX: usize = 2;

/// The record of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Rises with every redrive, and when another message of the job takes over.
    pub generation: u32,
    /// The delivery that claimed the job last.
    pub owner: Owner,
    /// The status of the job.
    pub status: Status,
    /// How deliveries ended since the job last moved.
    pub account: Account,
    /// Ends that were cleared from the account, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<End>,
    /// The number of this write. It rises by at least one with each write of the job's record.
    pub sequence: u64,
    /// The last checkpoints, newest first, at most two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// For how many more steps the job saves after each one, because it failed there.
    #[serde(default)]
    pub careful_steps: u32,
    /// How often the job went back to an older checkpoint because chunks of its attachments were
    /// damaged. Progress does not clear it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub went_back: u32,
    /// How long the present attempt had run by the last save, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_ms: u64,
    /// When it was written, in milliseconds since the Unix epoch, by its writer's clock.
    pub changed_unix_ms: i64,
    /// How long after that time the owner counts as dead if its message was not delivered again.
    pub abandoned_after_ms: u64,
    /// When the record may be removed: it is only kept so that the job is not run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<i64>,
    /// The job's move to the queue in which it is now. It is not moved again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<Escalated>,
    /// The hash of the arguments, if the job was enqueued under an id of its producer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_sha256: Option<ContentHash>,
    /// When that was, in milliseconds since the Unix epoch; 0 if it is not known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub enqueued_unix_ms: i64,
}

/// A delivery that owns a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The message.
    pub message: MessageId,
    /// Its dequeue count.
    pub count: u32,
    /// The worker.
    pub worker: WorkerId,
    /// Distinguishes this delivery's own writes that were not answered from the writes of another.
    pub nonce: String,
    /// Whether other jobs ran beside it.
    #[serde(default)]
    pub company: Company,
}

/// A job's move to another queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalated {
    /// The queue.
    pub queue: String,
    /// Why.
    pub why: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
}

/// The status of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Status {
    /// The job was enqueued under an id of its producer's own, and no delivery has claimed it yet.
    /// The owner in the record is the producer.
    Enqueued,
    /// The job runs, or waits for a worker.
    Running,
    /// The job waits at its own request.
    Waiting {
        /// Until when, in milliseconds since the Unix epoch.
        due_unix_ms: i64,
    },
    /// The job is finished.
    Done,
    /// The job is in the poison queue.
    DeadLettered {
        /// Why.
        reason: String,
    },
    /// The job's message was moved to another queue.
    Escalated {
        /// The queue.
        queue: String,
        /// Why.
        why: String,
    },
    /// The job was cancelled.
    Cancelled,
}

/// A saved state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The number of the write that saved it.
    pub sequence: u64,
    /// The version of the state's format: [`Job::SCHEMA`](crate::Job::SCHEMA) of the binary that
    /// saved it.
    pub schema: u32,
    /// The stored state's length in bytes.
    pub bytes: u64,
    /// The stored state's hash.
    pub sha256: ContentHash,
    /// The state's length before it was compressed with zstd; `None` when it is not compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_bytes: Option<u64>,
    /// The location of the state.
    pub place: Place,
    /// How often the job had waited at its own request by then. A step that is run again from here gives the
    /// jobs that it enqueues the same ids.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waits: u64,
    /// The jobs that its finished steps had enqueued by then, since it waited last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub children: GivenBefore,
    /// Those that the step had enqueued that saved itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub children_in_step: GivenBefore,
    /// The manifest of the attachments; `None` without attachments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Part>,
}

/// A part of a checkpoint besides the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The length in bytes.
    pub bytes: u64,
    /// The hash.
    pub sha256: ContentHash,
    /// The location.
    pub place: Place,
}

/// The location of a saved state, or of another part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the record.
    #[serde(serialize_with = "no_bytes", deserialize_with = "no_bytes_yet")]
    Inside(Vec<u8>),
    /// In a payload of its own.
    Payload(PayloadName),
}

fn is_default<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A nonce of a writer that is no delivery.
pub(crate) fn unique_nonce() -> String {
    chance::id().simple().to_string()
}

/// Serializes nothing: the bytes follow the JSON.
fn no_bytes<S: serde::Serializer>(_: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_unit()
}

fn no_bytes_yet<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    <()>::deserialize(from).map(|()| Vec::new())
}

impl Record {
    /// A record without checkpoints that is not written yet.
    fn blank(job: JobId, kind: &str, owner: Owner, status: Status) -> Self {
        Self {
            job,
            kind: kind.to_owned(),
            generation: 0,
            owner,
            status,
            account: Account::default(),
            history: Vec::new(),
            sequence: 0,
            checkpoints: Vec::new(),
            careful_steps: 0,
            went_back: 0,
            ran_ms: 0,
            changed_unix_ms: 0,
            abandoned_after_ms: 0,
            expires_unix_ms: None,
            escalated: None,
            args_sha256: None,
            enqueued_unix_ms: 0,
        }
    }

    /// The record of a job that is enqueued under an id of its producer's own.
    pub(crate) fn enqueued(job: JobId, kind: &str, args_sha256: ContentHash) -> Self {
        let record = Self::without_delivery(job, kind);
        Self { args_sha256: Some(args_sha256), enqueued_unix_ms: record.changed_unix_ms, ..record }
    }

    /// The record of a job that no delivery has claimed.
    pub(crate) fn without_delivery(job: JobId, kind: &str) -> Self {
        let owner = Owner {
            // No delivery, so that nothing is charged to it.
            message: MessageId::new(""),
            count: 0,
            worker: WorkerId::unique(),
            nonce: unique_nonce(),
            company: Company::default(),
        };
        Self { changed_unix_ms: unix_millis(), ..Self::blank(job, kind, owner, Status::Enqueued) }
    }

    /// Begins a generation: the job has all its attempts and all its time again, and keeps its progress.
    pub(crate) fn begin_generation(&mut self, generation: u32) {
        self.forgive();
        (self.generation, self.careful_steps, self.went_back) = (generation, 0, 0);
        (self.account.timed_out, self.ran_ms) = (0, 0);
    }

    /// Notes that a message of this generation was sent for a job that had failed.
    pub(crate) fn enqueue_again(&mut self, generation: u32) {
        self.begin_generation(generation);
        self.sequence = self.sequence.saturating_add(1);
        let Self { owner, status, changed_unix_ms, .. } =
            Self::without_delivery(self.job.clone(), &self.kind);
        (self.owner, self.status, self.changed_unix_ms) = (owner, status, changed_unix_ms);
    }

    /// Cancels the job. Its message stays the owner's, but no write of the owner is its own any more, so
    /// the owner is judged again.
    pub(crate) fn cancel(&mut self, expires_unix_ms: i64) {
        self.owner.nonce = unique_nonce();
        self.status = Status::Cancelled;
        self.sequence = self.sequence.saturating_add(1);
        self.changed_unix_ms = unix_millis();
        self.expires_unix_ms = Some(expires_unix_ms);
    }

    /// The names of the payloads that the record itself names: of states, and of manifests. The
    /// manifests name further ones.
    #[must_use]
    pub fn payloads(&self) -> Vec<PayloadName> {
        self.checkpoints.iter().flat_map(Checkpoint::payloads).collect()
    }

    /// Clears the account, because the job moved or was redriven, except attempts that took too long. The
    /// ends remain in the history.
    pub fn forgive(&mut self) {
        self.history.append(&mut self.account.recent);
        let extra = self.history.len().saturating_sub(HISTORY_MAX);
        self.history.drain(..extra);
        self.account = Account { timed_out: self.account.timed_out, ..Account::default() };
    }

    /// Adds a checkpoint; returns the payloads that the record itself no longer names.
    fn push(&mut self, checkpoint: Checkpoint) -> Vec<PayloadName> {
        self.checkpoints.insert(0, checkpoint);
        let dropped = self.checkpoints.split_off(self.checkpoints.len().min(CHECKPOINTS_MAX));
        dropped.iter().flat_map(Checkpoint::payloads).collect()
    }
}

impl Checkpoint {
    /// Whether `state` has the length and hash of the saved state.
    #[must_use]
    pub fn fits(&self, state: &[u8]) -> bool {
        fits(state, self.bytes, self.sha256)
    }

    fn payloads(&self) -> impl Iterator<Item = PayloadName> {
        let manifest = self.attachments.iter().map(|part| &part.place);
        std::iter::once(&self.place).chain(manifest).filter_map(Place::payload).cloned()
    }
}

impl Part {
    /// Whether `bytes` have the length and hash of the part.
    #[must_use]
    pub fn fits(&self, bytes: &[u8]) -> bool {
        fits(bytes, self.bytes, self.sha256)
    }
}

impl Place {
    const fn payload(&self) -> Option<&PayloadName> {
        match self {
            Self::Inside(_) => None,
            Self::Payload(name) => Some(name),
        }
    }
}

fn fits(bytes: &[u8], length: u64, sha256: ContentHash) -> bool {
    u64::try_from(bytes.len()) == Ok(length) && ContentHash::of(bytes) == sha256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JOB_ID_BYTES_MAX;
    use crate::ports::{DeadLetter, RECORD_BYTES_MAX};

    /// A record with these states inside, newest first.
    pub(super) fn record(states: &[&[u8]]) -> Record {
        let checkpoint = |(state, sequence): (&&[u8], u64)| Checkpoint {
            sequence,
            schema: 1,
            bytes: state.len() as u64,
            sha256: ContentHash::of(state),
            plain_bytes: None,
            waits: 0,
            children: GivenBefore::default(),
            children_in_step: GivenBefore::default(),
            place: Place::Inside(state.to_vec()),
            attachments: None,
        };
        Record {
            job: JobId::parse("j").unwrap(),
            kind: "k".to_owned(),
            generation: 0,
            owner: Owner {
                message: MessageId::new("m"),
                count: 2,
                worker: WorkerId::new("w"),
                nonce: "n".to_owned(),
                company: Company::Shared,
            },
            status: Status::Running,
            account: Account::default(),
            history: Vec::new(),
            sequence: 9,
            checkpoints: states.iter().zip(7..).map(checkpoint).collect(),
            careful_steps: 0,
            went_back: 0,
            ran_ms: 0,
            changed_unix_ms: 1_000,
            abandoned_after_ms: 60_000,
            expires_unix_ms: None,
            escalated: None,
            args_sha256: None,
            enqueued_unix_ms: 0,
        }
    }

    fn payload(number: u64) -> PayloadName {
        PayloadName::new(0, &MessageId::new("m"), 1, number)
    }

    #[test]
    fn a_record_names_its_last_two_checkpoints() {
        let mut record = record(&[]);
        let checkpoint = |number| Checkpoint {
            sequence: number,
            schema: 1,
            bytes: 0,
            sha256: ContentHash::of(b""),
            plain_bytes: None,
            waits: 0,
            children: GivenBefore::default(),
            children_in_step: GivenBefore::default(),
            place: Place::Payload(payload(number)),
            attachments: None,
        };
        assert_eq!(record.push(checkpoint(1)), []);
        assert_eq!(record.push(checkpoint(2)), []);
        assert_eq!(record.push(checkpoint(3)), [payload(1)]);
        assert_eq!(record.payloads(), [payload(3), payload(2)]);
    }

    #[test]
    fn a_forgiven_record_stays_readable_and_bounded() {
        let mut record = record(&[]);
        for count in 1..100 {
            let end = End {
                message: MessageId::new("m"),
                count,
                kind: EndKind::Failed,
                worker: WorkerId::new("w"),
                at_unix_ms: 0,
                why: "x".repeat(5_000),
                unsaved_steps: 0,
                ran_ms: 0,
                blocked: false,
                excused: false,
                moved: false,
            };
            record.account.enter(end, Company::Shared);
            record.forgive();
            assert_eq!(record.account, Account::default());
        }
        assert_eq!(record.history.last().map(|end| end.count), Some(99));
        assert!(seal(&record).len() < 16 * 1024, "{}", seal(&record).len());
    }

    /// Everything is as long as it can be: the reasons consist of the characters that grow most in
    /// JSON.
    #[test]
    fn the_largest_record_fits_into_its_limit() {
        let long = |length: usize| "x".repeat(length);
        let worst = "\u{1}".repeat(5_000);
        let state = vec![b'x'; INLINE_BYTES_MAX];
        let mut record = record(&[&state, &state]);
        (record.job, record.kind) = (JobId::parse(long(JOB_ID_BYTES_MAX)).unwrap(), long(256));
        (record.generation, record.sequence, record.careful_steps) = (u32::MAX, u64::MAX, u32::MAX);
        record.went_back = u32::MAX;
        record.ran_ms = u64::MAX;
        (record.changed_unix_ms, record.abandoned_after_ms) = (i64::MIN, u64::MAX);
        record.expires_unix_ms = Some(i64::MIN);
        record.escalated = Some(Escalated { queue: long(63), why: long(500), at_unix_ms: i64::MIN });
        record.status = Status::DeadLettered { reason: DeadLetter::because(worst.as_str()).reason };
        let (message, worker) = (MessageId::new(long(64)), WorkerId::new(long(64)));
        let (owner, nonce) = (message.clone(), long(85));
        record.owner = Owner {
            message: owner,
            count: u32::MAX,
            worker: worker.clone(),
            nonce,
            company: Company::Resting,
        };
        for checkpoint in &mut record.checkpoints {
            (checkpoint.sequence, checkpoint.schema) = (u64::MAX, u32::MAX);
            checkpoint.children = GivenBefore::of_most();
        }
        for count in 1..=40 {
            let end = End::now(&message, u32::MAX - count, &worker, EndKind::Interrupted, &worst);
            record.account.enter(
                End { unsaved_steps: u32::MAX, ran_ms: u64::MAX, blocked: true, excused: true, ..end },
                Company::Shared,
            );
            if count <= 32 && count % 8 == 0 {
                record.forgive();
            }
        }
        assert_eq!((record.history.len(), record.account.recent.len()), (HISTORY_MAX, 8));
        let numbers = Account {
            failed: u32::MAX,
            blocked: u32::MAX,
            excused: u32::MAX,
            interrupted: u32::MAX,
            unmoved: u32::MAX,
            vanished: u32::MAX,
            vanished_unproved: u32::MAX,
            lost: u32::MAX,
            deferred: u32::MAX,
            crowded: u32::MAX,
            survived: u32::MAX,
            timed_out: u32::MAX,
            recent: Vec::new(),
        };
        record.account = Account { recent: record.account.recent, ..numbers };
        let length = seal(&record).len();
        assert!((50_000..=RECORD_BYTES_MAX).contains(&length), "{length} bytes");
    }

    const M: &str = "m";
    const T: &str = "t";

    /// Judges message `who` with `count` of `generation`, sent before (-) or after (+) the write of
    /// the record.
    fn verdict(record: &Record, who: &str, count: u32, generation: u32, sent: char) -> Verdict {
        let inserted_unix_ms = Some(if sent == '-' { 500 } else { 1_500 });
        let message = MessageId::new(who);
        judge(record, 1_000, &Claimant { message: &message, count, generation, inserted_unix_ms })
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let dead = Status::DeadLettered { reason: "r".to_owned() };
        let away = Status::Escalated { queue: "q".to_owned(), why: "w".to_owned() };
        let waiting = Status::Waiting { due_unix_ms: 5 };
        let delete = |verdict: &Verdict| matches!(verdict, Verdict::Delete(_));
        for status in [Status::Running, waiting] {
            let running = Record { status, generation: 1, ..record(&[]) };
            // The owner's message: the record's generation counts, not the body's.
            assert_eq!(verdict(&running, M, 3, 0, '+'), Verdict::Claim(1));
            assert_eq!(verdict(&running, M, 2, 0, '+'), Verdict::Stop);
            assert_eq!(verdict(&running, M, 1, 9, '+'), Verdict::Claim(9), "redriven in its place");
            // Another message: a greater generation claims, a smaller one is deleted, the same one
            // waits.
            assert_eq!(verdict(&running, T, 1, 2, '+'), Verdict::Claim(2));
            assert!(delete(&verdict(&running, T, 7, 0, '+')));
            assert_eq!(verdict(&running, T, 7, 1, '+'), Verdict::AnotherIsRunning);
        }
        // No delivery has claimed it: each one may.
        let enqueued = Record::enqueued(record(&[]).job, "k", ContentHash::of(b"1"));
        assert_eq!(verdict(&enqueued, M, 1, 0, '+'), Verdict::Claim(0));
        assert_eq!(verdict(&enqueued, T, 2, 0, '-'), Verdict::Claim(0));
        assert_eq!(verdict(&enqueued, T, 1, 3, '+'), Verdict::Claim(3));
        for status in [Status::Done, Status::Cancelled, dead.clone(), away.clone()] {
            let ended = Record { status, ..record(&[]) };
            for count in 2..4 {
                assert_eq!(verdict(&ended, M, count, 0, '+'), Verdict::Finish, "{:?}", ended.status);
            }
            assert_eq!(verdict(&ended, M, 1, 0, '+'), Verdict::Stop, "an older delivery settles nothing");
        }
        let [done, cancelled] =
            [Status::Done, Status::Cancelled].map(|status| Record { status, ..record(&[]) });
        for generation in 0..3 {
            assert!(delete(&verdict(&done, T, 1, generation, '+')), "whatever its generation");
            assert_eq!(verdict(&cancelled, T, 1, generation, '+'), Verdict::Finish);
        }
        let dead = Record { status: dead, ..record(&[]) };
        assert!(delete(&verdict(&dead, T, 1, 0, '-')), "an older twin revives nothing");
        assert_eq!(verdict(&dead, T, 1, 0, '+'), Verdict::Claim(1), "sent again by hand");
        assert_eq!(verdict(&dead, T, 1, 1, '+'), Verdict::Claim(1), "redriven");
        assert_eq!(verdict(&dead, M, 3, 1, '+'), Verdict::Claim(1), "redriven in place");
        let away = Record { status: away, ..record(&[]) };
        assert_eq!(verdict(&away, T, 1, 0, '+'), Verdict::MovedAway);
        assert_eq!(verdict(&away, T, 1, 1, '+'), Verdict::Claim(1), "the copy arrives");
    }
}
