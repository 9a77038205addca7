//! Subscribes to the maintenance notifications of a cache, for as long as it is held.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{Client, RedisError};
use reprieve_core::dependency::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::ANSWER_WITHIN;
use crate::failure::describe;
use crate::notification::Notification;

/// The channel on which Azure Cache for Redis publishes its notifications.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-failover#azureredisevents-channel>
pub const CHANNEL: &str = "AzureRedisEvents";

/// How often a subscription is tried to be alive: a failover need not close its connection.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The first and the longest pause between two tries to subscribe. Each is up to half of it longer at random, so
/// that a fleet does not come back at once.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A subscription to [`CHANNEL`] on a connection of its own. It survives the failover that cuts it, and subscribes
/// again. Dropping it ends it.
#[derive(Debug)]
pub struct MaintenanceWatch {
    heard: tokio::sync::Mutex<mpsc::UnboundedReceiver<Heard>>,
    /// Since when it has been without a subscription; `None` while it has one.
    deaf_since: Arc<Mutex<Option<Instant>>>,
    _task: AbortOnDropHandle<()>,
}

/// What a watch hears.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Notification(Notification),
    /// The subscription was lost.
    Lost,
}

impl MaintenanceWatch {
    /// Begins to watch. The watch is a task of the current runtime.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn spawn(client: Client) -> Self {
        let (say, heard) = mpsc::unbounded_channel();
        let deaf_since = Arc::new(Mutex::new(Some(Instant::now())));
        let task = tokio::spawn(watch(client, say, Arc::clone(&deaf_since)));
        Self { heard: tokio::sync::Mutex::new(heard), deaf_since, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns what the next notification, or the loss of the subscription, means to the cache's breaker.
    ///
    /// # Cancel safety
    /// Loses nothing when its future is dropped.
    pub async fn next(&self) -> Signal {
        let mut heard = self.heard.lock().await;
        loop {
            match heard.recv().await {
                Some(Heard::Notification(notification)) => {
                    if let Some(signal) = notification.signal() {
                        return signal;
                    }
                    tracing::debug!(?notification, "the cache announced something of an unknown type");
                }
                Some(Heard::Lost) => return Signal::Disconnected,
                // The task ends with its runtime.
                None => std::future::pending().await,
            }
        }
    }

    /// For how long it has not been subscribed; `None` while it is.
    #[must_use]
    pub fn deaf_for(&self) -> Option<Duration> {
        let since = *self.deaf_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }
}

async fn watch(client: Client, say: mpsc::UnboundedSender<Heard>, deaf_since: Arc<Mutex<Option<Instant>>>) {
    let set_deaf = |since| *deaf_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    let mut pause = PAUSE_MIN;
    loop {
        match subscribe(&client).await {
            Ok(subscription) => {
                tracing::info!(channel = CHANNEL, "listening for the cache's maintenance notifications");
                set_deaf(None);
                pause = PAUSE_MIN;
                let why = listen(subscription, &say).await;
                set_deaf(Some(Instant::now()));
                tracing::info!(why, "lost the subscription to the cache's notifications; subscribing again");
                // It fails only when nobody listens any more.
                let _said = say.send(Heard::Lost);
            }
            Err(why) => {
                tracing::debug!(why, "failed to subscribe to the cache's notifications; trying again");
            }
        }
        sleep(pause.mul_f64(rand::random_range(1.0..1.5))).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn subscribe(client: &Client) -> Result<PubSub, String> {
    let subscribing = async {
        let mut connection = client.get_async_pubsub().await?;
        connection.subscribe(CHANNEL).await?;
        Ok::<_, RedisError>(connection)
    };
    match timeout(2 * ANSWER_WITHIN, subscribing).await {
        Ok(subscribed) => subscribed.map_err(|error| describe(&error)),
        Err(_) => Err(format!("no answer within {:?}", 2 * ANSWER_WITHIN)),
    }
}

/// Passes notifications on until the subscription is lost. Returns why it was.
async fn listen(subscription: PubSub, say: &mpsc::UnboundedSender<Heard>) -> String {
    let (mut sink, mut messages): (PubSubSink, PubSubStream) = subscription.split();
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            () = sleep(PING_EVERY) => match timeout(ANSWER_WITHIN, sink.ping::<redis::Value>()).await {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => return describe(&error),
                Err(_) => return format!("no answer within {ANSWER_WITHIN:?}"),
            },
        };
        let Some(message) = message else { return "the connection ended".to_owned() };
        // Bytes that are no text announce nothing.
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let _said = say.send(Heard::Notification(Notification::parse(&text)));
    }
}
