//! Injected faults, as a client sees them.

use std::time::Duration;

use azure_core::error::ErrorKind;
use azure_storage_queue::QueueClient;
use reprieve_sim::storage::{Action, Latency, Operation, Rule};
use reqwest::Method;
use tokio::time::{Instant, timeout};

use crate::support::{
    Double, header, id_and_receipt, message, receive, refused, send, status_and_code, texts,
};

async fn double_with(rule: Rule) -> (Double, QueueClient) {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    double.server.add_fault(rule).expect("a rule that can be");
    (double, queue)
}

/// Asserts that no answer comes in time.
async fn unanswered<T>(request: impl Future<Output = T>) {
    assert!(timeout(Duration::from_millis(300), request).await.is_err(), "the request was answered");
}

#[tokio::test]
async fn errors_are_answered_without_applying() {
    let refuse = |status, code: &str| Action::Refuse { status, code: code.to_owned() };
    for (action, status, code) in [
        (Action::ServerBusy { retry_after_seconds: None }, 503, "ServerBusy"),
        (Action::TooManyRequests { retry_after_seconds: None }, 429, "TooManyRequests"),
        (Action::OperationTimedOut, 500, "OperationTimedOut"),
        (Action::PermissionMismatch, 403, "AuthorizationPermissionMismatch"),
        (refuse(409, "QueueBeingDeleted"), 409, "QueueBeingDeleted"),
    ] {
        let (double, queue) = double_with(Rule::new(action).on(Operation::Send).times(1)).await;
        let sent = queue.send_message(message("a"), None).await;
        assert_eq!(refused(sent), (status, code.to_owned()));
        assert_eq!(double.server.counts().answered(Operation::Send, status), 1);
        send(&queue, "b").await;
        assert_eq!(texts(&receive(&queue, 32, 30).await), ["b"]);
    }
}

#[tokio::test]
async fn retry_after_is_sent() {
    let busy = Action::ServerBusy { retry_after_seconds: Some(7) };
    let (double, _queue) = double_with(Rule::new(busy)).await;
    let answer = double.to_queue(Method::GET, "/work/messages").send().await.unwrap();
    assert_eq!((status_and_code(&answer), header(&answer, "retry-after")), ((503, "ServerBusy"), "7"));
}

#[tokio::test]
async fn a_reset_is_not_applied_and_a_lost_answer_is() {
    for (action, applied) in [(Action::Reset, false), (Action::LoseAnswer, true)] {
        let (double, queue) = double_with(Rule::new(action.clone()).on(Operation::Send).times(1)).await;
        let error = queue.send_message(message("a"), None).await.expect_err("no answer");
        assert!(!matches!(error.kind(), ErrorKind::HttpResponse { .. }), "{error:?}");
        assert_eq!(receive(&queue, 32, 30).await.len(), usize::from(applied), "{action:?}");
        let counts = double.server.counts();
        assert_eq!(counts.requests(Operation::Send), 1);
        assert_eq!(counts.answered(Operation::Send, 201), 0);
    }
}

#[tokio::test]
async fn a_reset_is_one_for_the_client_too() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (double, _queue) = double_with(Rule::new(Action::Reset)).await;
    let address = double.server.control_url().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /acc/work?sig=a HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let error = stream.read(&mut [0; 16]).await.expect_err("reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_hang_is_never_answered_and_applied_as_configured() {
    for applied in [false, true] {
        let (double, queue) = double_with(Rule::new(Action::Hang { applied }).on(Operation::Send)).await;
        unanswered(queue.send_message(message("a"), None)).await;
        assert_eq!(receive(&queue, 32, 30).await.len(), usize::from(applied));
        double.server.stop().await;
    }
}

#[tokio::test]
async fn a_truncated_answer_is_an_error_of_the_body() {
    let (double, queue) = double_with(Rule::new(Action::Truncate).on(Operation::Receive).times(1)).await;
    send(&queue, "a").await;
    let answer = double.to_queue(Method::GET, "/work/messages").send().await.expect("it begins well");
    assert_eq!(answer.status(), 200);
    let announced: usize = header(&answer, "content-length").parse().unwrap();
    assert!(announced > 100, "{announced}");
    answer.bytes().await.expect_err("it breaks off");
    assert!(receive(&queue, 32, 30).await.is_empty(), "the message is hidden");

    double.server.add_fault(Rule::new(Action::Truncate).on(Operation::Clear)).unwrap();
    double.to_queue(Method::DELETE, "/work/messages").send().await.expect_err("no body: all of it is lost");
}

