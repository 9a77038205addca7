//! A double and its clients.

use std::sync::Arc;

use azure_core::error::ErrorKind;
use azure_core::http::{ClientOptions, RequestContent, RetryOptions, Transport, Url, XmlFormat};
use azure_storage_blob::{BlobContainerClient, BlobServiceClient, BlobServiceClientOptions};
use azure_storage_queue::models::{QueueClientReceiveMessagesOptions, QueueClientSendMessageOptions};
use azure_storage_queue::models::{QueueMessage, ReceivedMessage, SentMessage};
use azure_storage_queue::{QueueClient, QueueClientOptions};
use reprieve_sim::storage::{Config, StorageServer};
use reqwest::{Method, RequestBuilder, Response};

/// The credential of a request.
pub(crate) const SAS: &str = "sv=2026-04-06&sig=any";

/// A double, its SDK clients, and a plain HTTP client.
#[derive(Debug)]
pub(crate) struct Double {
    pub(crate) server: StorageServer,
    pub(crate) http: reqwest::Client,
}

impl Double {
    pub(crate) async fn start() -> Self {
        let server = StorageServer::start(Config::default()).await.expect("two free ports");
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { server, http }
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            transport: Some(Transport::new(Arc::new(self.http.clone()))),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        }
    }

    pub(crate) fn queue_client(&self, name: &str) -> QueueClient {
        let url = format!("{}/{name}?{SAS}", self.server.queue_url());
        let options = QueueClientOptions { client_options: self.options(), ..Default::default() };
        QueueClient::new(Url::parse(&url).expect("a URL"), None, Some(options)).expect("a client")
    }

    /// Creates a queue.
    pub(crate) async fn queue(&self, name: &str) -> QueueClient {
        let queue = self.queue_client(name);
        queue.create(None).await.expect("a queue");
        queue
    }

    pub(crate) fn container_client(&self, name: &str) -> BlobContainerClient {
        let url = format!("{}?{SAS}", self.server.blob_url());
        let options = BlobServiceClientOptions { client_options: self.options(), ..Default::default() };
        let service =
            BlobServiceClient::new(Url::parse(&url).expect("a URL"), None, Some(options)).expect("a client");
        service.blob_container_client(name)
    }

    /// Creates a container.
    pub(crate) async fn container(&self, name: &str) -> BlobContainerClient {
        let container = self.container_client(name);
        container.create(None).await.expect("a container");
        container
    }

    /// A plain request to the queue service; `path` begins after the account.
    pub(crate) fn to_queue(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, signed(&self.server.queue_url(), path))
    }

    /// A plain request to the blob service; `path` begins after the account.
    pub(crate) fn to_blob(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, signed(&self.server.blob_url(), path))
    }
}

fn signed(base: &str, path: &str) -> String {
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{base}{path}{joint}{SAS}")
}

pub(crate) fn message(text: &str) -> RequestContent<QueueMessage, XmlFormat> {
    QueueMessage { message_text: Some(text.to_owned()) }.try_into().expect("XML")
}

pub(crate) async fn send(queue: &QueueClient, text: &str) -> SentMessage {
    send_with(queue, text, QueueClientSendMessageOptions::default()).await
}

pub(crate) async fn send_with(
    queue: &QueueClient,
    text: &str,
    options: QueueClientSendMessageOptions<'_>,
) -> SentMessage {
    let sent = queue.send_message(message(text), Some(options)).await.expect("it is sent");
    sent.into_model().expect("a list").items.expect("messages").remove(0)
}

pub(crate) async fn receive(queue: &QueueClient, limit: i32, seconds: i32) -> Vec<ReceivedMessage> {
    let options = QueueClientReceiveMessagesOptions {
        number_of_messages: Some(limit),
        visibility_timeout: Some(seconds),
        ..Default::default()
    };
    let received = queue.receive_messages(Some(options)).await.expect("a list");
    received.into_model().expect("a list").items.unwrap_or_default()
}

pub(crate) fn id_and_receipt(message: &ReceivedMessage) -> (&str, &str) {
    (message.message_id.as_deref().expect("an id"), message.pop_receipt.as_deref().expect("a receipt"))
}

pub(crate) fn texts(messages: &[ReceivedMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.message_text.as_deref().unwrap_or_default()).collect()
}

/// Returns the status and code of an SDK error.
#[track_caller]
pub(crate) fn refused<T>(result: azure_core::Result<T>) -> (u16, String) {
    let Err(error) = result else { panic!("it should be refused") };
    match error.kind() {
        ErrorKind::HttpResponse { status, error_code, .. } => {
            ((*status).into(), error_code.clone().unwrap_or_default())
        }
        other => panic!("no answer: {other:?}: {error}"),
    }
}

/// Returns the status and code of a plain answer.
pub(crate) fn status_and_code(answer: &Response) -> (u16, &str) {
    let code = answer.headers().get("x-ms-error-code").map_or("", |code| code.to_str().expect("text"));
    (answer.status().as_u16(), code)
}

pub(crate) fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).unwrap_or_else(|| panic!("no {name} in {answer:?}")).to_str().expect("text")
}
