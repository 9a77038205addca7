//! Opens a store in a storage account: its queues, its container, and two sets of clients for them.

use std::sync::Arc;

use futures_util::future::try_join_all;
use reprieve_core::ports::{Queue, Store};
use reprieve_core::{Error, ErrorKind, QueueName, Result, Shards};
use tokio::runtime::Handle;

use super::account::Address;
use super::blob::{AzureBlobs, AzureRecords, AzureRoster, Container, ContainerName};
use super::call::{Access, Effort};
use super::queue::{AzureQueue, Bodies};

/// The queues and the container of a store, and what is done with missing ones.
#[derive(Debug, Clone)]
pub struct Options {
    queues: Vec<QueueName>,
    container: ContainerName,
    purpose: Purpose,
    io: Option<Handle>,
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Everything,
    Enqueueing,
    Reading,
}

impl Options {
    /// Uses these queues as one, and the container `reprieve`. Creates what is missing.
    #[must_use]
    pub fn new(queues: Vec<QueueName>) -> Self {
        Self { queues, container: ContainerName::default(), purpose: Purpose::Everything, io: None }
    }

    /// Sets the container. Workers and producers of a queue must use the same one.
    #[must_use]
    pub fn container(mut self, container: ContainerName) -> Self {
        self.container = container;
        self
    }

    /// Sends the requests on this runtime. Default: that of the caller. It must outlive the store, and
    /// no job may block it.
    #[must_use]
    pub fn io(mut self, io: Option<Handle>) -> Self {
        self.io = io;
        self
    }

    /// Creates nothing: the queues and the container must exist.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.purpose = Purpose::Reading;
        self
    }

    /// Creates what is missing, and checks only what this identity may look at: the role Storage Queue
    /// Data Message Sender is enough to open the store and to enqueue jobs with short arguments.
    #[must_use]
    pub fn enqueueing(mut self) -> Self {
        self.purpose = Purpose::Enqueueing;
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
    /// Gets a token if one is needed, checks that the queues and the container exist, and creates
    /// missing ones.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when no queue is given, and when a queue or the container is
    /// missing and must exist. [`Denied`](ErrorKind::Denied) names the missing role, or the command
    /// that creates what is missing and this identity may not create; a new role takes minutes to
    /// arrive. Other errors are the service's.
    ///
    /// # Cancel safety
    /// If the future is dropped, queues or the container may already have been created, which is
    /// harmless.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open(address: &Address, options: Options) -> Result<Self> {
        if options.queues.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "open the store", "no queue is named"));
        }
        let access = Access::open_on(address, options.io.clone())?;
        access.ready().await?;
        let calm = Clients::new(&access, &options, Effort::CALM)?;
        calm.prepare(options.purpose).await?;
        let drain = Clients::new(&access, &options, Effort::DRAIN)?;
        Ok(Self { calm: calm.into_store()?, drain: drain.into_store()? })
    }

    /// Deletes the queues, their poison queues and the container with all their content, at the end
    /// of a demonstration or a test.
    ///
    /// # Errors
    /// The service's. What was deleted before the error stays deleted.
    pub async fn destroy(address: &Address, options: &Options) -> Result<()> {
        let access = Access::open(address)?;
        access.ready().await?;
        let clients = Clients::new(&access, options, Effort::CALM)?;
        for queue in &clients.queues {
            queue.destroy().await?;
        }
        clients.container.destroy().await
    }

    /// The store with the calm limits, for everything but a drain.
    #[must_use]
    pub fn store(&self) -> Store {
        self.calm.clone()
    }

    /// The same store over the same connections, for a drain: each call takes at most 1 s, and is
    /// repeated for at most 2 s.
    #[must_use]
    pub fn drain_store(&self) -> Store {
        self.drain.clone()
    }
}

impl Clients {
    fn new(access: &Access, options: &Options, effort: Effort) -> Result<Self> {
        let container = Container::new(access, options.container.clone(), effort)?;
        let queue = |name| AzureQueue::new(access, name, Bodies::new(container.clone()), effort);
        Ok(Self { queues: options.queues.iter().map(queue).collect::<Result<_>>()?, container })
    }

    async fn prepare(&self, purpose: Purpose) -> Result<()> {
        let queues = self.queues.iter().map(|queue| prepared(purpose, || queue.create(), || queue.look()));
        let container = prepared(purpose, || self.container.create(), || self.container.look());
        let (queues, container) = tokio::join!(try_join_all(queues), container);
        queues.and(container).map_err(|error| match error.kind() {
            // Waiting does not create a missing queue or container.
            ErrorKind::NotFound if purpose == Purpose::Reading => Error::new(
                ErrorKind::Invalid,
                "open the store",
                format!(
                    "{} does not exist; check the names, or create it by enqueueing a job",
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

/// Creates a queue or a container, and checks that it exists.
///
/// # Errors
/// [`Denied`](ErrorKind::Denied) when it does not exist and this identity may not create it: its role may
/// not have arrived.
async fn prepared<C, L>(purpose: Purpose, create: impl Fn() -> C, look: impl Fn() -> L) -> Result<()>
where
    C: Future<Output = Result<()>>,
    L: Future<Output = Result<()>>,
{
    if purpose == Purpose::Reading {
        return look().await;
    }
    let may_create = is_allowed(create().await)?;
    match looked(look().await, purpose) {
        Err(error) if error.kind() == ErrorKind::NotFound && !may_create => {
            // The role may have arrived between the two calls.
            if is_allowed(create().await)? {
                return looked(look().await, purpose);
            }
            let message = format!("{}; this identity may not create it", error.message());
            Err(Error::new(ErrorKind::Denied, "open the store", message).with_source(error))
        }
        looked => looked,
    }
}

/// An identity that may not look at a queue or a container may still send to it.
fn looked(looked: Result<()>, purpose: Purpose) -> Result<()> {
    if purpose == Purpose::Enqueueing { is_allowed(looked).map(drop) } else { looked }
}

/// Whether this identity was allowed to do this.
fn is_allowed(tried: Result<()>) -> Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Denied => Ok(false),
        Err(error) => Err(error),
    }
}
