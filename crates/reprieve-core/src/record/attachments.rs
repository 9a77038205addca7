//! The attachments of a job's checkpoints: named contents of any size, in chunks that are payloads
//! of their own. A manifest lists them, and a checkpoint names its manifest, so attachments become
//! part of the job's progress when a record is written, like its state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::codec::{self, Encoded};
use crate::hash::ContentHash;
use crate::ids::PayloadName;

/// The length of a chunk, but for the last one of a content. Large enough that requests are few,
/// and small enough that a small change sends little again: 1 GiB has 256.
pub const CHUNK_BYTES: usize = 4 << 20;

/// The attachments of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(BTreeMap<String, Content>);

/// The content of one attachment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Content {
    /// The length in bytes.
    pub(crate) bytes: u64,
    pub(crate) chunks: Vec<Chunk>,
}

impl Content {
    /// Whether the bytes are the same, wherever they are stored.
    fn equals(&self, other: &Self) -> bool {
        let hash = |chunk: &Chunk| chunk.sha256;
        self.bytes == other.bytes && self.chunks.iter().map(hash).eq(other.chunks.iter().map(hash))
    }
}

/// A piece of a content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) payload: PayloadName,
    sha256: ContentHash,
}

impl Chunk {
    pub(crate) const fn new(payload: PayloadName, sha256: ContentHash) -> Self {
        Self { payload, sha256 }
    }

    /// Whether `bytes` are those of the chunk.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        ContentHash::of(bytes) == self.sha256
    }
}

impl Manifest {
    /// Decodes a manifest.
    ///
    /// # Errors
    /// Why the bytes are no manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        codec::decode_state(bytes)
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.0.values().flat_map(|content| &content.chunks)
    }

    /// Returns the names of the chunks' payloads.
    pub fn payloads(&self) -> impl Iterator<Item = &PayloadName> {
        self.chunks().map(|chunk| &chunk.payload)
    }

    fn has_any(&self, chunks: &BTreeSet<PayloadName>) -> bool {
        self.payloads().any(|payload| chunks.contains(payload))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The attachments of a job, as the delivery that runs it knows them.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    /// The attachments that the next checkpoint names.
    next: Manifest,
    /// The attachments that the newest checkpoint names; `None` if it names none.
    newest: Option<Arc<Manifest>>,
    /// The manifests of the checkpoints that the record names, by the checkpoints' sequence.
    kept: BTreeMap<u64, Arc<Manifest>>,
    /// The same of checkpoints that were written without an answer: the record may name them.
    unconfirmed: BTreeMap<u64, Arc<Manifest>>,
    /// The chunks that exist: an equal one is not sent again.
    known: HashMap<ContentHash, Chunk>,
    /// Payloads of this delivery that no record names, or need not name any more.
    loose: BTreeSet<PayloadName>,
    /// Chunks that are not used again: they were found damaged, or a write that may have been applied
    /// removed them.
    unusable: BTreeSet<PayloadName>,
    /// Made with the first pin.
    pins: OnceLock<Pins>,
}

/// The payloads that reads and writes under way need, each with their number: they stay until then.
#[derive(Debug, Clone, Default)]
struct Pins(Arc<Mutex<BTreeMap<PayloadName, usize>>>);

/// Most jobs have no attachments.
static NONE: Manifest = Manifest(BTreeMap::new());

/// The payloads that one read or write needs. Releases them when it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    pins: Pins,
    names: Vec<PayloadName>,
}

impl Pins {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PayloadName, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> BTreeSet<PayloadName> {
        self.lock().keys().cloned().collect()
    }
}

impl Pinned {
    /// Keeps this one as well.
    pub(crate) fn add(&mut self, name: &PayloadName) {
        *self.pins.lock().entry(name.clone()).or_default() += 1;
        self.names.push(name.clone());
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = self.pins.lock();
        for name in &self.names {
            let Some(count) = pins.get_mut(name) else { continue };
            *count -= 1;
            if *count == 0 {
                pins.remove(name);
            }
        }
    }
}

