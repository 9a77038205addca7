//! Subscribes to the maintenance notifications of a cache, for as long as it is held.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use redis::RedisError;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use reprieve_core::dependency::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::ANSWER_WITHIN;
use crate::endpoint::Endpoint;
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
/// again. Dropping it ends it. From [`Redis::watch`](crate::Redis::watch).
#[derive(Debug)]
pub struct MaintenanceWatch {
    heard: tokio::sync::Mutex<mpsc::UnboundedReceiver<Heard>>,
    /// Since when it has been without a subscription; `None` while it has one.
    deaf_since: Arc<Mutex<Option<Instant>>>,
    _task: AbortOnDropHandle<()>,
}

/// What a watch hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It subscribed, after it had not been for this time.
    Subscribed(Duration),
    /// A message of the channel, for [`Notification::parse`].
    Message(String),
    /// The subscription was lost, for this reason.
    Lost(String),
    /// It could not subscribe, for this reason. Said once for each.
    Failed(String),
}

/// Why a subscription ended.
enum End {
    Lost(String),
    /// There is a newer token than that with which it signed in.
    Expires,
}

impl MaintenanceWatch {
    /// Begins to watch, in a task of the current runtime.
    pub(crate) fn spawn(endpoint: Endpoint) -> Self {
        let (say, heard) = mpsc::unbounded_channel();
        let deaf_since = Arc::new(Mutex::new(Some(Instant::now())));
        let task = tokio::spawn(watch(endpoint, say, Arc::clone(&deaf_since)));
        Self { heard: tokio::sync::Mutex::new(heard), deaf_since, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns what the next notification, or the loss of the subscription, means to the cache's breaker.
    ///
    /// # Cancel safety
    /// Loses nothing when its future is dropped.
    pub async fn next(&self) -> Signal {
        loop {
            match self.hear().await {
                Heard::Message(text) => {
                    let notification = Notification::parse(&text);
                    if let Some(signal) = notification.signal() {
                        return signal;
                    }
                    tracing::debug!(?notification, "the cache announced something of an unknown type");
                }
                Heard::Lost(_) => return Signal::Disconnected,
                Heard::Subscribed(_) | Heard::Failed(_) => {}
            }
        }
    }

    /// Returns what it hears next.
    ///
    /// # Cancel safety
    /// Loses nothing when its future is dropped.
    pub async fn hear(&self) -> Heard {
        match self.heard.lock().await.recv().await {
            Some(heard) => heard,
            // The task ends with its runtime.
            None => std::future::pending().await,
        }
    }

    /// For how long it has not been subscribed; `None` while it is.
    #[must_use]
    pub fn deaf_for(&self) -> Option<Duration> {
        let since = *self.deaf_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map(|since| since.elapsed())
    }
}

async fn watch(
    endpoint: Endpoint,
    say: mpsc::UnboundedSender<Heard>,
    deaf_since: Arc<Mutex<Option<Instant>>>,
) {
    let set_deaf =
        |since| std::mem::replace(&mut *deaf_since.lock().unwrap_or_else(PoisonError::into_inner), since);
    let (mut pause, mut told) = (PAUSE_MIN, None::<String>);
    loop {
        match subscribe(&endpoint).await {
            Ok((subscription, expires)) => {
                tracing::info!(channel = CHANNEL, "listening for the cache's maintenance notifications");
                let was_deaf = set_deaf(None).map(|since| since.elapsed()).unwrap_or_default();
                // It fails only when nobody listens any more.
                let _said = say.send(Heard::Subscribed(was_deaf));
                (pause, told) = (PAUSE_MIN, None);
                let end = listen(subscription, &say, || endpoint.has_newer(expires)).await;
                set_deaf(Some(Instant::now()));
                let End::Lost(why) = end else { continue };
                tracing::info!(why, "lost the subscription to the cache's notifications; subscribing again");
                let _said = say.send(Heard::Lost(why));
            }
            Err(why) if told.as_ref().is_some_and(|told| is_same(told, &why)) => {}
            Err(why) => {
                tracing::warn!(why, "failed to subscribe to the cache's notifications; trying again");
                told = Some(why.clone());
                let _said = say.send(Heard::Failed(why));
            }
        }
        sleep(pause.mul_f64(rand::random_range(1.0..1.5))).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Whether two reasons are the same but for their numbers: that of a certificate that has ended says for how long.
fn is_same(one: &str, other: &str) -> bool {
    let text = |of: &str| of.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    text(one) == text(other)
}

async fn subscribe(endpoint: &Endpoint) -> Result<(PubSub, Option<SystemTime>), String> {
    endpoint.sign_in().await?;
    let subscribing = async {
        let (mut connection, expires) = endpoint.subscriber().await?;
        connection.subscribe(CHANNEL).await?;
        Ok::<_, RedisError>((connection, expires))
    };
    match timeout(2 * ANSWER_WITHIN, subscribing).await {
        Ok(subscribed) => subscribed.map_err(|error| describe(&error)),
        Err(_) => Err(format!("no answer within {:?}", 2 * ANSWER_WITHIN)),
    }
}

/// Passes notifications on until the subscription is lost, or should be made anew. Returns why.
async fn listen(subscription: PubSub, say: &mpsc::UnboundedSender<Heard>, expires: impl Fn() -> bool) -> End {
    let (mut sink, mut messages): (PubSubSink, PubSubStream) = subscription.split();
    let mut ping_at = Instant::now() + PING_EVERY;
    loop {
        let message = tokio::select! {
            biased;
            // Also on a channel on which there is always another message.
            () = sleep_until(ping_at) => {
                match timeout(ANSWER_WITHIN, sink.ping::<redis::Value>()).await {
                    Ok(Ok(_)) if expires() => return End::Expires,
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return End::Lost(describe(&error)),
                    Err(_) => return End::Lost(format!("no answer within {ANSWER_WITHIN:?}")),
                }
                ping_at = Instant::now() + PING_EVERY;
                continue;
            }
            message = messages.next() => message,
        };
        let Some(message) = message else { return End::Lost("the connection ended".to_owned()) };
        // Bytes that are no text announce nothing.
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let _said = say.send(Heard::Message(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_with_other_numbers_is_the_same() {
        assert!(is_same("ended 10 s ago (at 77)", "ended 115 s ago (at 2)"));
        assert!(!is_same("connection refused", "the connection ended"));
    }
}
