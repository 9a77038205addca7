//! A store on a storage double, and a plain HTTP client.

use std::time::Duration;

use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::ports::{Delivery, NewMessage, Store};
use reprieve_core::{Fence, JobId, QueueName, Result, Writer};
use reprieve_sim::storage::{Action, Config, Operation, Rule, StorageServer};
use reqwest::Method;

pub(crate) const QUEUE: &str = "work";
pub(crate) const CONTAINER: &str = "reprieve";

/// A lease that is longer than any test.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The credential of a request.
const SAS: &str = "sv=2026-04-06&sig=any";

/// A runtime of one thread, so that a test can set the clock of all that it runs there.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A double on a thread of its own: it keeps the right clock when the test's thread has a wrong one.
pub(crate) fn double_with_the_right_clock() -> StorageServer {
    let (send, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            send.send(StorageServer::start(Config::default()).await.expect("two free ports"))
                .expect("a test");
            std::future::pending::<()>().await;
        });
    });
    started.recv().expect("a double")
}

/// A double with a queue and a container.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) double: StorageServer,
    pub(crate) store: Store,
    /// The same store as a drain uses it.
    pub(crate) drain: Store,
    http: reqwest::Client,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::open_on(Config::default()).await
    }

    pub(crate) async fn open_on(config: Config) -> Self {
        let double = StorageServer::start(config).await.expect("two free ports");
        let opened = open(&double).await.expect("a store");
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { store: opened.store(), drain: opened.drain_store(), double, http }
    }

    /// Sets the reaction to the next `times` requests for `operation`, and counts requests from now
    /// on.
    pub(crate) fn next(&self, operation: Operation, times: u64, action: Action) {
        self.double.add_fault(Rule::new(action).on(operation).times(times)).expect("a fault");
        self.double.reset_counts();
    }

    /// The same only for requests about blobs with names that begin with `prefix`.
    pub(crate) fn next_at(&self, prefix: &str, operation: Operation, times: u64, action: Action) {
        let rule = Rule::new(action).on(operation).times(times);
        let rule = Rule { prefix: format!("{CONTAINER}/{prefix}"), ..rule };
        self.double.add_fault(rule).expect("a fault");
        self.double.reset_counts();
    }

    /// Returns the number of requests for `operation` since the last fault was added.
    pub(crate) fn requests(&self, operation: Operation) -> u64 {
        self.double.counts().requests(operation)
    }

    pub(crate) async fn send(&self, body: &[u8]) {
        let message = NewMessage { body: body.to_vec(), delay: Duration::ZERO };
        self.store.queue.send(vec![message]).await.expect("a message that is sent");
    }

    /// Receives the only message.
    pub(crate) async fn receive(&self) -> Delivery {
        let mut received = self.store.queue.receive(32, LEASE).await.expect("a receive");
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// Puts a message with this text, as another program would, with this time to live in seconds.
    pub(crate) async fn put(&self, text: &str, seconds: i64) {
        self.put_into(QUEUE, text, seconds).await;
    }

    /// The same into another queue.
    pub(crate) async fn put_into(&self, queue: &str, text: &str, seconds: i64) {
        let url = format!("{}/{queue}/messages?messagettl={seconds}&{SAS}", self.double.queue_url());
        let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
        let put = self.http.post(url).body(body).send().await.expect("an answer");
        assert!(put.status().is_success(), "{}", put.text().await.expect("its text"));
    }

    /// Deletes all messages of a queue.
    pub(crate) async fn clear(&self, queue: &str) {
        let url = format!("{}/{queue}/messages?{SAS}", self.double.queue_url());
        let cleared = self.http.delete(url).send().await.expect("an answer");
        assert!(cleared.status().is_success());
    }

    /// Peeks at a queue, and returns the XML.
    pub(crate) async fn peek(&self, queue: &str) -> String {
        let url =
            format!("{}/{queue}/messages?peekonly=true&numofmessages=32&{SAS}", self.double.queue_url());
        self.get(url).await
    }

    /// Returns the number of blobs with names that begin so, including Reprieve's own.
    pub(crate) async fn blobs(&self, prefix: &str) -> usize {
        let url = format!(
            "{}/{CONTAINER}?restype=container&comp=list&prefix={prefix}&{SAS}",
            self.double.blob_url()
        );
        self.get(url).await.matches("<Name>").count()
    }

    /// Removes all blobs with names that begin so, as by mistake.
    pub(crate) async fn lose(&self, prefix: &str) {
        for url in self.urls(prefix).await {
            let deleted = self.http.request(Method::DELETE, url).send().await.expect("an answer");
            assert!(deleted.status().is_success());
        }
    }

    /// Replaces all blobs with names that begin so, as another program could.
    pub(crate) async fn overwrite(&self, prefix: &str, bytes: Vec<u8>) {
        for url in self.urls(prefix).await {
            let put = self.http.put(url).header("x-ms-blob-type", "BlockBlob").body(bytes.clone());
            let written = put.send().await.expect("an answer");
            assert!(written.status().is_success(), "{}", written.text().await.expect("its text"));
        }
    }

    /// The URLs of all blobs with names that begin so.
    async fn urls(&self, prefix: &str) -> Vec<String> {
        let url = format!(
            "{}/{CONTAINER}?restype=container&comp=list&prefix={prefix}&{SAS}",
            self.double.blob_url()
        );
        let listed = self.get(url).await;
        let names = listed.split("<Name>").skip(1).filter_map(|rest| rest.split("</Name>").next());
        names.map(|name| format!("{}/{CONTAINER}/{name}?{SAS}", self.double.blob_url())).collect()
    }

    async fn get(&self, url: String) -> String {
        let answer = self.http.get(url).send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("its text"));
        assert!(status.is_success(), "{text}");
        text
    }
}

/// Opens the store on a double.
pub(crate) async fn open(double: &StorageServer) -> Result<AzureStore> {
    let address = Address::parse(&double.connection_string())?;
    let options = Options::new(vec![QueueName::parse(QUEUE)?]).container(ContainerName::parse(CONTAINER)?);
    AzureStore::open(&address, options).await
}

/// Returns the owner of a job at its `delivery`.
pub(crate) fn owner(job: &JobId, delivery: u32) -> Writer {
    Writer { job: job.clone(), fence: Fence::new(0, delivery) }
}
