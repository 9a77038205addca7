//! A test's own queues and container in a storage account; they are removed with it.

use std::process::Command;
use std::time::Duration;

use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::QueueName;
use reprieve_core::ports::Store;
use tokio::time::timeout;

use crate::azurite::unique;

/// The time limit of the removal. It tidies up for later tests, and fails where a test has left
/// faults.
const REMOVAL: Duration = Duration::from_secs(5);

/// A test's queues and container.
#[derive(Debug)]
pub(crate) struct Account {
    connection_string: String,
    address: Address,
    queues: Vec<QueueName>,
    container: ContainerName,
}

impl Account {
    /// Generates names for this number of queues and a container. Creates nothing.
    pub(crate) fn new(connection_string: &str, queues: usize) -> Self {
        let queue = |_| QueueName::parse(unique("t")).expect("a queue's name");
        Self {
            connection_string: connection_string.to_owned(),
            address: Address::parse(connection_string).expect("a connection string"),
            queues: (0..queues).map(queue).collect(),
            container: ContainerName::parse(unique("t")).expect("a container's name"),
        }
    }

    pub(crate) async fn open(&self) -> Store {
        AzureStore::open(&self.address, self.options()).await.expect("a store").store()
    }

    pub(crate) fn queue(&self) -> &str {
        self.queues.first().map_or("", QueueName::as_str)
    }

    pub(crate) fn container(&self) -> &str {
        self.container.as_str()
    }

    /// Points a worker's command at the account.
    pub(crate) fn point(&self, command: &mut Command) {
        let queues: Vec<_> = self.queues.iter().map(QueueName::as_str).collect();
        command.env("REPRIEVE_STORE", &self.connection_string).args([
            "--queue",
            &queues.join(","),
            "--container",
            self.container.as_str(),
        ]);
    }

    fn options(&self) -> Options {
        Options::new(self.queues.clone()).container(self.container.clone())
    }
}

impl Drop for Account {
    #[expect(clippy::print_stderr, reason = "what is left over costs the tests that come after")]
    fn drop(&mut self) {
        let (address, options) = (self.address.clone(), self.options());
        let removal = std::thread::spawn(move || -> Result<(), String> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(async {
                let removed = timeout(REMOVAL, AzureStore::destroy(&address, &options)).await;
                removed.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())
            })
        });
        match removal.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("could not remove what a test made: {error}"),
            Err(_) => eprintln!("removing what a test made panicked"),
        }
    }
}
