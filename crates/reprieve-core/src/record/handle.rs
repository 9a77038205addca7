//! One delivery's handle to the record of its job: claims, saves and settles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    Account, Attachments, Checkpoint, Claimant, Company, End, EndKind, Escalated, INLINE_BYTES_MAX, Manifest,
    Owner, Part, Place, Record, Status, Unreadable, open,
};
use crate::child_ids::SavedChildren;
use crate::clock::unix_millis;
use crate::codec::Encoded;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::ContentHash;
use crate::ids::{JobId, MessageId, PayloadName, WorkerId};
use crate::ports::{Payload, RecordStore, RecordWrite, Version};

/// How often one write is repeated after a conflict with an own write of which the answer was lost.
const ROUNDS_MAX: u32 = 4;

/// The identity of a delivery in its writes.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) job: JobId,
    pub(crate) kind: &'static str,
    pub(crate) schema: u32,
    pub(crate) message: MessageId,
    pub(crate) count: u32,
    /// The generation in the message's body.
    pub(crate) generation: u32,
    pub(crate) inserted_unix_ms: Option<i64>,
    pub(crate) worker: WorkerId,
    /// The number of the delivery within the worker.
    pub(crate) number: u64,
    /// How long after its last write this owner counts as dead if its message was not delivered
    /// again.
    pub(crate) abandoned_after: Duration,
    /// The hash of the arguments, if the job was enqueued under an id of its producer's own.
    pub(crate) own_id: Option<ContentHash>,
    /// When that was, in milliseconds since the Unix epoch.
    pub(crate) own_since_unix_ms: i64,
}

impl Identity {
    /// Distinguishes this delivery's writes from those of every other delivery.
    fn nonce(&self) -> String {
        format!("{}-{}", self.worker, self.number)
    }
}

/// A record that was read, with its version.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) version: Version,
    pub(crate) modified_unix_ms: i64,
}

/// The result of reading the record.
#[derive(Debug)]
pub(crate) enum Look {
    Nothing,
    Found(Box<Found>),
    /// The record can't be read, and the job begins again.
    Damaged(Version, Unreadable),
    /// A newer binary wrote the record.
    Newer(Unreadable),
}

impl Look {
    /// The version that a write in place of this result expects.
    fn version(&self) -> Option<&Version> {
        match self {
            Self::Nothing | Self::Newer(_) => None,
            Self::Found(found) => Some(&found.version),
            Self::Damaged(version, _) => Some(version),
        }
    }
}

/// A delivery that vanished: its worker died, or lost its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vanished {
    /// The worker; `None` if no record names it.
    pub(crate) worker: Option<WorkerId>,
    /// When it last wrote the record, in milliseconds since the Unix epoch.
    pub(crate) wrote_unix_ms: Option<i64>,
}

/// The parts of a save besides the state.
#[derive(Debug, Clone)]
pub(crate) struct Saving {
    /// Whether the job has moved since it was loaded; then the save clears the account.
    pub(crate) moved: bool,
    pub(crate) company: Company,
    /// For how many more steps the job saves after each one.
    pub(crate) careful_steps: u32,
    /// Until when the job waits at its own request, in milliseconds since the Unix epoch.
    pub(crate) waits_until: Option<i64>,
    /// The jobs that it has enqueued.
    pub(crate) children: SavedChildren,
    /// How long the attempt has run.
    pub(crate) ran: Duration,
}

/// The result of a write that did not fail with a store error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Written {
    /// The write is now the record.
    Taken,
    /// Another delivery wrote the record, or it was removed: this delivery must be judged again.
    Refused,
}

