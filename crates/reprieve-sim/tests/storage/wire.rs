//! Details that only a plain client sees: headers, bodies, and requests that no SDK sends.

use crate::support::{Double, SAS, header, receive, send, status_and_code};
use reprieve_sim::storage::Operation;
use reqwest::Method;

#[tokio::test]
async fn every_answer_tells_its_id_version_and_date() {
    let double = Double::start().await;
    let ask = || double.to_queue(Method::GET, "/work?comp=metadata");
    let missing = ask().header("x-ms-client-request-id", "mine").send().await.unwrap();
    assert_eq!(status_and_code(&missing), (404, "QueueNotFound"));
    assert_eq!(header(&missing, "x-ms-client-request-id"), "mine");
    assert!(header(&missing, "date").ends_with("GMT"));
    let (id, version) =
        (header(&missing, "x-ms-request-id").to_owned(), header(&missing, "x-ms-version").to_owned());
    assert_eq!(version, "2026-04-06");
    let body = missing.text().await.unwrap();
    let begins = r#"<?xml version="1.0" encoding="utf-8"?><Error><Code>QueueNotFound</Code><Message>The specified queue does not exist."#;
    assert!(body.starts_with(begins) && body.contains(&id), "{body}");

    let newer = ask().header("x-ms-version", "2026-10-06").send().await.unwrap();
    assert_eq!(header(&newer, "x-ms-version"), "2026-10-06");
    assert_ne!(header(&newer, "x-ms-request-id"), id);
}

#[tokio::test]
async fn who_shows_nothing_is_refused() {
    let double = Double::start().await;
    for base in [double.server.queue_url(), double.server.blob_url()] {
        let bare = double.http.get(format!("{base}/work?comp=metadata")).send().await.unwrap();
        assert_eq!(status_and_code(&bare), (401, "NoAuthenticationInformation"));
        assert!(header(&bare, "www-authenticate").starts_with("Bearer authorization_uri="));
    }
    let url = format!("{}/work?comp=metadata", double.server.queue_url());
    let wrong = double.http.get(&url).header("authorization", "SharedKey other:abc").send().await.unwrap();
    assert_eq!(status_and_code(&wrong), (403, "AuthenticationFailed"));
    let token = double.http.get(&url).bearer_auth("token").send().await.unwrap();
    assert_eq!(status_and_code(&token), (404, "QueueNotFound"));
}

#[tokio::test]
async fn a_message_that_xml_cannot_hold_spoils_its_whole_batch() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    let put = |text: &str| {
        let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
        double.to_queue(Method::POST, "/work/messages").body(body).send()
    };
    for text in ["good", "\u{1}", "also good"] {
        assert_eq!(put(text).await.unwrap().status(), 201);
    }
    let spoilt = double.to_queue(Method::GET, "/work/messages?numofmessages=32").send().await.unwrap();
    assert_eq!(status_and_code(&spoilt), (500, ""));
    assert!(spoilt.text().await.unwrap().is_empty());
    assert!(receive(&queue, 32, 30).await.is_empty(), "all are hidden, the good ones too");
    assert_eq!(put("&#xFFFE;").await.unwrap().status(), 201);
    let peeked = double.to_queue(Method::GET, "/work/messages?peekonly=true").send().await.unwrap();
    assert_eq!(status_and_code(&peeked), (500, ""));
}

#[tokio::test]
async fn bodies_that_are_no_message_are_refused() {
    let double = Double::start().await;
    double.queue("work").await;
    for body in ["", "hello", "<QueueMessage>", "<QueueMessage></QueueMessage>", "<Other/>"] {
        let put = double.to_queue(Method::POST, "/work/messages").body(body).send().await.unwrap();
        assert_eq!(status_and_code(&put), (400, "InvalidXmlDocument"), "{body}");
    }
    let long = "x".repeat(2 * 1024 * 1024);
    let put = double.to_queue(Method::POST, "/work/messages").body(long).send().await.unwrap();
    assert_eq!(status_and_code(&put), (413, "RequestBodyTooLarge"));
}

