//! The client connects to the given address and to no other.
//!
//! A binary of its own, because it starts processes. Until exec, such a process holds every socket
//! of this one, and a port that a test has just closed is not free.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reprieve_azure::scheduled_events::Client;
use reprieve_azure::scheduled_events::document::ApiVersion;
use reprieve_core::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;

const WITHIN: Duration = Duration::from_secs(5);

/// Listens, counts connections, and answers each with `answer`. Returns its address and the count.
async fn trap(answer: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_ok() {
                stream.write_all(answer.as_bytes()).await.expect("the client reads");
            }
        }
    });
    (format!("http://{address}"), count)
}

#[tokio::test]
async fn redirects_are_refused() {
    let (elsewhere, strays) = trap("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    let (base, _) =
        trap(format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n")).await;
    let error = Client::new(&base).expect("a base URL").document(WITHIN).await.expect_err("a redirect");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("302 Found"), "{error}");
    assert_eq!(strays.load(Ordering::SeqCst), 0);
}

/// Runs [`asks_the_base_url_on_its_standard_input`] in a process with a proxy in its environment.
#[tokio::test]
async fn proxies_of_the_environment_are_bypassed() {
    let server = reprieve_sim::serve(0, ["workers_0"]).await.expect("a mock");
    let (proxy, strays) = trap("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", "asks_the_base_url_on_its_standard_input", "--ignored", "--nocapture"]);
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(variable, &proxy);
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy").stdin(Stdio::piped());
    let mut child = child.kill_on_drop(true).spawn().expect("a process");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(server.url().as_bytes()).await.expect("it reads");
    drop(input);
    let status = child.wait().await.expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(strays.load(Ordering::SeqCst), 0);
    assert_eq!(server.state().vms[0].polls, 2, "one in each of two api-versions");
}

#[tokio::test]
#[ignore = "it is a part of proxies_of_the_environment_are_bypassed, which gives it its input"]
async fn asks_the_base_url_on_its_standard_input() {
    let base = std::io::read_to_string(std::io::stdin()).expect("a base URL");
    // One after the other: of two requests at once, the first answer is enough.
    for version in [ApiVersion::NEWEST, ApiVersion::DOCUMENTED] {
        let client = Client::new(&base).expect("a base URL").with_version(version);
        client.document(WITHIN).await.expect("an answer");
    }
}
