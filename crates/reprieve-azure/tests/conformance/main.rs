//! The promises of every port, on Azurite and on the storage double, on two handles of one account.

#![expect(clippy::print_stderr, reason = "a test prints why it is skipped")]

mod azurite;
mod directories;
mod double;

use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::QueueName;
use reprieve_core::conformance::Fixture;

/// Two handles of an own queue and container.
async fn fixture(address: Address, guard: impl Send + Sync + 'static) -> Fixture {
    let name = format!("t-{}", uuid::Uuid::now_v7().simple());
    let queue = QueueName::parse(&name).expect("a queue name");
    let options = Options::new(vec![queue]).container(ContainerName::parse(name).expect("a container name"));
    let open = async || AzureStore::open(&address, options.clone()).await.expect("opens").store();
    let (store, another) = (open().await, open().await);
    let own = Own { address, options };
    Fixture::new(store, another).with_guard((own, guard))
}

/// The resources that a test created in the account. It is removed at the end, because Azurite's
/// cost per call grows with what there is.
struct Own {
    address: Address,
    options: Options,
}

impl Drop for Own {
    fn drop(&mut self) {
        let (address, options) = (self.address.clone(), self.options.clone());
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(AzureStore::destroy(&address, &options)).map_err(std::io::Error::other)
        });
        match removal.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("could not remove what a test made: {error}"),
            Err(_) => eprintln!("removing what a test made panicked"),
        }
    }
}
