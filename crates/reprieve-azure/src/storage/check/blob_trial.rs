//! Performs a worker's operations on a blob, and checks that the service enforces conditions:
//! because of them, only one of a job's two owners continues.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::trial::{Attempt, Attempts, StoreOperation, TrialTarget};
use super::{CHECK_MAX, TRIAL_MAX, scratch_name};
use crate::storage::blob::{Container, ContainerName, Copies, When};
use crate::storage::call::{Access, Effort};

/// Every operation, in the order of the trial.
const OPERATIONS: [StoreOperation; 5] = [
    StoreOperation::Write,
    StoreOperation::Replace,
    StoreOperation::Read,
    StoreOperation::List,
    StoreOperation::Delete,
];

/// Where its blob lies.
const DIRECTORY: &str = ".reprieve/doctor";

const FIRST: &[u8] = b"written by `reprieve doctor`; may be deleted";
const SECOND: &[u8] = b"written again by `reprieve doctor`; may be deleted";

/// The results of a container's trial.
#[derive(Debug)]
pub struct BlobTrial {
    /// The container that was used: a scratch one if the given one does not exist.
    pub target: TrialTarget,
    /// The outcome of every operation; with [`StoreOperation::Create`] when the container does not
    /// exist.
    pub attempts: Vec<Attempt>,
    /// Whether the service refused writes with an unmet condition; `None` if that could not be
    /// tried.
    pub conditions_kept: Option<bool>,
    /// The copies that the account keeps of overwritten and deleted blobs; `None` if that could not
    /// be tried.
    pub copies: Option<Copies>,
    /// Whether the account has a hierarchical namespace; `None` if that could not be tried.
    pub has_directories: Option<bool>,
    /// The blob that could not be deleted and still exists.
    pub left_behind: Option<String>,
}

/// A trial under way.
struct Trial {
    blob: String,
    attempts: Attempts,
    conditions_kept: Option<bool>,
    copies: Option<Copies>,
    has_directories: Option<bool>,
    /// Whether the blob may exist.
    written: bool,
}

pub(super) async fn run(access: &Access, name: &ContainerName) -> Result<BlobTrial> {
    let began = Instant::now();
    let blob = format!("{DIRECTORY}/{}", Uuid::now_v7().simple());
    let mut trial = Trial {
        blob,
        attempts: Attempts::default(),
        conditions_kept: None,
        copies: None,
        has_directories: None,
        written: false,
    };
    let own = Container::new(access, name.clone(), Effort::CHECK)?;
    // If this takes too long, the trial itself shows whether the container exists.
    let looked = timeout(TRIAL_MAX / 2, own.look()).await.unwrap_or(Ok(()));
    let missing = looked.err().filter(|error| error.kind() == ErrorKind::NotFound);
    let limit = |began: Instant| TRIAL_MAX.saturating_sub(began.elapsed());
    let Some(missing) = missing else {
        // Operations that the time did not allow are added below.
        let _late = timeout(limit(began), trial.go(&own)).await;
        let left_behind = trial.tidy(&own, CHECK_MAX.saturating_sub(began.elapsed())).await;
        return Ok(trial.ended(
            TrialTarget::Own(name.as_str().to_owned()),
            "there was no time left",
            left_behind,
        ));
    };
    let scratch_name = scratch_name();
    let scratch = Container::new(access, ContainerName::parse(scratch_name.as_str())?, Effort::CHECK)?;
    let made = scratch.create().await.map_err(|error| match error.kind() {
        // The operator has to know how to create the container, not who may.
        ErrorKind::Denied => missing,
        _ => error,
    });
    let made = trial.attempts.note(StoreOperation::Create, made).is_some();
    if made {
        let _late = timeout(limit(began), trial.go(&scratch)).await;
    }
    let left = CHECK_MAX.saturating_sub(began.elapsed());
    let removed = timeout(left, scratch.destroy()).await;
    if made {
        let late = || {
            let message = format!("container {scratch_name:?} could not be removed in time; delete it");
            Error::new(ErrorKind::TimedOut, "delete a container", message)
        };
        trial.attempts.note(StoreOperation::Remove, removed.unwrap_or_else(|_| Err(late())));
    }
    let why = if made { "there was no time left" } else { "there is no container to try it in" };
    Ok(trial.ended(TrialTarget::Scratch(scratch_name), why, None))
}

impl Trial {
    async fn go(&mut self, container: &Container) {
        const OPERATION: &str = "write a blob";
        let write = async |bytes: &'static [u8], when: &When| {
            container.write(OPERATION, &self.blob, bytes, None, when).await
        };
        self.written = true;
        let first = write(FIRST, &When::Absent).await;
        let mut kept = Vec::new();
        if first.is_ok() {
            kept.push(refused(write(SECOND, &When::Absent).await));
        }
        let second = match &first {
            Ok(etag) => Some(write(SECOND, &When::Is(etag.clone())).await),
            Err(_) => None,
        };
        if let (Ok(etag), Some(Ok(_))) = (&first, &second) {
            kept.push(refused(write(FIRST, &When::Is(etag.clone())).await));
        }
        // One write that succeeded despite its unmet condition is enough for `false`.
        self.conditions_kept = kept.into_iter().flatten().reduce(|all, one| all && one);
        let is_new = self.attempts.note(StoreOperation::Write, first).is_some();
        match second {
            Some(second) => drop(self.attempts.note(StoreOperation::Replace, second)),
            None => self.attempts.not_tried(StoreOperation::Replace, "there is no blob to replace"),
        }
        // A missing blob is `None`, which also requires the permission to read.
        let read = container.read("read a blob", &self.blob).await;
        self.attempts.note(StoreOperation::Read, read);
        // With the directory of the blob, where there are directories.
        let listed = container.list("list blobs", DIRECTORY).await;
        if self.attempts.note(StoreOperation::List, listed).is_some() {
            self.has_directories = Some(container.has_directories());
        }
        let deleted = container.delete("delete a blob", &self.blob).await;
        self.written = deleted.is_err() && !self.attempts.denied(StoreOperation::Write);
        let is_deleted = self.attempts.note(StoreOperation::Delete, deleted).is_some();
        if !self.written && is_deleted && is_new {
            let copied = format!("{}-copies", self.blob);
            self.copies = container.copies("look for copies", &copied, FIRST).await.ok();
        }
        if self.has_directories == Some(true) {
            // It stays if another check has a blob in it.
            drop(container.delete("delete a directory", DIRECTORY).await);
        }
    }

    /// Deletes the blob if it may exist; returns its name when that fails.
    async fn tidy(&self, container: &Container, limit: Duration) -> Option<String> {
        if !self.written {
            return None;
        }
        let deleted = timeout(limit, container.delete("delete a blob", &self.blob)).await;
        (!matches!(deleted, Ok(Ok(())))).then(|| self.blob.clone())
    }

    fn ended(self, target: TrialTarget, why: &'static str, left_behind: Option<String>) -> BlobTrial {
        let Self { attempts, conditions_kept, copies, has_directories, .. } = self;
        BlobTrial {
            target,
            attempts: attempts.complete(&OPERATIONS, why),
            conditions_kept,
            copies,
            has_directories,
            left_behind,
        }
    }
}

/// Whether a write was refused because of its condition; `None` when it failed for another reason.
fn refused(written: Result<String>) -> Option<bool> {
    match written {
        Ok(_) => Some(false),
        Err(error) if error.kind() == ErrorKind::Conflict => Some(true),
        Err(_) => None,
    }
}
