//! The messages of one queue, ordered so that no operation has to search.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::receipt::Receipt;
use crate::storage::moment::Moment;

/// All messages of a queue. Every operation costs O(log n) for each message it returns, at any
/// depth.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    by_id: HashMap<Uuid, Message>,
    /// When each becomes, or became, visible. The service promises no order; here messages are
    /// first in, first out, by the time at which they became visible last, as in Azurite.
    by_visibility: BTreeMap<Place, Uuid>,
    /// The expiry times of messages that expire.
    by_expiry: BTreeMap<Place, Uuid>,
    next: u64,
}

/// A snapshot of a message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: Uuid,
    pub(crate) text: Arc<str>,
    pub(crate) inserted: Moment,
    /// `None` for never.
    pub(crate) expires: Option<Moment>,
    pub(crate) visible: Moment,
    pub(crate) dequeue_count: u64,
    /// The only valid receipt. There is one from the beginning: the sender may delete the message.
    pub(crate) receipt: Receipt,
    /// Orders messages with the same time.
    number: u64,
}

type Place = (Instant, u64);

/// The receipt does not own a message: another client received the message, it was settled, or it
/// expired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotOwned;

impl Messages {
    pub(crate) fn put(
        &mut self,
        text: &str,
        hidden_for: Duration,
        lives_for: Option<Duration>,
        now: Moment,
    ) -> Message {
        self.next += 1;
        let message = Message {
            id: uuid::Builder::from_random_bytes(rand::random()).into_uuid(),
            text: text.into(),
            inserted: now,
            expires: lives_for.map(|lives_for| now.after(lives_for)),
            visible: now.after(hidden_for),
            dequeue_count: 0,
            receipt: Receipt::new(),
            number: self.next,
        };
        self.by_visibility.insert(message.place(), message.id);
        if let Some(expires) = message.expires {
            self.by_expiry.insert((expires.at, message.number), message.id);
        }
        self.by_id.insert(message.id, message.clone());
        message
    }

    /// Hides up to `limit` visible messages and returns them with new receipts.
    pub(crate) fn receive(&mut self, limit: usize, hide_for: Duration, now: Moment) -> Vec<Message> {
        self.expire(now);
        let mut received = Vec::new();
        let visible = now.after(hide_for);
        while received.len() < limit
            && let Some(first) = self.by_visibility.first_entry()
            && first.key().0 <= now.at
        {
            let id = first.remove();
            let Some(message) = self.by_id.get_mut(&id) else { continue };
            message.visible = visible;
            message.dequeue_count += 1;
            message.receipt = Receipt::new();
            received.push(message.clone());
        }
        // Inserted only now, so that a message that is hidden for no time is not received twice in
        // one call.
        self.by_visibility.extend(received.iter().map(|message| (message.place(), message.id)));
        received
    }

    /// Returns up to `limit` visible messages.
    pub(crate) fn peek(&mut self, limit: usize, now: Moment) -> Vec<Message> {
        self.expire(now);
        let visible = self.by_visibility.iter().take_while(|((at, _), _)| *at <= now.at);
        visible.filter_map(|(_, id)| self.by_id.get(id)).take(limit).cloned().collect()
    }

    /// Hides a message from now on, with a new text if given. The old receipt becomes invalid.
    pub(crate) fn update(
        &mut self,
        id: Uuid,
        receipt: Receipt,
        text: Option<&str>,
        hide_for: Duration,
        now: Moment,
    ) -> Result<Message, NotOwned> {
        self.expire(now);
        let message = self.by_id.get_mut(&id).filter(|message| message.receipt == receipt).ok_or(NotOwned)?;
        self.by_visibility.remove(&message.place());
        message.visible = now.after(hide_for);
        message.receipt = Receipt::new();
        if let Some(text) = text {
            message.text = text.into();
        }
        self.by_visibility.insert(message.place(), id);
        Ok(message.clone())
    }

    pub(crate) fn delete(&mut self, id: Uuid, receipt: Receipt, now: Moment) -> Result<(), NotOwned> {
        self.expire(now);
        if self.by_id.get(&id).is_none_or(|message| message.receipt != receipt) {
            return Err(NotOwned);
        }
        self.remove(id);
        Ok(())
    }

    /// Returns the number of messages, hidden ones included.
    pub(crate) fn count(&mut self, now: Moment) -> usize {
        self.expire(now);
        self.by_id.len()
    }

    fn expire(&mut self, now: Moment) {
        while let Some(first) = self.by_expiry.first_entry()
            && first.key().0 <= now.at
        {
            let id = first.remove();
            self.remove(id);
        }
    }

