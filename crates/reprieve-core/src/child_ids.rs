//! The ids of the jobs that a job enqueues.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::hash::ContentHash;
use crate::ids::JobId;

/// What the ids of a job's children depend on besides their own kinds and arguments, so that a step that is
/// run again, at another pace and with saves at other times, enqueues the same ones.
#[derive(Debug, Default)]
pub(crate) struct ChildIds {
    /// When the job was enqueued, if it has an id of its producer's own: an earlier job may have had it.
    since_unix_ms: AtomicI64,
    /// How often the job has waited at its own request. It is saved with the state.
    waits: AtomicU64,
    /// The ids that this delivery has given to children since the job waited last.
    given: Mutex<HashSet<JobId>>,
}

impl ChildIds {
    /// Notes when the job was enqueued.
    pub(crate) fn note_since(&self, since_unix_ms: i64) {
        self.since_unix_ms.store(since_unix_ms, Relaxed);
    }

    /// How often the job has waited.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Begins at a saved state: what was enqueued since is enqueued again, under the same ids.
    pub(crate) fn resume_at(&self, waits: u64) {
        self.waits.store(waits, Relaxed);
        self.given().clear();
    }

    /// The job waits.
    pub(crate) fn note_wait(&self) {
        self.resume_at(self.waits() + 1);
    }

    fn given(&self) -> MutexGuard<'_, HashSet<JobId>> {
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
            if given.contains(&id) {
                let message = format!(
                    "this job has enqueued a job of kind {kind:?} with the same arguments before; enqueue both in one \
                     call, or give them ids of their own, so that they are known when the step is run again"
                );
                return Err(Error::new(ErrorKind::Invalid, "enqueue jobs", message));
            }
            ids.push(id);
        }
        given.extend(ids.iter().cloned());
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
            given.remove(id);
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
        let all: HashSet<_> = first.iter().chain(&second).chain(&later).collect();
        assert_eq!(all.len(), 5, "equal children of one call, or after a wait, are jobs of their own");

        let again = ChildIds::default();
        assert_eq!(give(&again, &[3, 2]).unwrap(), [second[0].clone(), first[1].clone()]);
        assert_eq!(give(&again, &[1, 1]).unwrap(), [first[0].clone(), first[2].clone()]);
        again.resume_at(0);
        assert_eq!(give(&again, &[1, 2, 1]).unwrap(), first);
        again.resume_at(1);
        assert_eq!(give(&again, &[1]).unwrap(), later);
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
}
