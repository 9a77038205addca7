//! Checks a storage account without leaving a trace: the identity, the services' answers, the
//! permissions on queues and blobs, and the latency.
//!
//! Everything that a check creates has a name that begins with [`SCRATCH`] or
//! [`RESERVED`](super::RESERVED)`doctor/`, and the check deletes it again. It returns facts only;
//! the caller judges them.

mod blob_trial;
mod queue_look;
mod queue_trial;
mod reach;
mod sign_in;
mod trial;

use std::time::Duration;

use reprieve_core::{QueueName, Result};
use uuid::Uuid;

pub use self::blob_trial::BlobTrial;
pub use self::queue_look::{Next, PEEKED_MAX, QueueLook};
pub use self::queue_trial::QueueTrial;
pub use self::reach::Reached;
pub use self::sign_in::SignedIn;
pub use self::trial::{Attempt, Outcome, StoreOperation, TrialTarget};
use crate::storage::account::Address;
use crate::storage::blob::ContainerName;
pub use crate::storage::blob::Copies;
use crate::storage::call::Access;

/// The prefix of the queues and containers that a check creates and deletes.
pub const SCRATCH: &str = "reprieve-doctor-";

/// The time limit of each method of [`Checkup`].
pub const CHECK_MAX: Duration = Duration::from_secs(10);

/// The time limit of the trials, which leaves time for the cleanup.
const TRIAL_MAX: Duration = Duration::from_secs(8);

/// The part of an account that a store would use.
#[derive(Debug)]
pub struct Checkup {
    access: Access,
    queues: Vec<QueueName>,
    container: ContainerName,
}

impl Checkup {
    /// Prepares the check. Sends no request.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid) for a token that would be sent unencrypted,
    /// or for invalid certificates.
    pub fn new(address: &Address, queues: Vec<QueueName>, container: ContainerName) -> Result<Self> {
        Ok(Self { access: Access::open(address)?, queues, container })
    }

    /// Gets a token, if one is needed.
    ///
    /// # Errors
    /// [`Denied`](reprieve_core::ErrorKind::Denied) when there is no identity; a temporary error
    /// when the identity gave no token in time.
    pub async fn sign_in(&self) -> Result<SignedIn> {
        sign_in::sign_in(&self.access).await
    }

    /// Sends one request to the queue service and one to the blob service. Gets a token first if
    /// [`sign_in`](Self::sign_in) has not.
    pub async fn reach(&self) -> [Result<Reached>; 2] {
        reach::reach(&self.access, self.queues.first(), &self.container).await
    }

    /// Looks at every queue and its poison queue.
    pub async fn look(&self) -> Vec<QueueLook> {
        queue_look::look(&self.access, &self.queues).await
    }

    /// Performs a worker's and a producer's operations on a scratch queue. If that may not be
    /// created, performs those on the first queue that no other client notices.
    pub async fn try_queue(&self) -> Result<QueueTrial> {
        queue_trial::run(&self.access, self.queues.first()).await
    }

    /// Performs a worker's operations on a blob in the container, or in a scratch container if that
    /// one is missing.
    pub async fn try_blobs(&self) -> Result<BlobTrial> {
        blob_trial::run(&self.access, &self.container).await
    }
}

/// Whether this machine is certainly an Azure VM. It may be one even if this returns false.
#[must_use]
pub fn is_azure_vm() -> bool {
    crate::identity::is_azure_vm()
}

/// A unique name for a queue or a container.
fn scratch_name() -> String {
    format!("{SCRATCH}{}", Uuid::now_v7().simple())
}

#[cfg(test)]
mod tests;