/// A delivery's handle to its job's record.
#[derive(Debug)]
pub(crate) struct Handle {
    store: Arc<dyn RecordStore>,
    identity: Identity,
    /// The ends in the message's body that no record contains.
    ends: Vec<End>,
    /// The record as this delivery last wrote it; `None` before its first write.
    /// Boxed, because a short job writes none.
    own: Option<Box<(Record, Version)>>,
    /// The number of the last write that was tried. No number is used twice, so payloads never
    /// share a name.
    last: u64,
    /// Unanswered writes that would make this delivery the owner: each may have been applied, or
    /// may still be.
    unanswered: u32,
    /// The last write that may have been applied was not answered: the record may name what this delivery
    /// does not know to be named.
    in_doubt: bool,
    /// The payloads that the last write removes; empty once it is known to be applied.
    removed: Vec<PayloadName>,
    /// Whether the job moved in this delivery, and that is saved.
    has_moved: bool,
    /// The checkpoints that were found damaged.
    discarded: BTreeSet<u64>,
    /// The manifest that was stored as a payload for a write that failed.
    placed: Option<Part>,
    /// The job's result, once this delivery has stored it.
    result: Option<Box<RawValue>>,
    /// The job's attachments.
    pub(crate) attachments: Attachments,
}

impl Handle {
    pub(crate) fn new(store: Arc<dyn RecordStore>, identity: Identity, ends: Vec<End>) -> Self {
        Self {
            store,
            identity,
            ends,
            own: None,
            last: 0,
            unanswered: 0,
            in_doubt: false,
            removed: Vec::new(),
            has_moved: false,
            discarded: BTreeSet::new(),
            placed: None,
            result: None,
            attachments: Attachments::default(),
        }
    }

    /// Writes through `store` from now on: the store for drains, which retries for a shorter time.
    pub(crate) fn use_store(&mut self, store: Arc<dyn RecordStore>) {
        self.store = store;
    }

    /// The record as this delivery last wrote it.
    pub(crate) fn own(&self) -> Option<&Record> {
        self.own.as_deref().map(|(record, _)| record)
    }

    /// Notes the job's result, for lists of records.
    pub(crate) fn note_result(&mut self, result: Box<RawValue>) {
        self.result = Some(result);
    }