impl Attachments {
    /// Adds the manifest of a checkpoint that the record names.
    pub(crate) fn keep(&mut self, sequence: u64, manifest: Manifest) {
        self.kept.insert(sequence, Arc::new(manifest));
        self.know_kept();
    }

    /// Continues from a checkpoint whose manifest is kept, or which has none.
    pub(crate) fn resume_at(&mut self, sequence: u64) {
        self.newest = self.kept.get(&sequence).cloned();
        self.next = self.newest().clone();
    }

    /// Continues without a checkpoint.
    pub(crate) fn begin(&mut self) {
        (self.newest, self.next) = (None, Manifest::default());
    }

    fn newest(&self) -> &Manifest {
        self.newest.as_deref().unwrap_or(&NONE)
    }

    fn pinned(&self) -> BTreeSet<PayloadName> {
        self.pins.get().map(Pins::names).unwrap_or_default()
    }

    /// Returns what keeps payloads for a read or a write that begins.
    pub(crate) fn pin(&self) -> Pinned {
        Pinned { pins: self.pins.get_or_init(Pins::default).clone(), names: Vec::new() }
    }

    /// Forgets the manifest of a checkpoint that is damaged.
    pub(crate) fn discard(&mut self, sequence: u64) {
        let dropped = [self.kept.remove(&sequence), self.unconfirmed.remove(&sequence)];
        let dropped = dropped.iter().flatten();
        self.loose.extend(dropped.flat_map(|manifest| manifest.payloads().cloned()));
        self.know_kept();
    }

    /// Does not use a chunk again that was found damaged.
    pub(crate) fn forget(&mut self, damaged: &Chunk) {
        self.known.remove(&damaged.sha256);
        self.unusable.insert(damaged.payload.clone());
    }

    /// Does not use these payloads again: a write removes them, even if it is not answered.
    pub(crate) fn note_removal(&mut self, removed: &[PayloadName]) {
        self.unusable.extend(removed.iter().cloned());
    }

    /// Knows the usable chunks of the kept checkpoints, and no others.
    fn know_kept(&mut self) {
        let chunks = self.kept.values().flat_map(|manifest| manifest.chunks());
        let chunks = chunks.filter(|chunk| !self.unusable.contains(&chunk.payload));
        self.known = chunks.map(|chunk| (chunk.sha256, chunk.clone())).collect();
    }

    /// Forgets the chunks that the next checkpoint does not name: the write that is sent next
    /// removes them, even if it is not answered.
    pub(crate) fn know_only_next(&mut self) {
        let needed: BTreeSet<_> = self.next.payloads().collect();
        self.known.retain(|_, chunk| needed.contains(&chunk.payload));
    }

    /// Whether the manifest of the checkpoint is known.
    pub(crate) fn keeps(&self, sequence: u64) -> bool {
        self.kept.contains_key(&sequence)
    }

    /// Returns the checkpoints that name one of these chunks.
    pub(crate) fn checkpoints_with(&self, chunks: &BTreeSet<PayloadName>) -> Vec<u64> {
        let all = self.kept.iter().chain(&self.unconfirmed);
        let with = all.filter(|(_, manifest)| manifest.has_any(chunks));
        with.map(|(sequence, _)| *sequence).collect()
    }

    /// Whether the next checkpoint would name one of these chunks.
    pub(crate) fn next_has(&self, chunks: &BTreeSet<PayloadName>) -> bool {
        self.next.has_any(chunks)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Content> {
        self.next.0.get(name)
    }

    /// Sets an attachment from the next checkpoint on.
    pub(crate) fn set(&mut self, name: &str, content: Content) {
        for chunk in content.chunks.iter().filter(|chunk| !self.unusable.contains(&chunk.payload)) {
            self.known.insert(chunk.sha256, chunk.clone());
        }
        self.next.0.insert(name.to_owned(), content);
    }

    /// Removes an attachment from the next checkpoint on; returns false when there is none.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.next.0.remove(name).is_some()
    }

