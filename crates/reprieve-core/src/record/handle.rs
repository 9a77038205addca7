//! One delivery's handle to the record of its job: claims it, saves into it, and settles it.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Account, Checkpoint, Claimant, Company, End, EndKind, INLINE_BYTES_MAX, Owner, Place, Record, Status,
    Unreadable, open, seal,
};
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, MessageId, PayloadName, WorkerId};
use crate::ports::{Payload, RecordStore, RecordWrite, Version};

/// How often one write looks again after a conflict with an own write whose answer was lost.
const ROUNDS_MAX: u32 = 4;

/// A delivery, as it signs its writes.
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
    /// Which of the worker's deliveries it is.
    pub(crate) number: u64,
    /// How long after its last write this owner may be taken for dead when its message does not come back.
    pub(crate) abandoned_after: Duration,
}

impl Identity {
    /// Tells this delivery's writes from those of every other.
    fn nonce(&self) -> String {
        format!("{}-{}", self.worker, self.number)
    }
}

/// A record as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) version: Version,
    pub(crate) modified_unix_ms: i64,
}

/// What a look at the record found.
#[derive(Debug)]
pub(crate) enum Look {
    Nothing,
    Found(Box<Found>),
    /// It can't be read, and its job begins again.
    Damaged(Version, Unreadable),
    /// It is a newer binary's.
    Newer(Unreadable),
}

impl Look {
    /// The version that a write in the place of what was found expects.
    fn version(&self) -> Option<&Version> {
        match self {
            Self::Nothing | Self::Newer(_) => None,
            Self::Found(found) => Some(&found.version),
            Self::Damaged(version, _) => Some(version),
        }
    }
}

/// What a save says beside the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saving {
    /// Whether the job has moved since it was loaded, so that all is forgiven.
    pub(crate) moved: bool,
    pub(crate) company: Company,
    /// After how many steps more the job saves each time.
    pub(crate) careful_steps: u32,
}

/// How a write ended that the store did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Written {
    /// It is the record now.
    Taken,
    /// The record is another's, or was removed: the delivery is to be judged anew.
    Refused,
}

/// One delivery's handle.
#[derive(Debug)]
pub(crate) struct Handle {
    store: Arc<dyn RecordStore>,
    identity: Identity,
    /// The ends in the message's body, which no record holds.
    ends: Vec<End>,
    /// The record as this delivery last wrote it; `None` before its first write.
    own: Option<(Record, Version)>,
    /// The number of the last write that was tried: none is used twice, so that payloads never share a name.
    last: u64,
    /// Writes without an answer that would make this delivery the owner: each may have been applied, or may still be.
    unanswered: u32,
}

impl Handle {
    pub(crate) fn new(store: Arc<dyn RecordStore>, identity: Identity, ends: Vec<End>) -> Self {
        Self { store, identity, ends, own: None, last: 0, unanswered: 0 }
    }

    /// Writes through `store` from now on: the drain's own, which is less patient.
    pub(crate) fn use_store(&mut self, store: Arc<dyn RecordStore>) {
        self.store = store;
    }

    /// The record as this delivery last wrote it.
    pub(crate) fn own(&self) -> Option<&Record> {
        self.own.as_ref().map(|(record, _)| record)
    }

