//! The ids of the jobs that a job enqueues.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::hash::ContentHash;
use crate::ids::JobId;

/// What the ids of a job's children depend on besides their own kinds and arguments, so that a step that is
/// run again, at another pace and with saves at other times, enqueues the same ones.
#[derive(Debug, Default)]
pub(crate) struct ChildIds {
    /// When the job was enqueued, if it has an id of its producer's own: an earlier job may have had it.
    since_unix_ms: AtomicI64,
    /// How often the job has waited at its own request after it had enqueued children. It is saved with the state. Waits
    /// without any do not count: how often a job looks for the end of its children depends on how long these take.
    waits: AtomicU64,
    /// The children since the job waited last.
    given: Mutex<GivenSoFar>,
}

#[derive(Debug, Default)]
struct GivenSoFar {
    /// Those of this step, which may be run again.
    in_step: BTreeSet<ShortId>,
    /// Those of this step before it saved the state that was loaded. They may be enqueued again until it ends.
    saved_in_step: BTreeSet<ShortId>,
    /// Those of the steps before it.
    before: BTreeSet<ShortId>,
}

/// What a checkpoint has of a job's children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SavedChildren {
    /// How often the job has waited after it had enqueued children.
    pub(crate) waits: u64,
    /// The children of its finished steps since it waited last.
    pub(crate) before: GivenBefore,
    /// Those of the step that saved itself.
    pub(crate) in_step: GivenBefore,
}

/// The beginning of the hash of a child's id: enough to tell a few thousand apart.
type ShortId = [u8; 6];

fn short(id: &JobId) -> ShortId {
    let hash = ContentHash::of(id.as_str().as_bytes());
    let mut short = ShortId::default();
    short.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    short
}

/// How many children a checkpoint remembers, so that a record stays small.
const REMEMBERED_MAX: usize = 500;

/// Children in a checkpoint, so that an equal one in a later step is refused whether or not the job was interrupted in
/// between. A checkpoint remembers 500 of them; beyond that, an equal one of another delivery counts as the same job.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenBefore(#[serde(with = "in_base64")] Vec<u8>);

mod in_base64 {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD_NO_PAD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD_NO_PAD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD_NO_PAD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
impl GivenBefore {
    /// As many as are remembered.
    pub(crate) fn of_most() -> Self {
        Self(vec![7; REMEMBERED_MAX * size_of::<ShortId>()])
    }
}

impl GivenBefore {
    /// Remembers `max` of these.
    fn of(ids: &BTreeSet<ShortId>, max: usize) -> Self {
        let first: Vec<ShortId> = ids.iter().copied().take(max).collect();
        Self(first.concat())
    }

    const fn len(&self) -> usize {
        self.0.len() / size_of::<ShortId>()
    }

    fn ids(&self) -> BTreeSet<ShortId> {
        self.0.chunks_exact(size_of::<ShortId>()).filter_map(|id| id.try_into().ok()).collect()
    }
}

impl fmt::Debug for GivenBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GivenBefore({})", self.len())
    }
}

impl ChildIds {
    /// Notes when the job was enqueued.
    pub(crate) fn note_since(&self, since_unix_ms: i64) {
        self.since_unix_ms.store(since_unix_ms, Relaxed);
    }

    /// How often the job has waited after it had enqueued children.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Begins at a saved state: what was enqueued since is enqueued again, under the same ids.
    pub(crate) fn resume_at(&self, saved: &SavedChildren) {
        self.waits.store(saved.waits, Relaxed);
        let (saved_in_step, before) = (saved.in_step.ids(), saved.before.ids());
        *self.given() = GivenSoFar { in_step: BTreeSet::new(), saved_in_step, before };
    }

    /// Begins without a state.
    pub(crate) fn begin(&self) {
        self.resume_at(&SavedChildren::default());
    }

    /// The job waits at the end of a step.
    pub(crate) fn note_wait(&self) {
        self.end_step();
        let has_given = !self.given().before.is_empty();
        self.resume_at(&SavedChildren {
            waits: self.waits() + u64::from(has_given),
            ..SavedChildren::default()
        });
    }

    /// The step has ended, and is not run again if its state is saved.
    pub(crate) fn end_step(&self) {
        let mut given = self.given();
        let GivenSoFar { in_step, saved_in_step, before } = &mut *given;
        before.append(in_step);
        before.append(saved_in_step);
    }

    /// Returns what a save keeps, at the end of a step or within it.
    pub(crate) fn to_save(&self) -> SavedChildren {
        let given = self.given();
        let in_step = given.in_step.union(&given.saved_in_step).copied().collect();
        let in_step = GivenBefore::of(&in_step, REMEMBERED_MAX);
        let before = GivenBefore::of(&given.before, REMEMBERED_MAX - in_step.len());
        SavedChildren { waits: self.waits(), before, in_step }
    }

    fn given(&self) -> MutexGuard<'_, GivenSoFar> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an id to each of these children of one call: their kinds, and the hashes of their arguments.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when one equals a child of another call.
    pub(crate) fn give(&self, parent: &JobId, wanted: Vec<(String, ContentHash)>) -> Result<Given<'_>> {
        let (since, waits) = (self.since_unix_ms.load(Relaxed), self.waits());
        let mut seen = HashMap::<_, u32>::new();
        let mut given = self.given();
        let mut ids = Vec::with_capacity(wanted.len());
        for (kind, hash) in wanted {
            let count = seen.entry((kind.clone(), hash)).or_default();
            let id = JobId::of_child(parent, &format!("{since} {waits} {hash} {count} {kind}"));
            *count += 1;
            let short = short(&id);
            if given.in_step.contains(&short) || given.before.contains(&short) {
                let message = format!(
                    "this job has enqueued a job of kind {kind:?} with the same arguments before; enqueue both in one \
                     call, let the job wait once in between, or give them ids of their own, so that they are known when \
                     the step is run again"
                );
                return Err(Error::new(ErrorKind::Invalid, "enqueue jobs", message));
            }
            ids.push(id);
        }
        given.in_step.extend(ids.iter().map(short));
        drop(given);
        Ok(Given { children: self, ids })
    }
}

