//! Messages of other programs that expire, and those that replace them.

use std::time::Duration;

use reprieve_core::ErrorKind;
use reprieve_core::ports::Delivery;
use reprieve_sim::storage::{Action, Operation};
use tokio::time::Instant;

use crate::support::{LEASE, QUEUE, Shop};

/// Puts a message that expires in a day, and receives it.
async fn expiring(shop: &Shop) -> Delivery {
    shop.put("{}", 86_400).await;
    let delivery = shop.receive().await;
    let left = delivery.expires_unix_ms.expect("it expires") - reprieve_core::clock::unix_millis();
    assert!((86_390_000..=86_401_000).contains(&left), "{left} ms");
    delivery
}

impl Shop {
    /// Waits until this many messages are left, and nothing changes that: the old one is deleted after the
    /// answer.
    async fn left(&self, count: u64) {
        let limit = Instant::now() + Duration::from_secs(10);
        let mut as_wanted = 0;
        while as_wanted < 10 {
            let total = self.store.queue.depth().await.unwrap().total;
            as_wanted = if total == count { as_wanted + 1 } else { 0 };
            assert!(Instant::now() < limit, "{total} messages instead of {count}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_message_that_expires_is_replaced_by_one_that_does_not() {
    let shop = Shop::open().await;
    let old = expiring(&shop).await;
    // With a long body, which is a blob.
    for body in [b"[]".to_vec(), vec![b'1'; 60_000]] {
        let new = shop.store.queue.replace(&old.receipt, &body, LEASE).await.unwrap();
        assert_eq!((&new.body, new.dequeue_count, new.expires_unix_ms), (&body, 0, None));
        assert!(shop.store.queue.receive(32, LEASE).await.unwrap().is_empty(), "it is leased");
        let held = shop.store.queue.renew(&new.receipt, LEASE).await.unwrap();
        shop.store.queue.release(&held, &reprieve_core::ports::Release::default()).await.unwrap();
        let again = shop.receive().await;
        assert_eq!((again.body, again.dequeue_count, again.expires_unix_ms), (body, 1, None));
        shop.store.queue.complete(&again.receipt).await.unwrap();
    }
    shop.left(0).await;
    assert_eq!(shop.blobs(".reprieve/messages/").await, 0);
    let error = shop.store.queue.renew(&old.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
}

#[tokio::test]
async fn no_message_is_lost_when_a_replacement_fails_half_way() {
    let shop = Shop::open().await;
    for (operation, action, replaced, left) in [
        (Operation::Send, Action::Reset, false, 1),
        (Operation::Send, Action::LoseAnswer, false, 2),
        (Operation::Delete, Action::Reset, true, 2),
        (Operation::Delete, Action::LoseAnswer, true, 1),
    ] {
        let old = expiring(&shop).await;
        shop.next(operation, 1, action.clone());
        let new = shop.store.queue.replace(&old.receipt, b"[]", LEASE).await;
        assert_eq!(new.is_ok(), replaced, "{operation} {action:?}: {new:?}");
        shop.left(left).await;
        shop.clear(QUEUE).await;
    }
}