    fn remove(&mut self, id: Uuid) {
        if let Some(message) = self.by_id.remove(&id) {
            self.by_visibility.remove(&message.place());
            if let Some(expires) = message.expires {
                self.by_expiry.remove(&(expires.at, message.number));
            }
        }
    }
}

impl Message {
    const fn place(&self) -> Place {
        (self.visible.at, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const MINUTE: Duration = Duration::from_secs(60);
    const WEEK: Option<Duration> = Some(Duration::from_secs(604_800));

    fn texts(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|message| &*message.text).collect()
    }

    fn three() -> (Messages, Moment) {
        let (mut messages, now) = (Messages::default(), Moment::now());
        for text in ["a", "b", "c"] {
            messages.put(text, NOW, WEEK, now);
        }
        (messages, now)
    }

    #[test]
    fn first_in_is_first_out_and_hidden_until_its_time() {
        let (mut messages, now) = three();
        assert_eq!(texts(&messages.receive(2, MINUTE, now)), ["a", "b"]);
        assert_eq!(texts(&messages.receive(32, MINUTE * 2, now)), ["c"]);
        assert!(messages.receive(32, MINUTE, now).is_empty());
        assert_eq!(messages.count(now), 3);
        let later = now.after(MINUTE);
        let again = messages.receive(32, MINUTE, later);
        assert_eq!(texts(&again), ["a", "b"]);
        assert_eq!(again[0].dequeue_count, 2);
        assert_eq!(texts(&messages.receive(32, MINUTE, now.after(MINUTE * 2))), ["a", "b", "c"]);
    }

    #[test]
    fn every_receipt_is_its_own_and_kills_the_one_before() {
        let (mut messages, now) = three();
        let [a, b] = &messages.receive(2, MINUTE, now)[..] else { panic!("two") };
        assert_ne!(a.receipt, b.receipt);
        let renewed = messages.update(a.id, a.receipt, None, MINUTE, now).unwrap();
        assert_eq!((&*renewed.text, renewed.dequeue_count), ("a", 1));
        assert_eq!(messages.update(a.id, a.receipt, None, MINUTE, now).unwrap_err(), NotOwned);
        assert_eq!(messages.delete(a.id, a.receipt, now), Err(NotOwned));
        assert_eq!(messages.delete(a.id, b.receipt, now), Err(NotOwned));
        assert_eq!(messages.delete(a.id, renewed.receipt, now), Ok(()));
        assert_eq!(messages.delete(a.id, renewed.receipt, now), Err(NotOwned));
    }

    #[test]
    fn a_receipt_outlives_its_visibility_until_another_receive() {
        let (mut messages, now) = three();
        let mine = messages.receive(1, MINUTE, now).remove(0);
        let late = now.after(MINUTE * 2);
        let mine = messages.update(mine.id, mine.receipt, None, NOW, late).unwrap();
        let other = messages.receive(32, MINUTE, late).pop().unwrap();
        assert_eq!(other.id, mine.id);
        assert_eq!(messages.update(mine.id, mine.receipt, None, MINUTE, late).unwrap_err(), NotOwned);
    }

    #[test]
    fn a_peek_changes_nothing_and_an_update_may_change_the_text() {
        let (mut messages, now) = three();
        let a = messages.receive(1, MINUTE, now).remove(0);
        assert_eq!(texts(&messages.peek(32, now)), ["b", "c"]);
        assert_eq!(messages.peek(1, now)[0].dequeue_count, 0);
        messages.update(a.id, a.receipt, Some("d"), NOW, now.after(MINUTE)).unwrap();
        assert_eq!(texts(&messages.peek(32, now.after(MINUTE))), ["b", "c", "d"]);
    }

    #[test]
    fn an_expired_message_is_gone_even_while_it_is_leased() {
        let (mut messages, now) = (Messages::default(), Moment::now());
        let forever = messages.put("forever", NOW, None, now);
        messages.put("short", NOW, Some(MINUTE), now);
        let [_, short] = &messages.receive(2, MINUTE * 5, now)[..] else { panic!("two") };
        let late = now.after(MINUTE);
        assert_eq!(messages.update(short.id, short.receipt, None, MINUTE, late).unwrap_err(), NotOwned);
        assert_eq!(messages.count(now.after(MINUTE * 1_000_000)), 1);
        assert!(forever.expires.is_none());
        assert_eq!((messages.by_visibility.len(), messages.by_expiry.len()), (1, 0));
    }

    #[test]
    fn who_sent_a_message_may_take_it_back() {
        let (mut messages, now) = (Messages::default(), Moment::now());
        let sent = messages.put("a", MINUTE, WEEK, now);
        assert!(messages.peek(1, now).is_empty());
        assert_eq!(messages.delete(sent.id, sent.receipt, now), Ok(()));
        assert_eq!(messages.count(now), 0);
    }
}
