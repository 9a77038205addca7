//! A delivery that could be read: what is to be done, by which job, as which owner.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::registry::Kind;
use super::shared::Shared;
use crate::attempts::Attempts;
use crate::clock::unix_millis;
use crate::context::{Tenure, get};
use crate::envelope::{Data, Envelope};
use crate::ids::{Fence, JobId, Writer};
use crate::ports::{Delivery, InFlight};

#[derive(Debug)]
pub(super) struct Order {
    pub(super) envelope: Envelope,
    pub(super) kind: Arc<Kind>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) args_in_blob: bool,
}

impl Order {
    /// Reads `delivery`, whose lease ends when `lease_ends` says.
    ///
    /// # Errors
    /// One sentence for the poison queue.
    pub(super) fn read(
        shared: &Shared,
        delivery: &Delivery,
        lease_ends: Arc<Mutex<Instant>>,
    ) -> Result<Self, String> {
        let default_kind = shared.settings.default_kind.as_deref();
        let envelope = Envelope::read(&delivery.body, &delivery.id, default_kind)?;
        let kind = shared.registry.get(&envelope.kind).cloned().ok_or_else(|| {
            let known: Vec<_> = shared.registry.names().collect();
            format!(
                "no worker of this queue knows kind {:?}; this one knows {}",
                envelope.kind,
                known.join(", ")
            )
        })?;
        let fence = Fence::new(envelope.generation, delivery.dequeue_count);
        let tenure = Tenure {
            writer: Writer { job: envelope.job.clone(), fence },
            delivery: delivery.dequeue_count,
            blobs: Arc::clone(&shared.store.blobs),
            drain_blobs: Arc::clone(&shared.drain_store.blobs),
            telemetry: Arc::clone(&shared.telemetry),
            interrupted: CancellationToken::new(),
            revoked: CancellationToken::new(),
            deadline: Mutex::new(None),
            lease_ends,
            last_saved: Mutex::new(Instant::now()),
            began: Mutex::new(None),
            since_unix_ms: unix_millis(),
            steps: AtomicU64::new(0),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            estimate: Mutex::default(),
        };
        let args_in_blob = matches!(envelope.data, Data::Blob(_));
        Ok(Self { envelope, kind, tenure: Arc::new(tenure), args_in_blob })
    }

    pub(super) fn job(&self) -> &JobId {
        &self.envelope.job
    }

    pub(super) fn attempts(&self) -> Attempts {
        Attempts {
            dequeues: self.tenure.delivery,
            failed: self.envelope.failed,
            interrupted: self.envelope.interrupted,
            deferred: self.envelope.deferred,
        }
    }

    /// Moves the arguments out. The envelope keeps its own copy to be sent again.
    pub(super) fn take_data(&mut self) -> Data {
        std::mem::replace(&mut self.envelope.data, Data::Inline(RawValue::NULL.to_owned()))
    }

    /// When the job is expected to be done: as it says, or else as long after its beginning as jobs of its kind have taken
    /// at most, nearly always.
    pub(super) fn expected_end(&self) -> Option<Instant> {
        let usual = || Some(get(&self.tenure.began)? + self.kind.runs.p95()?);
        self.tenure.expected_end().or_else(usual)
    }

    /// Steps finished in this delivery.
    pub(super) fn steps(&self) -> u64 {
        self.tenure.steps.load(Relaxed)
    }
}

/// What the roster is told of a delivery.
#[derive(Debug)]
pub(super) struct Card {
    kind: Arc<Kind>,
    tenure: Arc<Tenure>,
}

impl Card {
    pub(super) fn of(order: &Order) -> Self {
        Self { kind: Arc::clone(&order.kind), tenure: Arc::clone(&order.tenure) }
    }

    pub(super) fn in_flight(&self) -> InFlight {
        InFlight {
            job: self.tenure.writer.job.clone(),
            kind: self.kind.name.to_owned(),
            delivery: self.tenure.delivery,
            progress: self.tenure.progress(),
            steps: self.tenure.steps.load(Relaxed),
            since_unix_ms: self.tenure.since_unix_ms,
        }
    }

    /// When its lease ends.
    pub(super) fn lease_ends(&self) -> Instant {
        get(&self.tenure.lease_ends)
    }

    /// The job's kind.
    pub(super) fn kind(&self) -> &'static str {
        self.kind.name
    }

    /// Whether the job has been running for longer than `time`.
    pub(super) fn runs_longer_than(&self, time: Duration) -> bool {
        get(&self.tenure.began).is_some_and(|began| began.elapsed() > time)
    }
}
