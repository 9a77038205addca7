//! The queue service through the official SDK.

use std::collections::{HashMap, HashSet};

use azure_storage_queue::models::{
    QueueClientCreateOptions, QueueClientGetPropertiesResultHeaders, QueueClientReceiveMessagesOptions,
    QueueClientSendMessageOptions, QueueClientUpdateMessageOptions,
};

use crate::support::{Double, id_and_receipt, message, receive, refused, send, send_with, texts};

const STALE: (u16, &str) = (404, "MessageNotFound");

#[track_caller]
fn check<T>(result: azure_core::Result<T>, (status, code): (u16, &str)) {
    assert_eq!(refused(result), (status, code.to_owned()));
}

async fn count(queue: &azure_storage_queue::QueueClient) -> Option<i64> {
    queue.get_properties(None).await.expect("properties").approximate_messages_count().expect("a number")
}

#[tokio::test]
async fn a_queue_is_created_once_and_again_with_the_same_metadata_only() {
    let double = Double::start().await;
    let queue = double.queue_client("work");
    check(queue.get_properties(None).await, (404, "QueueNotFound"));
    check(queue.send_message(message("a"), None).await, (404, "QueueNotFound"));
    let created = queue.create(None).await.unwrap();
    assert_eq!(u16::from(created.status()), 201);
    let again = queue.create(None).await.unwrap();
    assert_eq!(u16::from(again.status()), 204);
    let other = QueueClientCreateOptions {
        metadata: Some(HashMap::from([("team".to_owned(), "blue".to_owned())])),
        ..Default::default()
    };
    check(queue.create(Some(other)).await, (409, "QueueAlreadyExists"));
    queue.set_metadata(&HashMap::from([("team".to_owned(), "red".to_owned())]), None).await.unwrap();
    let properties = queue.get_properties(None).await.unwrap();
    assert_eq!(properties.metadata().unwrap(), HashMap::from([("team".to_owned(), "red".to_owned())]));
    queue.delete(None).await.unwrap();
    check(queue.delete(None).await, (404, "QueueNotFound"));
}

#[tokio::test]
async fn names_that_cannot_be_are_refused() {
    let double = Double::start().await;
    check(double.queue_client("Work").create(None).await, (400, "InvalidResourceName"));
    check(double.queue_client("a--b").create(None).await, (400, "InvalidResourceName"));
    check(double.queue_client("ab").create(None).await, (400, "OutOfRangeInput"));
    check(double.container_client("a_b").create(None).await, (400, "InvalidResourceName"));
}

#[tokio::test]
async fn every_text_that_xml_holds_comes_back_as_it_was() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    let long = "x".repeat(65_536);
    let texts =
        ["", "plain", " spaces ", "<>&\"'", "]]>", "a\nb", "a\r\nb", "&amp;", "\u{1F980} é", long.as_str()];
    for text in texts {
        send(&queue, text).await;
        let received = receive(&queue, 1, 30).await.remove(0);
        assert_eq!(received.message_text.as_deref().unwrap_or_default(), text);
        assert_eq!(received.dequeue_count, Some(1));
        let (id, receipt) = id_and_receipt(&received);
        queue.delete_message(id, receipt, None).await.unwrap();
    }
    let too_long = queue.send_message(message(&"x".repeat(65_537)), None).await;
    check(too_long, (413, "RequestBodyTooLarge"));
    assert_eq!(count(&queue).await, Some(0));
}

#[tokio::test]
async fn a_batch_has_as_many_receipts_as_messages() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    for n in 0..40 {
        send(&queue, &n.to_string()).await;
    }
    let batch = receive(&queue, 32, 60).await;
    assert_eq!(texts(&batch), (0..32).map(|n| n.to_string()).collect::<Vec<_>>());
    let receipts: HashSet<_> = batch.iter().map(|message| message.pop_receipt.clone()).collect();
    assert_eq!(receipts.len(), 32);
    assert_eq!(receive(&queue, 32, 60).await.len(), 8);
    assert_eq!(count(&queue).await, Some(40));
    let first = &batch[0];
    for time in [first.insertion_time, first.expiration_time, first.time_next_visible] {
        assert!(time.is_some(), "{first:?}");
    }
    queue.clear(None).await.unwrap();
    assert_eq!(count(&queue).await, Some(0));
}