    /// Returns the chunk with this hash, if one exists.
    pub(crate) fn find(&self, hash: ContentHash) -> Option<Chunk> {
        self.known.get(&hash).cloned()
    }

    /// Notes a payload that is removed at the next save that does not name it.
    pub(crate) fn note_loose(&mut self, payload: PayloadName) {
        self.loose.insert(payload);
    }

    /// Notes that checkpoint number `sequence`, with the next manifest, is being written.
    pub(crate) fn note_write(&mut self, sequence: u64) {
        if self.next.is_empty() {
            return;
        }
        // Tries that fail one after another have one manifest, which may be long.
        let same = self.unconfirmed.values().next_back().filter(|before| ***before == self.next);
        let manifest = same.map_or_else(|| Arc::new(self.next.clone()), Arc::clone);
        self.unconfirmed.insert(sequence, manifest);
    }

    /// Notes that checkpoint number `sequence` was certainly not written.
    pub(crate) fn note_refusal(&mut self, sequence: u64) {
        self.unconfirmed.remove(&sequence);
    }

    /// Whether the attachments differ from those of the newest checkpoint.
    pub(crate) fn has_changed(&self) -> bool {
        self.next != *self.newest()
    }

    /// Whether a content differs from that of the newest checkpoint. One that was only sent again does
    /// not.
    pub(crate) fn has_moved(&self) -> bool {
        let (next, newest) = (&self.next.0, &self.newest().0);
        next.len() != newest.len()
            || next.iter().zip(newest).any(|(next, newest)| next.0 != newest.0 || !next.1.equals(newest.1))
    }

    /// Whether a chunk that the next checkpoint would name is damaged, or may be gone.
    pub(crate) fn is_next_damaged(&self) -> bool {
        self.next.has_any(&self.unusable)
    }

    /// Whether no chunk of the checkpoint is known to be damaged or gone.
    pub(crate) fn is_intact(&self, sequence: u64) -> bool {
        let manifest = self.kept.get(&sequence).or_else(|| self.unconfirmed.get(&sequence));
        manifest.is_none_or(|manifest| !manifest.has_any(&self.unusable))
    }

    /// Returns those of these payloads that no checkpoint names any more, nor will the next one.
    pub(crate) fn unnamed(
        &self,
        payloads: &BTreeSet<PayloadName>,
        checkpoints: &[u64],
    ) -> BTreeSet<PayloadName> {
        let named = self.kept.iter().filter(|(sequence, _)| checkpoints.contains(sequence));
        let manifests = named.map(|(_, manifest)| &**manifest).chain([&self.next]);
        let named: BTreeSet<_> = manifests.flat_map(Manifest::payloads).collect();
        payloads.iter().filter(|payload| !named.contains(payload)).cloned().collect()
    }

    /// Returns the encoded manifest for the next checkpoint; `None` without attachments.
    ///
    /// # Errors
    /// Never in practice: a manifest consists of texts, numbers and bytes.
    pub(crate) fn encode(&self) -> Result<Option<Encoded>, String> {
        if self.next.is_empty() { Ok(None) } else { codec::encode_state(&self.next).map(Some) }
    }

    /// Returns the payloads that nothing needs once the record names only the checkpoints `kept`,
    /// the newest of which is the one being written with the next manifest. `kept` has each
    /// checkpoint's sequence and whether it has attachments.
    pub(crate) fn obsolete(&self, kept: &[(u64, bool)]) -> Vec<PayloadName> {
        let pinned = self.pinned();
        let mut needed: BTreeSet<&PayloadName> = pinned.iter().collect();
        for (at, (sequence, has_attachments)) in kept.iter().enumerate() {
            match self.kept.get(sequence).or_else(|| self.unconfirmed.get(sequence)) {
                _ if at == 0 => needed.extend(self.next.payloads()),
                Some(manifest) => needed.extend(manifest.payloads()),
                None if !has_attachments => {}
                // It could not be read, and may name any of them. Retention removes what remains.
                None => return Vec::new(),
            }
        }
        let all = self.kept.values().flat_map(|manifest| manifest.payloads()).chain(&self.loose);
        let obsolete: BTreeSet<_> = all.filter(|payload| !needed.contains(payload)).collect();
        obsolete.into_iter().cloned().collect()
    }