#[tokio::test]
async fn parameters_that_must_be_there_are_missed() {
    let double = Double::start().await;
    let queue = double.queue("work").await;
    send(&queue, "a").await;
    let message = receive(&queue, 1, 30).await.remove(0);
    let id = message.message_id.as_deref().unwrap();
    let missing = (400, "MissingRequiredQueryParameter");
    let delete = double.to_queue(Method::DELETE, &format!("/work/messages/{id}")).send().await.unwrap();
    assert_eq!(status_and_code(&delete), missing);
    let update = double.to_queue(Method::PUT, &format!("/work/messages/{id}"));
    let receipt = message.pop_receipt.as_deref().unwrap();
    assert_eq!(status_and_code(&update.query(&[("popreceipt", receipt)]).send().await.unwrap()), missing);
    double.container("store").await;
    let put = double.to_blob(Method::PUT, "/store/a").body("a").send().await.unwrap();
    assert_eq!(status_and_code(&put), (400, "MissingRequiredHeader"));
}

#[tokio::test]
async fn metadata_has_names_of_letters_digits_and_underscores() {
    let double = Double::start().await;
    for (name, created) in [("a_1", true), ("1a", false), ("a.b", false), ("a-b", false)] {
        let create = double.to_queue(Method::PUT, &format!("/work-{}", u8::from(created)));
        let answer = create.header(format!("x-ms-meta-{name}"), "x").send().await.unwrap();
        let expected = if created { (201, "") } else { (400, "InvalidMetadata") };
        assert_eq!(status_and_code(&answer), expected, "{name}");
    }
}

#[tokio::test]
async fn the_double_refuses_unsupported_requests() {
    let double = Double::start().await;
    double.container("store").await;
    for (method, path) in [
        (Method::PUT, "/store/a?comp=lease"),
        (Method::GET, "/store?restype=container&comp=list&delimiter=/"),
        (Method::GET, "/store?restype=container&comp=list&include=snapshots"),
        (Method::GET, "?comp=list"),
    ] {
        let answer = double.to_blob(method, path).send().await.unwrap();
        assert_eq!(status_and_code(&answer), (501, "NotImplemented"), "{path}");
    }
    let page = double.to_blob(Method::PUT, "/store/a").header("x-ms-blob-type", "PageBlob");
    assert_eq!(status_and_code(&page.send().await.unwrap()), (501, "NotImplemented"));
    let leased = double.to_blob(Method::GET, "/store/a").header("x-ms-lease-id", "a");
    assert_eq!(status_and_code(&leased.send().await.unwrap()), (501, "NotImplemented"));
    assert_eq!(double.server.counts().requests(Operation::Other), 2);
}

#[tokio::test]
async fn ranges_are_answered_with_their_place() {
    let double = Double::start().await;
    double.container("store").await;
    let put = double.to_blob(Method::PUT, "/store/a").header("x-ms-blob-type", "BlockBlob");
    assert_eq!(put.body("0123456789").send().await.unwrap().status(), 201);
    let get = |name: &str, range: &str| double.to_blob(Method::GET, "/store/a").header(name, range).send();
    let part = get("x-ms-range", "bytes=2-4").await.unwrap();
    assert_eq!((part.status().as_u16(), header(&part, "content-range")), (206, "bytes 2-4/10"));
    assert_eq!(header(&part, "content-length"), "3");
    assert_eq!(part.text().await.unwrap(), "234");
    let both = double.to_blob(Method::GET, "/store/a").header("range", "bytes=0-0");
    assert_eq!(both.header("x-ms-range", "bytes=9-20").send().await.unwrap().text().await.unwrap(), "9");
    let whole = get("range", "bytes=-2").await.unwrap();
    assert_eq!((whole.status().as_u16(), whole.text().await.unwrap().as_str()), (200, "0123456789"));
    let head = double.to_blob(Method::HEAD, "/store/a").send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, "10"));
    let none = double.to_blob(Method::HEAD, "/store/b").send().await.unwrap();
    assert_eq!(status_and_code(&none), (404, "BlobNotFound"));
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let double = Double::start().await;
    double.queue("work").await;
    let address = double.server.control_url().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    for _ in 0..20 {
        let request = format!("DELETE /devstoreaccount1/work/messages?{SAS} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(
            answer.starts_with("HTTP/1.1 204 No Content\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        assert!(!answer.contains("content-length"), "{answer}");
    }
}