    /// Whether an unanswered write may have made this delivery the owner, or may still do so.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.unanswered > 0
    }

    /// Whether this delivery owns the record, or may own it through an unanswered write.
    pub(crate) fn may_own(&self) -> bool {
        self.own.is_some() || self.is_in_doubt()
    }

    /// The job's account, as far as this delivery knows it.
    pub(crate) fn account(&self) -> Account {
        self.own().map_or_else(|| self.fresh_account().0, |record| record.account.clone())
    }

    /// The ends that a release writes into the message's body: this delivery's own, and those that
    /// no record contains.
    pub(crate) fn ends_with(&self, end: End) -> Vec<End> {
        let mut ends = if self.own.is_some() { Vec::new() } else { self.ends.clone() };
        end.append_to(&mut ends);
        ends
    }

    /// The end of this delivery.
    pub(crate) fn end(&self, kind: EndKind, why: &str, unsaved_steps: u32) -> End {
        let Identity { message, count, worker, .. } = &self.identity;
        End { unsaved_steps, moved: self.has_moved, ..End::now(message, *count, worker, kind, why) }
    }

    /// This delivery, as input for [`judge`](super::judge()).
    pub(crate) fn claimant(&self) -> Claimant<'_> {
        let Identity { message, count, generation, inserted_unix_ms, .. } = &self.identity;
        Claimant { message, count: *count, generation: *generation, inserted_unix_ms: *inserted_unix_ms }
    }

    /// Whether a record that was read is this delivery's own, from a write of which the answer was
    /// lost.
    pub(crate) fn is_own(&self, record: &Record) -> bool {
        record.owner.nonce == self.identity.nonce()
    }

    /// Reads the record.
    pub(crate) async fn look(&mut self) -> Result<Look> {
        let Some(stored) = self.store.load(&self.identity.job).await? else { return Ok(Look::Nothing) };
        let (version, modified_unix_ms) = (stored.version, stored.modified_unix_ms);
        Ok(match open(&stored.bytes) {
            Ok(record) => {
                self.last = self.last.max(record.sequence);
                Look::Found(Box::new(Found { record, version, modified_unix_ms }))
            }
            Err(damage @ Unreadable::Damaged(_)) => Look::Damaged(version, damage),
            Err(newer @ Unreadable::NewerFormat(_)) => Look::Newer(newer),
        })
    }

    /// The record by which this delivery would claim the job under `generation`, with all that is
    /// known of the earlier deliveries.
    pub(crate) fn claim_of(&self, look: &Look, generation: u32) -> Record {
        let Look::Found(found) = look else {
            let (account, careful_steps) = self.fresh_account();
            let mut record = Record { account, careful_steps, ..self.blank(generation) };
            self.ends.iter().for_each(|end| note_ran(&mut record, end));
            return record;
        };
        let mut record = found.record.clone();
        let owner = &found.record.owner;
        if let Status::Escalated { queue, why } = &found.record.status {
            let (queue, why, at_unix_ms) = (queue.clone(), why.clone(), record.changed_unix_ms);
            record.escalated = Some(Escalated { queue, why, at_unix_ms });
        }
        if generation > record.generation {
            record.begin_generation(generation);
        } else {
            self.enter_owners_end(&mut record, found.modified_unix_ms);
        }
        for end in &self.ends {
            // Earlier ends were entered when the owner claimed.
            let entered = end.message == owner.message && end.count < owner.count;
            if !entered && end.message == self.identity.message {
                record.careful_steps = record.careful_steps.max(careful_after(end));
                note_end(&mut record, end.clone());
            }
        }
        let (owner, status) = (self.owner(), Status::Running);
        Record {
            owner,
            status,
            args_sha256: record.args_sha256.or(self.identity.own_id),
            expires_unix_ms: None,
            abandoned_after_ms: self.abandoned_after_ms(),
            ..record
        }
    }

    /// Claims the job: writes `record` in place of the one that was read.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict): read the record and judge again.
    pub(crate) async fn claim(&mut self, look: &Look, mut record: Record) -> Result<()> {
        self.number(&mut record);
        let write = RecordWrite::of(&record, None);
        self.put(look.version(), record, write).await
    }

    /// Adopts a record that this delivery wrote without an answer, or another owner's record that
    /// it settles.
    pub(crate) fn adopt(&mut self, mut found: Found) {
        found.record.checkpoints.retain(|checkpoint| !self.discarded.contains(&checkpoint.sequence));
        if self.own.is_none() && self.is_own(&found.record) {
            self.unanswered = self.unanswered.saturating_sub(1);
            // No other try of the claim can be applied after this one, so the record names what it said here.
            self.in_doubt = false;
        }
        self.own = Some(Box::new((found.record, found.version)));
    }

    /// Adopts the present record, whoever owns it; returns false if there is none that can be read.
    pub(crate) async fn adopt_present(&mut self) -> Result<bool> {
        let Look::Found(found) = self.look().await? else { return Ok(false) };
        self.adopt(*found);
        Ok(true)
    }

    /// Adopts the present record if it says that the job was cancelled, and returns whether it does.
    pub(crate) async fn adopt_if_cancelled(&mut self) -> Result<bool> {
        match self.look().await? {
            Look::Found(found) if found.record.status == Status::Cancelled => {
                self.adopt(*found);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Makes the write. A write that would make this delivery the owner counts as unanswered until
    /// its answer arrives, even if this future is dropped before.
    async fn put(&mut self, expected: Option<&Version>, record: Record, write: RecordWrite) -> Result<()> {
        let claims = u32::from(self.own.is_none());
        self.unanswered += claims;
        let before = std::mem::replace(&mut self.in_doubt, true);
        let written = self.store.put(&self.identity.job, expected, write).await;
        self.in_doubt = match &written {
            Ok(_) => false,
            Err(error) => before || error.kind() == ErrorKind::TimedOut,
        };
        // A timeout leaves open whether the write was applied.
        if !written.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            self.unanswered = self.unanswered.saturating_sub(claims);
        }
        self.own = Some(Box::new((record, written?)));
        Ok(())
    }

    /// Saves `state` as the job's newest checkpoint.
    ///
    /// # Errors
    /// The store's errors, but never a conflict. The last checkpoint is unchanged then, and the
    /// save can be retried.
    ///
    /// # Cancel safety
    /// A dropped save may have been applied; the next write detects that by the nonce.
    pub(crate) async fn save(&mut self, state: &Encoded, saving: Saving) -> Result<Written> {
        let (schema, sha256, plain_bytes) = (self.identity.schema, state.hash(), state.plain_bytes());
        let state = state.bytes();
        let inside = state.len() <= INLINE_BYTES_MAX;
        let room = if inside { INLINE_BYTES_MAX - state.len() } else { INLINE_BYTES_MAX };
        let manifest = self.place_manifest(room).await?;
        let change = |record: &mut Record, name: &PayloadName, attachments: &Attachments| {
            if saving.moved {
                record.forgive();
            }
            record.owner.company = saving.company;
            record.careful_steps = saving.careful_steps;
            record.ran_ms = u64::try_from(saving.ran.as_millis()).unwrap_or(u64::MAX);
            record.status = match saving.waits_until {
                Some(due_unix_ms) => Status::Waiting { due_unix_ms },
                None => Status::Running,
            };
            let place = if inside { Place::Inside(state.to_vec()) } else { Place::Payload(name.clone()) };
            let (sequence, bytes) = (record.sequence, state.len() as u64);
            if attachments.is_next_damaged() {
                // This checkpoint can't be read as a whole, so the newest that can is kept.
                let intact = |kept: &Checkpoint| attachments.is_intact(kept.sequence);
                let intact = record.checkpoints.iter().position(intact).unwrap_or_default();
                record.checkpoints.rotate_left(intact);
            }
            let mut obsolete = record.push(Checkpoint {
                sequence,
                schema,
                bytes,
                sha256,
                plain_bytes,
                place,
                waits: saving.children.waits,
                children: saving.children.before.clone(),
                children_in_step: saving.children.in_step.clone(),
                attachments: manifest.clone(),
            });
            let kept = |kept: &Checkpoint| (kept.sequence, kept.attachments.is_some());
            let kept: Vec<_> = record.checkpoints.iter().map(kept).collect();
            obsolete.extend(attachments.obsolete(&kept));
            // What the record itself names, such as the new manifest, is on no list of chunks.
            let named = record.payloads();
            obsolete.retain(|name| !named.contains(name));
            obsolete
        };
        self.attachments.know_only_next();
        let written = self.write(change, (!inside).then_some(state)).await?;
        self.has_moved |= written == Written::Taken && saving.moved;
        if written == Written::Taken
            && let Some((record, _)) = self.own.as_deref()
        {
            self.placed = None;
            let kept: Vec<_> = record.checkpoints.iter().map(|kept| kept.sequence).collect();
            let removed = std::mem::take(&mut self.removed);
            self.attachments.saved(&kept, &record.payloads(), &removed);
        }
        Ok(written)
    }

    /// Returns the place of the next checkpoint's manifest: inside the record if it fits into
    /// `room` bytes, else in a payload, which is written here.
    async fn place_manifest(&mut self, room: usize) -> Result<Option<Part>> {
        let encoded = self.attachments.encode();
        let encoded = encoded.map_err(|why| Error::new(ErrorKind::Internal, "encode a manifest", why))?;
        let Some(encoded) = encoded else { return Ok(None) };
        let stored = self.placed.as_ref().filter(|part| part.fits(encoded.bytes()));
        if let Some(stored) = stored.cloned() {
            return Ok(Some(stored));
        }
        let (bytes, sha256) = (encoded.bytes().len() as u64, encoded.hash());
        let place = if encoded.bytes().len() <= room {
            Place::Inside(encoded.bytes().to_vec())
        } else {
            let name = self.new_payload();
            let payload = Payload { name: name.clone(), bytes: encoded.bytes().clone() };
            self.store.store_payload(&self.identity.job, payload).await?;
            let part = Part { bytes, sha256, place: Place::Payload(name) };
            self.placed = Some(part.clone());
            return Ok(Some(part));
        };
        Ok(Some(Part { bytes, sha256, place }))
    }

    /// Returns the name of a payload that is written ahead of the record that names it. Unless one
    /// does, it is removed at the next save.
    pub(crate) fn new_payload(&mut self) -> PayloadName {
        self.last += 1;
        let generation = self.own().map_or(self.identity.generation, |record| record.generation);
        let Identity { message, count, .. } = &self.identity;
        let name = PayloadName::new(generation, message, *count, self.last);
        self.attachments.note_loose(name.clone());
        name
    }

    /// Reads the manifests of the record's checkpoints. A checkpoint whose manifest is damaged or
    /// missing is damaged.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn load_manifests(&mut self, record: &Record) -> Result<()> {
        for checkpoint in &record.checkpoints {
            let Some(part) = &checkpoint.attachments else { continue };
            let bytes = match &part.place {
                Place::Inside(bytes) => Some(Bytes::from(bytes.clone())),
                Place::Payload(name) => self.store.payload(&self.identity.job, name).await?,
            };
            let intact = bytes.filter(|bytes| part.fits(bytes));
            if let Some(Ok(manifest)) = intact.map(|bytes| Manifest::decode(&bytes)) {
                self.attachments.keep(checkpoint.sequence, manifest);
            }
        }
        Ok(())
    }

    /// Drops a checkpoint that is damaged: the next save keeps the intact ones.
    pub(crate) fn discard(&mut self, sequence: u64) {
        self.discarded.insert(sequence);
        self.attachments.discard(sequence);
        let Some((record, _)) = self.own.as_deref_mut() else { return };
        let (damaged, intact) = record.checkpoints.drain(..).partition(|it| it.sequence == sequence);
        record.checkpoints = intact;
        let damaged: Vec<Checkpoint> = damaged;
        for name in damaged.iter().flat_map(Checkpoint::payloads) {
            self.attachments.note_loose(name);
        }
    }

    /// Records that the job goes back to an older state, and which checkpoints are left. It is written
    /// at once: the delivery may fail before its next save. `times` is how often it did so by now, and
    /// the same for each try.
    pub(crate) async fn note_going_back(&mut self, times: u32) -> Result<Written> {
        self.change(|record| record.went_back = record.went_back.max(times)).await
    }

    /// Records that the job's message stays invisible for this long, so that another message of the job
    /// does not take its owner for dead meanwhile. Does nothing without a record.
    pub(crate) async fn note_delay(&mut self, delay: Duration) -> Result<()> {
        if self.own.is_none() {
            return Ok(());
        }
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let abandoned_after_ms = self.abandoned_after_ms().saturating_add(delay);
        self.change(|record| record.abandoned_after_ms = abandoned_after_ms).await.map(drop)
    }

    /// Records beside which other jobs the job runs from now on.
    pub(crate) async fn mark(&mut self, company: Company) -> Result<Written> {
        self.change(|record| record.owner.company = company).await
    }

    /// Records that the job survived its time alone, and now runs beside others.
    pub(crate) async fn survived(&mut self) -> Result<Written> {
        self.change(|record| {
            record.owner.company = Company::Shared;
            record.account.survived = record.account.survived.saturating_add(1);
        })
        .await
    }

    /// Raises the job's generation if this delivery still owns the record. The store refused an
    /// output of this delivery, so an earlier life of the job had a greater fence: its record is
    /// gone, its outputs are not. Raises by more each time, because each time costs a run.
    pub(crate) async fn raise(&mut self) -> Result<Written> {
        if self.own.is_none() {
            return Ok(Written::Refused);
        }
        self.change(|record| record.generation = record.generation.saturating_mul(2).saturating_add(1)).await
    }

    /// Records how this delivery ended, in its own record, even in one from an unanswered write. A
    /// record of another owner that counts this delivery's process as dead is corrected, and keeps
    /// its owner.
    pub(crate) async fn note(&mut self, end: End) -> Result<Written> {
        let enter = |record: &mut Record| {
            note_ran(record, &end);
            record.account.enter(end.clone(), Company::Shared);
        };
        if self.own.is_some() && self.change(enter).await? == Written::Taken {
            return Ok(Written::Taken);
        }
        for _ in 0..ROUNDS_MAX {
            let Look::Found(mut found) = self.look().await? else { return Ok(Written::Refused) };
            if self.is_own(&found.record) {
                self.adopt(*found);
                return self.change(enter).await;
            }
            if !found.record.account.correct(&end) {
                return Ok(Written::Refused);
            }
            note_ran(&mut found.record, &end);
            if self.put_for_owner(*found).await? == Written::Taken {
                return Ok(Written::Taken);
            }
        }
        Ok(Written::Refused)
    }

    /// Writes another owner's record with a changed account.
    async fn put_for_owner(&mut self, mut found: Found) -> Result<Written> {
        found.record.sequence += 1;
        let write = RecordWrite::of(&found.record, None);
        match self.store.put(&self.identity.job, Some(&found.version), write).await {
            Ok(_) => Ok(Written::Taken),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(Written::Refused),
            Err(error) => Err(error),
        }
    }

    /// Records how this delivery ended, and creates the record if there is none: for a message
    /// without room for the end in its body. A record of an earlier delivery of the message keeps
    /// its owner.
    pub(crate) async fn keep(&mut self, end: End) -> Result<Written> {
        if self.own.is_none()
            && let Look::Found(mut found) = self.look().await?
            && !self.is_own(&found.record)
        {
            if found.record.owner.message != self.identity.message {
                return Ok(Written::Refused);
            }
            let modified_unix_ms = found.modified_unix_ms;
            self.enter_owners_end(&mut found.record, modified_unix_ms);
            note_end(&mut found.record, end);
            return self.put_for_owner(*found).await;
        }
        let (account, owns) = (self.fresh_account().0, self.own.is_some());
        self.change(|record| {
            if !owns {
                record.account = account.clone();
            }
            note_end(record, end.clone());
        })
        .await
    }

    /// Records the job's final status; a job that is done or cancelled loses its checkpoints. With
    /// `expires_unix_ms`, the record is kept until then, as a mark that the job is settled.
    pub(crate) async fn conclude(&mut self, status: Status, expires_unix_ms: Option<i64>) -> Result<Written> {
        let change = |record: &mut Record, _: &PayloadName, attachments: &Attachments| {
            record.status = status.clone();
            record.expires_unix_ms = expires_unix_ms;
            if !matches!(status, Status::Done | Status::Cancelled) {
                return Vec::new();
            }
            let mut obsolete = record.payloads();
            obsolete.extend(attachments.all());
            record.checkpoints.clear();
            obsolete
        };
        self.write(change, None).await
    }

    /// Returns those of these payloads that the record may not name, nor will the next checkpoint.
    pub(crate) fn unnamed_of(&self, payloads: &BTreeSet<PayloadName>) -> BTreeSet<PayloadName> {
        let named: Vec<u64> = match self.own.as_deref() {
            Some((record, _)) if !self.in_doubt => record.checkpoints.iter().map(|it| it.sequence).collect(),
            _ => Vec::new(),
        };
        self.attachments.unnamed(payloads, &named)
    }

    /// Returns the payloads that this delivery stored and that no record names: those of attachments since
    /// the last write of the record. None while the answer to a write is not known.
    pub(crate) fn unnamed(&self) -> Vec<PayloadName> {
        let in_doubt = self.in_doubt || self.is_in_doubt() || self.attachments.is_in_doubt();
        if in_doubt || self.attachments.is_empty() {
            return Vec::new();
        }
        let written = self.own().map_or(0, |record| record.sequence);
        // An earlier delivery's payloads have smaller numbers than the claim.
        let mut all = self.attachments.all();
        all.retain(|payload| payload.sequence().is_some_and(|number| number > written));
        all
    }

    /// Removes the record and its payloads if this delivery owns it, because the job is finished.
    pub(crate) async fn remove(&mut self) -> Result<()> {
        let Some((record, version)) = self.own.take().map(|own| *own) else { return Ok(()) };
        let mut payloads = record.payloads();
        payloads.extend(self.attachments.all());
        match self.store.remove(&record.job, &version, &payloads).await {
            // Another delivery owns the record by now, or the answer to an own removal was lost.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            removed => removed,
        }
    }

    async fn change(&mut self, change: impl Fn(&mut Record)) -> Result<Written> {
        let change = |record: &mut Record, _: &PayloadName, _: &Attachments| {
            change(record);
            Vec::new()
        };
        self.write(change, None).await
    }

    /// Changes the own record, or creates it. After a conflict, an own write of which the answer
    /// was lost is adopted.
    async fn write(
        &mut self,
        change: impl Fn(&mut Record, &PayloadName, &Attachments) -> Vec<PayloadName>,
        payload: Option<&Bytes>,
    ) -> Result<Written> {
        for _ in 0..ROUNDS_MAX {
            // A write without an answer may have been applied, and its store removed nothing then.
            for name in std::mem::take(&mut self.removed) {
                self.attachments.note_loose(name);
            }
            let mut record = self.own().cloned().unwrap_or_else(|| self.blank(self.identity.generation));
            // The record of a settled job may have been adopted from another owner, or from whoever cancelled a
            // job without one, and knew no kind.
            record.owner = Owner { company: record.owner.company, ..self.owner() };
            if record.kind.is_empty() {
                self.identity.kind.clone_into(&mut record.kind);
            }
            let name = self.number(&mut record);
            let obsolete = change(&mut record, &name, &self.attachments);
            if record.checkpoints.first().is_some_and(|newest| newest.sequence == record.sequence) {
                self.attachments.note_write(record.sequence);
            }
            if payload.is_some() {
                // A store may write it and then refuse the record.
                self.attachments.note_loose(name.clone());
            }
            self.attachments.note_removal(&obsolete);
            self.removed.clone_from(&obsolete);
            // Even if this write is not answered, the manifest of an earlier try is gone with it.
            self.placed.take_if(|part| part.place.payload().is_some_and(|name| obsolete.contains(name)));
            let payload = payload.map(|bytes| Payload { name, bytes: bytes.clone() });
            let write = RecordWrite { payload, obsolete, ..RecordWrite::of(&record, self.result.as_deref()) };
            let expected = self.own.as_deref().map(|(_, version)| version.clone());
            let sequence = record.sequence;
            let Err(error) = self.put(expected.as_ref(), record, write).await else {
                return Ok(Written::Taken);
            };
            if error.kind() != ErrorKind::TimedOut {
                self.attachments.note_refusal(sequence);
            }
            if error.kind() != ErrorKind::Conflict {
                return Err(error);
            }
            match self.look().await? {
                Look::Found(found) if self.is_own(&found.record) => self.adopt(*found),
                Look::Damaged(version, _) if self.own.is_some() => {
                    if let Some((_, own)) = self.own.as_deref_mut() {
                        *own = version;
                    }
                }
                Look::Nothing if self.own.is_none() => {}
                Look::Nothing | Look::Found(_) | Look::Damaged(..) | Look::Newer(_) => {
                    return Ok(Written::Refused);
                }
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "write a record",
            "other writers keep changing the record; try again",
        ))
    }

    /// Numbers the next write, and returns the name of its payload.
    fn number(&mut self, record: &mut Record) -> PayloadName {
        self.last = self.last.max(record.sequence) + 1;
        record.sequence = self.last;
        record.changed_unix_ms = unix_millis();
        PayloadName::new(record.generation, &self.identity.message, self.identity.count, self.last)
    }

    /// A record with only the owner filled in.
    fn blank(&self, generation: u32) -> Record {
        let Identity { job, kind, .. } = &self.identity;
        let (abandoned_after_ms, args_sha256) = (self.abandoned_after_ms(), self.identity.own_id);
        let blank = Record::blank(job.clone(), kind, self.owner(), Status::Running);
        let enqueued_unix_ms = self.identity.own_since_unix_ms;
        Record { generation, abandoned_after_ms, args_sha256, enqueued_unix_ms, ..blank }
    }

    fn owner(&self) -> Owner {
        let Identity { message, count, worker, .. } = &self.identity;
        Owner {
            message: message.clone(),
            count: *count,
            worker: worker.clone(),
            nonce: self.identity.nonce(),
            company: Company::Shared,
        }
    }

    fn abandoned_after_ms(&self) -> u64 {
        u64::try_from(self.identity.abandoned_after.as_millis()).unwrap_or(u64::MAX)
    }

    /// The account of the earlier deliveries by the message's body alone, and the careful steps
    /// that follow from it. Of the deliveries without a known end, at most one counts as vanished:
    /// the others may never have begun.
    fn fresh_account(&self) -> (Account, u32) {
        let Identity { message, worker, .. } = &self.identity;
        let (mut account, mut careful_steps) = (Account::default(), 0);
        if self.has_first_vanished() {
            let first = End::now(message, 1, worker, EndKind::Vanished, "the end of the delivery is unknown");
            account.enter(first, Company::Shared);
        }
        for end in self.ends.iter().filter(|end| end.message == *message) {
            careful_steps = careful_steps.max(careful_after(end));
            account.enter(end.clone(), Company::Shared);
        }
        (account, careful_steps)
    }

    /// Enters the end of the owner's delivery, unless it is known: lost if the owner was this
    /// process, vanished otherwise.
    fn enter_owners_end(&self, record: &mut Record, modified_unix_ms: i64) {
        let Some((kind, why)) = self.owners_end(record, modified_unix_ms) else { return };
        let Owner { message, count, worker, company, .. } = record.owner.clone();
        record.account.enter(End::now(&message, count, &worker, kind, why), company);
    }

    /// Returns how the owner's delivery ended, and why, unless an account or the message's body tells that.
    fn owners_end(&self, record: &Record, modified_unix_ms: i64) -> Option<(EndKind, &'static str)> {
        let Owner { message, count, worker, .. } = &record.owner;
        let known = record.account.holds(message, *count)
            || self.ends.iter().any(|end| end.count == *count && end.message == *message);
        if known || record.status != Status::Running {
            return None;
        }
        // The claim landed when a later delivery had come and gone: that owner had lost its lease before,
        // and its death proves nothing about this job.
        let is_later = |end: &End| end.message == *message && end.count > *count;
        let landed_late = self.ends.iter().any(|end| is_later(end) && end.at_unix_ms < modified_unix_ms);
        Some(if landed_late || *worker == self.identity.worker {
            (EndKind::Lost, "the lease was lost")
        } else {
            (EndKind::Vanished, "the worker died")
        })
    }

    /// Returns the earlier delivery that vanished, as a claim under `generation` finds it; `None` if none did.
    pub(crate) fn vanished(&self, look: &Look, generation: u32) -> Option<Vanished> {
        let Look::Found(found) = look else {
            return self.has_first_vanished().then_some(Vanished { worker: None, wrote_unix_ms: None });
        };
        let Found { record, modified_unix_ms, .. } = &**found;
        if generation > record.generation {
            return None;
        }
        let (kind, _) = self.owners_end(record, *modified_unix_ms)?;
        (kind == EndKind::Vanished).then(|| Vanished {
            worker: Some(record.owner.worker.clone()),
            wrote_unix_ms: Some(record.changed_unix_ms),
        })
    }

    /// Whether the end of the first delivery is unknown.
    fn has_first_vanished(&self) -> bool {
        let Identity { message, count, .. } = &self.identity;
        *count > 1 && !self.ends.iter().any(|end| end.count == 1 && end.message == *message)
    }
}

/// Enters an end that no message carries.
fn note_end(record: &mut Record, end: End) {
    if !record.account.holds(&end.message, end.count) {
        note_ran(record, &end);
    }
    record.account.enter(end, Company::Shared);
}

/// Notes how long the attempt ran until this end. After a failure the next one has its time anew.
fn note_ran(record: &mut Record, end: &End) {
    record.ran_ms = if has_failed(end) { 0 } else { record.ran_ms.max(end.ran_ms) };
}

/// For how many steps the next delivery saves after each one, to get past the point at which the
/// job failed.
fn careful_after(end: &End) -> u32 {
    if has_failed(end) { end.unsaved_steps.saturating_add(1) } else { 0 }
}

/// Whether an attempt of the job ended so.
fn has_failed(end: &End) -> bool {
    matches!(end.kind, EndKind::Failed | EndKind::TimedOut)
}
