//! Opening a store in an account: its queues, its container, and two sets of clients for them.

use std::sync::Arc;

use futures_util::future::try_join_all;
use reprieve_core::ports::{Queue, Store};
use reprieve_core::{Error, ErrorKind, QueueName, Result, Shards};

use super::access::Access;
use super::address::Address;
use super::blob::Container;
use super::blobs::AzureBlobs;
use super::container_name::ContainerName;
use super::effort::Effort;
use super::overflow::Overflow;
use super::queue::AzureQueue;
use super::records::AzureRecords;
use super::roster::AzureRoster;

/// Which queues and container of an account, and what to do when they are missing.
#[derive(Debug, Clone)]
pub struct Options {
    queues: Vec<QueueName>,
    container: ContainerName,
    existing: bool,
}

impl Options {
    /// These queues as one, the container `reprieve`; what is missing is made.
    #[must_use]
    pub fn new(queues: Vec<QueueName>) -> Self {
        Self { queues, container: ContainerName::default(), existing: false }
    }

    /// Another container. Workers and producers of the same queue must name the same one.
    #[must_use]
    pub fn container(mut self, container: ContainerName) -> Self {
        self.container = container;
        self
    }

    /// Nothing is made: queues and container must be there.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }
}

/// An open store in an account.
#[derive(Debug, Clone)]
pub struct AzureStore {
    calm: Store,
    drain: Store,
}

/// One set of clients.
struct Clients {
    queues: Vec<AzureQueue>,
    container: Container,
}

impl AzureStore {
    /// Gets a token where one is needed, and looks that queues and container are there; makes them where they are not.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when no queue is given, or when a queue or the container is not there and must be, or
    /// may not be made by this identity: with the command that makes it. [`Denied`](ErrorKind::Denied) names the role
    /// that is missing. All else is the service's own.
    ///
    /// # Cancel safety
    /// Dropping it may leave a queue or the container made, which harms nobody.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open(address: &Address, options: Options) -> Result<Self> {
        if options.queues.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "open the store", "no queue is named"));
        }
        let access = Access::open(address)?;
        access.ready().await?;
        let calm = Clients::new(&access, &options, Effort::CALM)?;
        calm.prepare(options.existing).await?;
        let drain = Clients::new(&access, &options, Effort::DRAIN)?;
        Ok(Self { calm: calm.into_store()?, drain: drain.into_store()? })
    }

    /// Deletes the queues, their poison queues and the container, with everything that anybody has put there: the end of a
    /// demonstration or a test.
    ///
    /// # Errors
    /// The service's own. What was deleted by then is gone.
    pub async fn destroy(address: &Address, options: &Options) -> Result<()> {
        let access = Access::open(address)?;
        access.ready().await?;
        let clients = Clients::new(&access, options, Effort::CALM)?;
        for queue in &clients.queues {
            queue.destroy().await?;
        }
        clients.container.destroy().await
    }

    /// The store, with patience.
    #[must_use]
    pub fn store(&self) -> Store {
        self.calm.clone()
    }

    /// The same store over the same connections, for a drain: each call gives up after a second, or two tries.
    #[must_use]
    pub fn drain_store(&self) -> Store {
        self.drain.clone()
    }
}

impl Clients {
    fn new(access: &Access, options: &Options, effort: Effort) -> Result<Self> {
        let container = Container::new(access, options.container.clone(), effort)?;
        let queue = |name| AzureQueue::new(access, name, Overflow::new(container.clone()), effort);
        Ok(Self { queues: options.queues.iter().map(queue).collect::<Result<_>>()?, container })
    }

    async fn prepare(&self, existing: bool) -> Result<()> {
        let queues = self.queues.iter().map(|queue| async move {
            if existing { Ok(()) } else { made(queue.create().await) }?;
            queue.look().await
        });
        let container = async {
            if existing { Ok(()) } else { made(self.container.create().await) }?;
            self.container.look().await
        };
        let (queues, container) = tokio::join!(try_join_all(queues), container);
        queues.and(container).map_err(|error| match error.kind() {
            // What is not there does not come by waiting.
            ErrorKind::NotFound if existing => Error::new(
                ErrorKind::Invalid,
                "open the store",
                format!(
                    "{} is not there yet; check the names, or make it by enqueueing a job",
                    error.message().split(':').next().unwrap_or("the queue or the container")
                ),
            ),
            ErrorKind::NotFound => {
                Error::new(ErrorKind::Invalid, "open the store", error.message().to_owned())
                    .with_source(error)
            }
            _ => error,
        })
    }

    fn into_store(self) -> Result<Store> {
        let Self { queues, container } = self;
        let named = |queue: AzureQueue| (queue.name().clone(), Arc::new(queue) as Arc<dyn Queue>);
        let mut queues: Vec<_> = queues.into_iter().map(named).collect();
        let queue = if queues.len() == 1 { queues.remove(0).1 } else { Arc::new(Shards::new(queues)?) as _ };
        Ok(Store {
            queue,
            records: Arc::new(AzureRecords::new(container.clone())),
            blobs: Arc::new(AzureBlobs::new(container.clone())),
            roster: Arc::new(AzureRoster::new(container)),
        })
    }
}

/// Who may not make it may still use it, if it is there: that is looked at next.
fn made(created: Result<()>) -> Result<()> {
    created.or_else(|error| if error.kind() == ErrorKind::Denied { Ok(()) } else { Err(error) })
}
