//! On the storage double, which behaves as the service does where Azurite differs.

use std::sync::mpsc;
use std::thread::JoinHandle;

use reprieve_azure::storage::Address;
use reprieve_core::conformance::Fixture;
use reprieve_sim::storage::{Config, StorageServer};
use tokio::sync::oneshot;

pub(super) async fn fixture() -> Fixture {
    fixture_of(Config::default()).await
}

pub(super) async fn fixture_of(config: Config) -> Fixture {
    let double = Double::start(config);
    let address = Address::parse(&double.connection_string).expect("a connection string");
    super::fixture(address, double).await
}

/// A double on its own thread, so that it answers while the test's thread blocks.
struct Double {
    connection_string: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Double {
    fn start(config: Config) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let server = StorageServer::start(config).await.expect("free ports");
                sender.send(server.connection_string()).expect("a test that waits for it");
                // The test has ended, or its thread has panicked.
                let _over = stopped.await;
                server.stop().await;
            });
        });
        let connection_string = receiver.recv().expect("a double that runs");
        Self { connection_string, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the storage double panicked");
        }
    }
}

reprieve_core::queue_conformance!(fixture);
reprieve_core::records_conformance!(fixture);
reprieve_core::damage_conformance!(fixture);
reprieve_core::blobs_conformance!(fixture);
reprieve_core::roster_conformance!(fixture);
reprieve_core::protocol_conformance!(fixture);
reprieve_core::ledger_conformance!(fixture);