    /// Returns every payload of a job that has ended.
    pub(crate) fn all(&self) -> Vec<PayloadName> {
        let kept = self.kept.values().flat_map(|manifest| manifest.payloads());
        let all: BTreeSet<_> = kept.chain(self.next.payloads()).chain(&self.loose).collect();
        all.into_iter().cloned().collect()
    }

    /// Whether the job has none, and had none in this delivery.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.loose.is_empty() && self.next.is_empty()
    }

    /// Whether the answer to a save with attachments is not known.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// Notes that the record names the checkpoints `kept` now, the newest with the next manifest, and
    /// itself these payloads; and that the write has removed those.
    pub(crate) fn saved(&mut self, kept: &[u64], named: &[PayloadName], removed: &[PayloadName]) {
        let Some(newest) = kept.first() else { return };
        let manifest = Arc::new(self.next.clone());
        self.newest = Some(Arc::clone(&manifest));
        let mut all = std::mem::take(&mut self.kept);
        all.append(&mut self.unconfirmed);
        all.insert(*newest, manifest);
        let (kept, dropped) = all.into_iter().partition(|(sequence, _)| kept.contains(sequence));
        self.kept = kept;
        // What is left over was pinned, or belongs to a checkpoint whose manifest is not known.
        let dropped: BTreeMap<u64, Arc<Manifest>> = dropped;
        self.loose.extend(dropped.values().flat_map(|manifest| manifest.payloads().cloned()));
        let mut gone: BTreeSet<_> = self.kept.values().flat_map(|manifest| manifest.payloads()).collect();
        // What nothing names any more can't be used again.
        let pinned = self.pinned();
        let next: BTreeSet<_> = self.next.payloads().collect();
        self.unusable
            .retain(|payload| gone.contains(payload) || next.contains(payload) || pinned.contains(payload));
        gone.extend(named.iter().chain(removed));
        self.loose.retain(|payload| !gone.contains(payload));
        self.know_kept();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;

    fn payload(number: u64) -> PayloadName {
        PayloadName::new(0, &MessageId::new("m"), 1, number)
    }

    fn content(numbers: &[u64]) -> Content {
        let chunk = |number: &u64| Chunk::new(payload(*number), ContentHash::of(&number.to_le_bytes()));
        Content { bytes: 8 * numbers.len() as u64, chunks: numbers.iter().map(chunk).collect() }
    }

    fn names(numbers: &[u64]) -> Vec<PayloadName> {
        let mut names: Vec<_> = numbers.iter().map(|number| payload(*number)).collect();
        names.sort();
        names
    }

    #[test]
    fn a_manifest_comes_back_from_its_encoding() {
        let mut attachments = Attachments::default();
        assert_eq!(attachments.encode().unwrap(), None);
        attachments.set("grid", content(&[1, 2]));
        let encoded = attachments.encode().unwrap().unwrap();
        assert_eq!(Manifest::decode(encoded.bytes()).unwrap(), attachments.next);
        for length in 0..encoded.bytes().len() {
            assert!(Manifest::decode(&encoded.bytes()[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn tries_that_get_no_answer_keep_one_manifest_and_those_that_are_refused_none() {
        let mut attachments = Attachments::default();
        attachments.set("grid", content(&[1, 2]));
        (1..=100).for_each(|sequence| attachments.note_write(sequence));
        let manifests: Vec<_> = attachments.unconfirmed.values().collect();
        assert!(manifests.iter().all(|manifest| Arc::ptr_eq(manifest, manifests[0])));
        (1..=100).for_each(|sequence| attachments.note_refusal(sequence));
        assert!(attachments.unconfirmed.is_empty());
    }

    #[test]
    fn a_chunk_is_obsolete_when_no_kept_checkpoint_names_it() {
        let mut attachments = Attachments::default();
        attachments.set("grid", content(&[1, 2]));
        assert_eq!(attachments.obsolete(&[(10, true)]), []);
        attachments.saved(&[10], &[], &[]);
        attachments.set("grid", content(&[1, 3]));
        assert_eq!(attachments.obsolete(&[(11, true), (10, true)]), []);
        attachments.saved(&[11, 10], &[], &[]);
        attachments.set("grid", content(&[3, 4]));
        assert_eq!(attachments.obsolete(&[(12, true), (11, true)]), names(&[2]));
        attachments.saved(&[12, 11], &[], &names(&[2]));
        assert!(attachments.remove("grid"));
        assert_eq!(attachments.obsolete(&[(13, false), (12, true)]), names(&[1]));
        assert_eq!(attachments.all(), names(&[1, 3, 4]));
    }

    #[test]
    fn an_upload_that_was_given_up_is_obsolete_at_the_next_save() {
        let mut attachments = Attachments::default();
        (7..10).for_each(|number| attachments.note_loose(payload(number)));
        attachments.set("grid", content(&[8]));
        assert_eq!(attachments.obsolete(&[(10, true)]), names(&[7, 9]));
        attachments.saved(&[10], &[], &names(&[7]));
        assert_eq!(attachments.obsolete(&[(11, true), (10, true)]), names(&[9]), "it was not removed yet");
        attachments.saved(&[11, 10], &[], &names(&[9]));
        assert_eq!(attachments.obsolete(&[(12, true), (11, true)]), []);
    }

    #[test]
    fn nothing_is_obsolete_while_a_kept_manifest_is_unknown() {
        let mut attachments = Attachments::default();
        attachments.keep(9, Manifest(BTreeMap::from([("grid".to_owned(), content(&[1]))])));
        attachments.note_loose(payload(5));
        assert_eq!(attachments.obsolete(&[(10, false), (8, true)]), []);
        assert_eq!(attachments.obsolete(&[(10, false), (8, false)]), names(&[1, 5]));
    }

    #[test]
    fn an_equal_chunk_is_found_as_long_as_it_is_kept() {
        let mut attachments = Attachments::default();
        attachments.set("grid", content(&[1]));
        attachments.saved(&[10], &[], &[]);
        let hash = ContentHash::of(&1_u64.to_le_bytes());
        assert_eq!(attachments.find(hash).map(|chunk| chunk.payload), Some(payload(1)));
        attachments.set("grid", content(&[2]));
        attachments.saved(&[11, 10], &[], &[]);
        assert!(attachments.find(hash).is_some(), "the checkpoint before names it");
        attachments.saved(&[12, 11], &[], &[]);
        assert!(attachments.find(hash).is_none());
    }

    #[test]
    fn removed_names_are_not_remembered_once_nothing_can_use_them_again() {
        let mut attachments = Attachments::default();
        for at in 1..100 {
            attachments.set("grid", content(&[2 * at, 2 * at + 1]));
            let removed = attachments.obsolete(&[(at, true), (at - 1, at > 1)]);
            attachments.note_removal(&removed);
            let kept = [at, at - 1];
            attachments.saved(&kept[..if at > 1 { 2 } else { 1 }], &[], &removed);
            assert_eq!(attachments.unusable.len(), 0, "after {at} saves");
        }
        // What a write under way holds stays unusable.
        let mut pinned = attachments.pin();
        pinned.add(&payload(7));
        attachments.note_removal(&names(&[7, 8]));
        attachments.saved(&[100, 99], &[], &[]);
        assert_eq!(attachments.unusable, names(&[7]).into_iter().collect());
    }
}
