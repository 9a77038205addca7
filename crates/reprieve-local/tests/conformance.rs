//! The promises of every port, on two handles of one file.

use reprieve_core::WorkerId;
use reprieve_core::conformance::Fixture;
use reprieve_core::ports::Store;
use reprieve_local::{LocalStore, Options, QueueName};

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = open(&directory).await;
    let another = open(&directory).await;
    Fixture::new(store, another).with_guard(directory)
}

async fn open(directory: &tempfile::TempDir) -> Store {
    let queue = QueueName::parse("conformance").expect("a queue name");
    let options = Options::new(queue).owned_by(WorkerId::unique());
    LocalStore::open(&directory.path().join("reprieve.db"), options).await.expect("opens").store()
}

reprieve_core::queue_conformance!(fixture);
reprieve_core::records_conformance!(fixture);
reprieve_core::damage_conformance!(fixture);
reprieve_core::blobs_conformance!(fixture);
reprieve_core::roster_conformance!(fixture);
reprieve_core::protocol_conformance!(fixture);
reprieve_core::ledger_conformance!(fixture);
