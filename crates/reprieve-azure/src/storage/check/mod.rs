//! Tries out a storage account without leaving a trace: who lets this program in, whether the services answer, what may be
//! done with queues and blobs, and how fast.
//!
//! What it makes, it makes for itself, under names that begin with [`SCRATCH`] or [`RESERVED`](super::RESERVED)`doctor/`, and
//! removes again. Nothing here judges: that is up to who asks.

mod blob_trial;
mod queue_calls;
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
pub use self::trial::{Deed, Ground, Outcome, Tried};
use super::access::Access;
use super::address::Address;
use super::container_name::ContainerName;
use super::effort::Effort;

/// How the queues and containers are called that a check makes and removes.
pub const SCRATCH: &str = "reprieve-doctor-";

/// The longest that each method of [`Checkup`] takes.
pub const CHECK_MAX: Duration = Duration::from_secs(10);

/// How long is tried, so that there is time left to tidy up.
const TRIAL_MAX: Duration = Duration::from_secs(8);

/// The part of an account that a store would use.
#[derive(Debug)]
pub struct Checkup {
    access: Access,
    queues: Vec<QueueName>,
    container: ContainerName,
}

impl Checkup {
    /// Prepares it. No request is made.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid) for an identity that would travel unencrypted, or certificates that
    /// are none.
    pub fn new(address: &Address, queues: Vec<QueueName>, container: ContainerName) -> Result<Self> {
        Ok(Self { access: Access::open(address)?, queues, container })
    }

    /// Gets a token, where one is needed.
    ///
    /// # Errors
    /// [`Denied`](reprieve_core::ErrorKind::Denied) when no identity is to be had; a temporary one when it gave no token in
    /// time.
    pub async fn sign_in(&self) -> Result<SignedIn> {
        sign_in::sign_in(&self.access).await
    }

    /// Asks the queue service and the blob service anything at all. Whoever has not [signed in](Self::sign_in) asks for a
    /// token on the way.
    pub async fn reach(&self) -> [Result<Reached>; 2] {
        reach::reach(&self.access, self.queues.first(), &self.container).await
    }

    /// Looks at every queue and its poison queue.
    pub async fn look(&self) -> Vec<QueueLook> {
        queue_look::look(&self.access, &self.queues).await
    }

    /// Does with a queue what a worker and a producer do: with a scratch queue, or, when that may not be made, with the first
    /// queue, as far as nobody notices.
    pub async fn try_queue(&self) -> Result<QueueTrial> {
        queue_trial::run(&self.access, self.queues.first()).await
    }

    /// Does with a blob what a worker does: in the container, or in one of its own when that is missing.
    pub async fn try_blobs(&self) -> Result<BlobTrial> {
        blob_trial::run(&self.access, &self.container).await
    }
}

/// Whether this machine is an Azure VM for certain. Where this says no it may be one all the same.
#[must_use]
pub fn is_azure_vm() -> bool {
    super::identity::is_azure_vm()
}

/// A name that nobody else has, for a queue or a container.
fn scratch_name() -> String {
    format!("{SCRATCH}{}", Uuid::now_v7().simple())
}

#[cfg(test)]
mod tests;