    /// Whether a record by which this delivery would own the job may be there unheard, or may still come.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.unanswered > 0
    }

    /// What is known to have happened since the job last moved.
    pub(crate) fn account(&self) -> Account {
        self.own().map_or_else(|| self.fresh_account().0, |record| record.account.clone())
    }

    /// The ends that a release puts into the message's body: all that no record holds, and this delivery's own.
    pub(crate) fn ends_with(&self, end: End) -> Vec<End> {
        let mut ends = if self.own.is_some() { Vec::new() } else { self.ends.clone() };
        end.append_to(&mut ends);
        ends
    }

    /// The end of this delivery.
    pub(crate) fn end(&self, kind: EndKind, why: &str, unsaved_steps: u32) -> End {
        let Identity { message, count, worker, .. } = &self.identity;
        End { unsaved_steps, ..End::now(message, *count, worker, kind, why) }
    }

    /// This delivery, as it is judged.
    pub(crate) fn claimant(&self) -> Claimant<'_> {
        let Identity { message, count, generation, inserted_unix_ms, .. } = &self.identity;
        Claimant { message, count: *count, generation: *generation, inserted_unix_ms: *inserted_unix_ms }
    }

    /// Whether a record that was read is this delivery's own: a write whose answer was lost.
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

    /// The record by which this delivery would claim the job under `generation`, with all that is known of the
    /// deliveries before it.
    pub(crate) fn claim_of(&self, look: &Look, generation: u32) -> Record {
        let Look::Found(found) = look else {
            let (account, careful_steps) = self.fresh_account();
            return Record { account, careful_steps, ..self.blank(generation) };
        };
        let mut record = found.record.clone();
        let owner = &found.record.owner;
        if generation > record.generation {
            record.forgive();
            (record.generation, record.careful_steps) = (generation, 0);
        } else {
            self.enter_owners_end(&mut record);
        }
        for end in &self.ends {
            // Ends before the owner's were entered when it claimed.
            let entered = end.message == owner.message && end.count < owner.count;
            if !entered && end.message == self.identity.message {
                record.careful_steps = record.careful_steps.max(careful_after(end));
                record.account.enter(end.clone(), Company::Shared);
            }
        }
        let (owner, status) = (self.owner(), Status::Running);
        Record {
            owner,
            status,
            expires_unix_ms: None,
            abandoned_after_ms: self.abandoned_after_ms(),
            ..record
        }
    }

    /// Claims the job: writes `record` in the place of what was read.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict): look again, and judge anew.
    pub(crate) async fn claim(&mut self, look: &Look, mut record: Record) -> Result<()> {
        self.number(&mut record);
        let write = RecordWrite { record: seal(&record), ..RecordWrite::default() };
        self.put(look.version(), record, write).await
    }

    /// Takes over a record that this delivery wrote without getting the answer, or another's that it settles.
    pub(crate) fn adopt(&mut self, found: Found) {
        if self.own.is_none() && self.is_own(&found.record) {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        self.own = Some((found.record, found.version));
    }

    /// Takes over the record as it is now, whoever owns it; false where there is none that can be read.
    pub(crate) async fn adopt_present(&mut self) -> Result<bool> {
        let Look::Found(found) = self.look().await? else { return Ok(false) };
        self.adopt(*found);
        Ok(true)
    }

    /// Makes the write. One by which this delivery would become the owner counts as unanswered until its answer is here,
    /// also when this is dropped before.
    async fn put(&mut self, expected: Option<&Version>, record: Record, write: RecordWrite) -> Result<()> {
        let claims = u32::from(self.own.is_none());
        self.unanswered += claims;
        let written = self.store.put(&self.identity.job, expected, write).await;
        // An error may be the lack of an answer.
        if !written.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            self.unanswered = self.unanswered.saturating_sub(claims);
        }
        self.own = Some((record, written?));
        Ok(())
    }

    /// Saves `state` as the job's newest checkpoint.
    ///
    /// # Errors
    /// The store's own, but never a conflict. The last checkpoint is in place then, and the save can be tried again.
    ///
    /// # Cancel safety
    /// A dropped save may have been applied; the next write finds out by the nonce.
    pub(crate) async fn save(&mut self, state: &[u8], saving: Saving) -> Result<Written> {
        let (schema, crc32) = (self.identity.schema, crc32fast::hash(state));
        let inside = state.len() <= INLINE_BYTES_MAX;
        let change = |record: &mut Record, name: &PayloadName| {
            if saving.moved {
                record.forgive();
            }
            record.owner.company = saving.company;
            record.careful_steps = saving.careful_steps;
            record.status = Status::Running;
            let place = if inside { Place::Inside(state.to_vec()) } else { Place::Payload(name.clone()) };
            let sequence = record.sequence;
            record.push(Checkpoint { sequence, schema, bytes: state.len() as u64, crc32, place })
        };
        self.write(change, (!inside).then_some(state)).await
    }

    /// Writes in whose company the job runs from now on.
    pub(crate) async fn mark(&mut self, company: Company) -> Result<Written> {
        self.change(|record| record.owner.company = company).await
    }

    /// Writes that the job survived its time alone, and goes on in company.
    pub(crate) async fn survived(&mut self) -> Result<Written> {
        self.change(|record| {
            record.owner.company = Company::Shared;
            record.account.survived = record.account.survived.saturating_add(1);
        })
        .await
    }

    /// Writes how this delivery ended: into its own record, also into one by a write that it got no answer to. Another
    /// owner's record may say that this delivery's process died: that is corrected, and the record stays that owner's.
    pub(crate) async fn note(&mut self, end: End) -> Result<Written> {
        let enter = |record: &mut Record| record.account.enter(end.clone(), Company::Shared);
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
            found.record.sequence += 1;
            let write = RecordWrite { record: seal(&found.record), ..RecordWrite::default() };
            match self.store.put(&self.identity.job, Some(&found.version), write).await {
                Ok(_) => return Ok(Written::Taken),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Written::Refused)
    }

    /// Writes how this delivery ended into the record, which is made where there is none: for a message whose body has no
    /// room for it.
    pub(crate) async fn keep(&mut self, end: End) -> Result<Written> {
        let (account, owns) = (self.fresh_account().0, self.own.is_some());
        self.change(|record| {
            if !owns {
                record.account = account.clone();
            }
            record.account.enter(end.clone(), Company::Shared);
        })
        .await
    }

    /// Writes what became of the job; a finished one needs its checkpoints no more. `expires_unix_ms` keeps the record
    /// until then, as a mark that the job is settled.
    pub(crate) async fn conclude(&mut self, status: Status, expires_unix_ms: Option<i64>) -> Result<Written> {
        let change = |record: &mut Record, _: &PayloadName| {
            record.status = status.clone();
            record.expires_unix_ms = expires_unix_ms;
            if status != Status::Done {
                return Vec::new();
            }
            let obsolete = record.payloads();
            record.checkpoints.clear();
            obsolete
        };
        self.write(change, None).await
    }

    /// Removes the record and its payloads, if this delivery owns it: the job is finished.
    pub(crate) async fn remove(&mut self) -> Result<()> {
        let Some((record, version)) = self.own.take() else { return Ok(()) };
        match self.store.remove(&record.job, &version, &record.payloads()).await {
            // It is another's by now, or the answer to an own removal was lost.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            removed => removed,
        }
    }

    async fn change(&mut self, change: impl Fn(&mut Record)) -> Result<Written> {
        let change = |record: &mut Record, _: &PayloadName| {
            change(record);
            Vec::new()
        };
        self.write(change, None).await
    }

    /// Changes the own record, or makes it. After a conflict, an own write whose answer was lost is taken over.
    async fn write(
        &mut self,
        change: impl Fn(&mut Record, &PayloadName) -> Vec<PayloadName>,
        payload: Option<&[u8]>,
    ) -> Result<Written> {
        for _ in 0..ROUNDS_MAX {
            let mut record = self.own().cloned().unwrap_or_else(|| self.blank(self.identity.generation));
            // The record of a finished job may have been taken over from another owner.
            record.owner = Owner { company: record.owner.company, ..self.owner() };
            let name = self.number(&mut record);
            let obsolete = change(&mut record, &name);
            let payload = payload.map(|bytes| Payload { name, bytes: bytes.to_vec() });
            let write = RecordWrite { record: seal(&record), payload, obsolete };
            let expected = self.own.as_ref().map(|(_, version)| version.clone());
            match self.put(expected.as_ref(), record, write).await {
                Ok(()) => return Ok(Written::Taken),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
            match self.look().await? {
                Look::Found(found) if self.is_own(&found.record) => self.adopt(*found),
                Look::Damaged(version, _) if self.own.is_some() => {
                    if let Some((_, own)) = &mut self.own {
                        *own = version;
                    }
                }
                Look::Nothing if self.own.is_none() => {}
                Look::Nothing | Look::Found(_) | Look::Damaged(..) | Look::Newer(_) => {
                    return Ok(Written::Refused);
                }
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "write a record", "others keep writing it; try again"))
    }

    /// Numbers the next write, and returns the name of the payload that goes with it.
    fn number(&mut self, record: &mut Record) -> PayloadName {
        self.last = self.last.max(record.sequence) + 1;
        record.sequence = self.last;
        record.changed_unix_ms = unix_millis();
        PayloadName::new(record.generation, &self.identity.message, self.identity.count, self.last)
    }

    /// A record of which nothing is known but its owner.
    fn blank(&self, generation: u32) -> Record {
        Record {
            job: self.identity.job.clone(),
            kind: self.identity.kind.to_owned(),
            generation,
            owner: self.owner(),
            status: Status::Running,
            account: Account::default(),
            history: Vec::new(),
            sequence: 0,
            checkpoints: Vec::new(),
            careful_steps: 0,
            changed_unix_ms: 0,
            abandoned_after_ms: self.abandoned_after_ms(),
            expires_unix_ms: None,
        }
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

    /// What the body alone says of the deliveries before this one, and how careful that makes. However many there were
    /// of whose ends nothing is known, one vanished at the most: the others may never have begun.
    fn fresh_account(&self) -> (Account, u32) {
        let Identity { message, count, worker, .. } = &self.identity;
        let (mut account, mut careful_steps) = (Account::default(), 0);
        let first_ended = self.ends.iter().any(|end| end.count == 1 && end.message == *message);
        if *count > 1 && !first_ended {
            let first = End::now(message, 1, worker, EndKind::Vanished, "its end is unknown");
            account.enter(first, Company::Shared);
        }
        for end in self.ends.iter().filter(|end| end.message == *message) {
            careful_steps = careful_steps.max(careful_after(end));
            account.enter(end.clone(), Company::Shared);
        }
        (account, careful_steps)
    }

    /// Charges the owner's delivery with its end, unless that is known: its process died, or this very process lost it.
    fn enter_owners_end(&self, record: &mut Record) {
        let Owner { message, count, worker, company, .. } = record.owner.clone();
        let known = record.account.holds(&message, count)
            || self.ends.iter().any(|end| end.count == count && end.message == message);
        if known || record.status != Status::Running {
            return;
        }
        let (kind, why) = if worker == self.identity.worker {
            (EndKind::Lost, "its lease was lost")
        } else {
            (EndKind::Vanished, "its worker died")
        };
        record.account.enter(End::now(&message, count, &worker, kind, why), company);
    }
}

/// After how many steps the delivery after this end saves each time, so as to get past where the job failed.
fn careful_after(end: &End) -> u32 {
    if end.kind == EndKind::Failed { end.unsaved_steps.saturating_add(1) } else { 0 }
}