#[tokio::test]
async fn a_large_blob_breaks_off_in_the_middle() {
    let (double, _queue) = double_with(Rule::new(Action::Truncate).on(Operation::BlobGet)).await;
    let container = double.container("store").await;
    let bytes = vec![7; 3_000_000];
    let blob = container.blob_client("large");
    blob.upload(azure_core::http::RequestContent::from(bytes), None).await.unwrap();
    let begun = blob.download(None).await.expect("it begins well");
    begun.body.collect().await.expect_err("it breaks off");
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_applied_at_once_and_answered_late() {
    let by = Duration::from_secs(20);
    let (_double, queue) = double_with(Rule::new(Action::Delay { by }).on(Operation::Send)).await;
    let begun = Instant::now();
    let slow = queue.send_message(message("a"), None);
    let fast = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        receive(&queue, 32, 30).await.len()
    };
    let (sent, received) = tokio::join!(slow, fast);
    sent.expect("an answer");
    assert_eq!(received, 1);
    assert!(begun.elapsed() >= by, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_late_write_arrives_when_its_sender_has_gone() {
    let by = Duration::from_secs(20);
    let (double, queue) = double_with(Rule::new(Action::ApplyLate { by }).on(Operation::Send)).await;
    let gave_up = timeout(Duration::from_secs(5), queue.send_message(message("a"), None)).await;
    assert!(gave_up.is_err());
    assert!(receive(&queue, 32, 30).await.is_empty());
    tokio::time::sleep(by).await;
    assert_eq!(texts(&receive(&queue, 32, 30).await), ["a"]);
    drop(double);
}

#[tokio::test]
async fn a_skewed_clock_shows_in_the_date_only() {
    let (double, queue) = double_with(Rule::new(Action::SkewClock { seconds: -3600 })).await;
    send(&queue, "a").await;
    let answer = double.to_queue(Method::GET, "/work/messages").send().await.unwrap();
    let date = httpdate_of(header(&answer, "date"));
    let body = answer.text().await.unwrap();
    let inserted = body.split("InsertionTime>").nth(1).unwrap().trim_end_matches("</");
    let behind = httpdate_of(inserted).duration_since(date).expect("behind");
    assert!((3595..=3605).contains(&behind.as_secs()), "{behind:?}");
}

fn httpdate_of(text: &str) -> std::time::SystemTime {
    httpdate::parse_http_date(text).expect("a date")
}

#[tokio::test]
async fn rules_go_by_operation_and_name() {
    let double = Double::start().await;
    let (one, two) = (double.queue("one-queue").await, double.queue("two-queue").await);
    let rule =
        Rule { prefix: "one".to_owned(), ..Rule::new(Action::OperationTimedOut).on(Operation::Receive) };
    double.server.add_fault(rule).unwrap();
    send(&one, "a").await;
    assert_eq!(refused(one.receive_messages(None).await).0, 500);
    two.receive_messages(None).await.unwrap();
    one.peek_messages(None).await.unwrap();
    let [active] = &double.server.faults()[..] else { panic!("one") };
    assert_eq!((active.matched, active.injected), (1, 1));
    double.server.clear_faults();
    one.receive_messages(None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_request_takes_the_latency() {
    let double = Double::start().await;
    double.server.set_latency(Latency { fixed_ms: 80, jitter_ms: 40, seed: 1 });
    let queue = double.queue("work").await;
    for _ in 0..5 {
        let begun = Instant::now();
        send(&queue, "a").await;
        assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
    }
    // A sent message arrives, even when its sender has gone.
    let received = timeout(Duration::from_millis(20), receive(&queue, 32, 30)).await;
    assert!(received.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(receive(&queue, 32, 30).await.is_empty());
}

#[tokio::test]
async fn a_stop_closes_every_connection() {
    let (double, queue) = double_with(Rule::new(Action::Hang { applied: false }).on(Operation::Peek)).await;
    send(&queue, "a").await;
    let held = receive(&queue, 1, 30).await.remove(0);
    let (server, http) = (double.server, double.http);
    let url = server.control_url();
    let asked = tokio::spawn(async move { queue.peek_messages(None).await });
    while server.counts().requests(Operation::Peek) == 0 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    assert!(asked.await.unwrap().is_err());
    assert!(http.get(url).send().await.is_err());
    id_and_receipt(&held);
}
