//! The embedded store: one SQLite file.

use std::sync::Arc;

use futures_util::future::try_join_all;
use reprieve_core::ports::Store;
use reprieve_core::{Error, ErrorKind, QueueName, Result, Shards};
use reprieve_local::{Address, LocalStore, Options};

use super::Purpose;

const OPERATION: &str = "open the store";

/// A path that is missing or not writable is a wrong setting: trying again won't help.
pub(super) async fn open(address: &Address, queues: &[QueueName], purpose: Purpose) -> Result<Store> {
    if matches!(purpose, Purpose::Reading) {
        must_exist(address)?;
    }
    open_queues(address, queues, purpose).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::Denied => {
            Error::new(ErrorKind::Invalid, OPERATION, error.message().to_owned()).with_source(error)
        }
        _ => error,
    })
}

/// Opens one handle of the file for each queue; they share everything but the queue.
async fn open_queues(address: &Address, names: &[QueueName], purpose: Purpose) -> Result<Store> {
    let must_exist = matches!(purpose, Purpose::Reading);
    let owner = match purpose {
        Purpose::Working(worker, _) => Some(worker),
        Purpose::Enqueueing | Purpose::Reading => None,
    };
    let open = |queue: &QueueName| {
        let options = Options::new(queue.clone()).durability(address.durability);
        let options = Options { owner: owner.clone(), must_exist, ..options };
        LocalStore::open(&address.path, options)
    };
    let mut stores = try_join_all(names.iter().map(open)).await?.into_iter();
    match (stores.next().map(|first| first.store()), stores.len()) {
        (Some(first), 0) => Ok(first),
        (Some(first), _) => {
            let queues = [Arc::clone(&first.queue)].into_iter().chain(stores.map(|one| one.store().queue));
            let queue = Arc::new(Shards::new(names.iter().cloned().zip(queues).collect())?);
            Ok(Store { queue, ..first })
        }
        (None, _) => Err(Error::new(ErrorKind::Invalid, OPERATION, "no queue is named")),
    }
}

/// Fails when the store does not exist.
fn must_exist(address: &Address) -> Result<()> {
    let path = address.path.display();
    match address.path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            ErrorKind::Invalid,
            OPERATION,
            format!("there is no store at {path}; check --store, or create it by enqueueing a job"),
        )),
        Err(error) => {
            let message = format!("can't check whether {path} exists: {error}");
            Err(Error::new(ErrorKind::Invalid, OPERATION, message).with_source(error))
        }
    }
}