/// Ids that children have until this is dropped, or for good if they are enqueued.
pub(crate) struct Given<'a> {
    children: &'a ChildIds,
    ids: Vec<JobId>,
}

impl Given<'_> {
    /// The ids, in the order of the children.
    pub(crate) fn ids(&self) -> &[JobId] {
        &self.ids
    }

    pub(crate) fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        let mut given = self.children.given();
        self.ids.iter().for_each(|id| {
            given.in_step.remove(&short(id));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(children: &ChildIds, args: &[u32]) -> Result<Vec<JobId>> {
        let wanted = args.iter().map(|args| ("k".to_owned(), ContentHash::of(&args.to_le_bytes()))).collect();
        let given = children.give(&JobId::parse("parent").unwrap(), wanted)?;
        let ids = given.ids().to_vec();
        given.keep();
        Ok(ids)
    }

    #[test]
    fn what_is_enqueued_again_has_the_same_ids_in_any_order_and_in_any_calls() {
        let children = ChildIds::default();
        let first = give(&children, &[1, 2, 1]).unwrap();
        let second = give(&children, &[3]).unwrap();
        children.note_wait();
        let later = give(&children, &[1]).unwrap();
        let all: BTreeSet<_> = first.iter().chain(&second).chain(&later).collect();
        assert_eq!(all.len(), 5, "equal children of one call, or after a wait, are jobs of their own");

        let again = ChildIds::default();
        assert_eq!(give(&again, &[3, 2]).unwrap(), [second[0].clone(), first[1].clone()]);
        assert_eq!(give(&again, &[1, 1]).unwrap(), [first[0].clone(), first[2].clone()]);
        again.begin();
        assert_eq!(give(&again, &[1, 2, 1]).unwrap(), first);
        again.resume_at(&SavedChildren { waits: 1, ..SavedChildren::default() });
        assert_eq!(give(&again, &[1]).unwrap(), later);
    }

    #[test]
    fn how_often_a_job_looks_for_the_end_of_its_children_is_not_in_the_ids_of_the_next_ones() {
        let of_second_stage = |looks| {
            let children = ChildIds::default();
            give(&children, &[1]).unwrap();
            children.end_step();
            (0..looks).for_each(|_| {
                children.note_wait();
                // Perhaps on another worker.
                children.resume_at(&children.to_save());
            });
            give(&children, &[1]).unwrap()
        };
        assert_eq!(of_second_stage(1), of_second_stage(7));
    }

    #[test]
    fn children_of_a_step_that_saved_itself_are_known_after_it_and_may_be_enqueued_again_in_it() {
        let (calm, resumed) = (ChildIds::default(), ChildIds::default());
        let first = give(&calm, &[1]).unwrap();
        resumed.resume_at(&calm.to_save());
        assert_eq!(give(&resumed, &[1]).unwrap(), first, "the rest of the step enqueues it again");

        for enqueues_again in [true, false] {
            resumed.resume_at(&calm.to_save());
            if enqueues_again {
                give(&resumed, &[1]).unwrap();
            }
            resumed.end_step();
            give(&resumed, &[1]).unwrap_err();
            resumed.note_wait();
            let calm = ChildIds::default();
            give(&calm, &[1]).unwrap();
            calm.note_wait();
            let second = give(&calm, &[1]).unwrap();
            assert!(give(&resumed, &[1]).unwrap() == second && second != first);
        }
    }

    #[test]
    fn an_equal_child_of_another_call_is_refused_unless_that_one_failed() {
        let children = ChildIds::default();
        let wanted = vec![("k".to_owned(), ContentHash::of(&1_u32.to_le_bytes()))];
        drop(children.give(&JobId::parse("parent").unwrap(), wanted).unwrap());
        give(&children, &[1]).unwrap();
        let error = give(&children, &[2, 1]).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.message().contains("ids of their own"),
            "{error}"
        );
        give(&children, &[2]).unwrap();
    }

    #[test]
    fn an_equal_child_of_a_later_step_is_refused_after_an_interruption_too() {
        let (children, resumed) = (ChildIds::default(), ChildIds::default());
        give(&children, &[1]).unwrap();
        resumed.resume_at(&children.to_save());
        give(&resumed, &[1]).expect("the step was not finished, and is run again");

        children.end_step();
        let saved = children.to_save();
        let before = serde_json::from_str(&serde_json::to_string(&saved.before).unwrap()).unwrap();
        resumed.resume_at(&SavedChildren { before, ..saved });
        give(&resumed, &[1]).unwrap_err();
        give(&resumed, &[2]).unwrap();
        resumed.note_wait();
        give(&resumed, &[1]).unwrap();
    }

    #[test]
    fn a_checkpoint_remembers_no_more_than_500_children() {
        let children = ChildIds::default();
        give(&children, &(0..2_000).collect::<Vec<_>>()).unwrap();
        children.end_step();
        assert_eq!(children.to_save().before.len(), REMEMBERED_MAX);
        give(&children, &(2_000..2_100).collect::<Vec<_>>()).unwrap();
        let SavedChildren { before, in_step, .. } = children.to_save();
        assert_eq!((before.len(), in_step.len()), (REMEMBERED_MAX - 100, 100));
    }
}
