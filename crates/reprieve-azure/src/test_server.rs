//! A server for tests that answers with any bytes, or not at all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server's reaction to a request.
pub(crate) enum Reply {
    /// Send this, and wait for the next request.
    Bytes(String),
    /// Send this, if anything, and close the connection.
    End(String),
    /// Never answer.
    Silence,
}

impl Reply {
    /// A whole answer; every header in `headers` ends with a line break.
    pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 {status} Status\r\n{headers}content-length: {length}\r\n\r\n{body}"))
    }
}

/// A server on a port of its own, which stops when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (reply, seen) = (Arc::new(reply), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&reply), Arc::clone(&seen)));
            }
        });
        Self { address, requests, task }
    }

    /// Returns the heads of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    reply: Arc<impl Fn(&str) -> Reply + Send + Sync>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    while let Some(head) = read_request(&mut stream).await {
        seen.lock().expect("no panic").push(head.clone());
        match reply(&head) {
            Reply::Bytes(bytes) => {
                if stream.write_all(bytes.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::End(bytes) => {
                // The client may have gone already; either way this connection has ended.
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Reply::Silence => std::future::pending().await,
        }
    }
}

/// The head of the next request, once its body has been read too.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse().ok())
        .unwrap_or(0_usize);
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}