#[tokio::test]
async fn every_get_and_update_kills_the_receipt_before_it() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    send(&queue, "a").await;
    let first = receive(&queue, 1, 60).await.remove(0);
    let (id, old) = id_and_receipt(&first);
    let renewed = queue.update_message(id, old, 60, None).await.unwrap();
    let receipt = renewed.headers().get_str(&"x-ms-popreceipt".into()).unwrap().to_owned();
    assert!(renewed.headers().get_str(&"x-ms-time-next-visible".into()).unwrap().ends_with("GMT"));
    check(queue.update_message(id, old, 60, None).await, STALE);
    check(queue.delete_message(id, old, None).await, STALE);

    queue.update_message(id, &receipt, 0, None).await.unwrap();
    let second = receive(&queue, 1, 60).await.remove(0);
    assert_eq!((second.message_id.as_deref(), second.dequeue_count), (Some(id), Some(2)));
    assert_eq!(second.insertion_time, first.insertion_time, "neither an update nor a receive changes it");
    check(queue.update_message(id, &receipt, 0, None).await, STALE);
    let (id, receipt) = id_and_receipt(&second);
    queue.delete_message(id, receipt, None).await.unwrap();
    check(queue.delete_message(id, receipt, None).await, STALE);
    check(queue.delete_message(id, "malformed", None).await, (400, "InvalidQueryParameterValue"));
}

#[tokio::test]
async fn an_update_keeps_changes_or_erases_the_text() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    send(&queue, "first").await;
    for (text, after) in [(None, "first"), (Some("second"), "second"), (Some(""), "")] {
        let received = receive(&queue, 1, 60).await.remove(0);
        let (id, receipt) = id_and_receipt(&received);
        let options =
            QueueClientUpdateMessageOptions { queue_message: text.map(message), ..Default::default() };
        queue.update_message(id, receipt, 0, Some(options)).await.unwrap();
        let peeked = queue.peek_messages(None).await.unwrap().into_model().unwrap().items.unwrap();
        assert_eq!(peeked[0].message_text.as_deref().unwrap_or_default(), after);
    }
}

#[tokio::test]
async fn numbers_outside_their_limits_are_refused() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    let out_of_range = (400, "OutOfRangeQueryParameterValue");
    let get = |number, visibility| QueueClientReceiveMessagesOptions {
        number_of_messages: number,
        visibility_timeout: visibility,
        ..Default::default()
    };
    for (number, visibility) in
        [(Some(0), None), (Some(33), None), (None, Some(0)), (None, Some(604_801)), (None, Some(-1))]
    {
        check(queue.receive_messages(Some(get(number, visibility))).await, out_of_range);
    }
    let received = {
        send(&queue, "a").await;
        receive(&queue, 1, 604_800).await.remove(0)
    };
    let (id, receipt) = id_and_receipt(&received);
    for visibility in [-1, 604_801] {
        check(queue.update_message(id, receipt, visibility, None).await, out_of_range);
    }
    let put = |ttl, visibility| {
        let options = QueueClientSendMessageOptions {
            message_time_to_live: Some(ttl),
            visibility_timeout: Some(visibility),
            ..Default::default()
        };
        queue.send_message(message("a"), Some(options))
    };
    check(put(-1, 604_801).await, out_of_range);
    check(put(-2, 0).await, out_of_range);
    check(put(10, 10).await, (400, "InvalidQueryParameterValue"));
    check(put(0, 0).await, (400, "InvalidQueryParameterValue"));
}

#[tokio::test(start_paused = true)]
async fn messages_keep_their_visibility_timeout_and_time_to_live() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    let options = |ttl, visibility| QueueClientSendMessageOptions {
        message_time_to_live: Some(ttl),
        visibility_timeout: Some(visibility),
        ..Default::default()
    };
    let forever = send_with(&queue, "forever", options(-1, 100)).await;
    let expires = forever.expiration_time.expect("a time");
    assert_eq!((expires.year(), expires.second()), (9999, 59));
    send_with(&queue, "short", options(200, 0)).await;
    assert_eq!(texts(&receive(&queue, 32, 20).await), ["short"]);
    assert!(receive(&queue, 32, 20).await.is_empty());
    let after = async |seconds| {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
        let received = receive(&queue, 32, 20).await;
        texts(&received).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(after(50).await, ["short"]);
    assert_eq!(after(60).await, ["short", "forever"]);
    assert_eq!(after(200).await, ["forever"]);
    assert_eq!(after(100_000_000).await, ["forever"]);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_outlives_its_visibility_until_another_receive() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    send(&queue, "a").await;
    let held = receive(&queue, 1, 30).await.remove(0);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let (id, receipt) = id_and_receipt(&held);
    let renewed = queue.update_message(id, receipt, 30, None).await.expect("a valid receipt");
    let receipt = renewed.headers().get_str(&"x-ms-popreceipt".into()).unwrap().to_owned();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let other = receive(&queue, 1, 30).await.remove(0);
    check(queue.delete_message(id, &receipt, None).await, STALE);
    let (id, receipt) = id_and_receipt(&other);
    queue.delete_message(id, receipt, None).await.expect("it is theirs");
}

#[tokio::test]
async fn accounts_do_not_see_each_others_queues() {
    let double = Double::start().await;
    send(&double.queue("work").await, "a").await;
    let other = double.server.queue_url().replace("devstoreaccount1", "another");
    let get = double.http.get(format!("{other}/work?comp=metadata&{}", crate::support::SAS));
    assert_eq!(crate::support::status_and_code(&get.send().await.unwrap()), (404, "QueueNotFound"));
}
