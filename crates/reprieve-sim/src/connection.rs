//! One listener of a mock: accepts connections, answers their requests, and resets connections on
//! demand.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// How long to pause after accepting failed, which happens when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a stop waits until connections close.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests that the connection is reset instead of answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reset;

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is reset on demand")
    }
}

impl std::error::Error for Reset {}

/// The future of an answer.
pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<Response<Body>, Reset>> + Send>>;

/// Listens on `addr`; port 0 takes a free one. Returns the address that it has.
pub(crate) async fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// Waits until the listeners and connections of a mock, which was told to stop, have closed. `what` is the mock.
pub(crate) async fn closed(tasks: &TaskTracker, what: &str) {
    if timeout(STOP_TIMEOUT, tasks.wait()).await.is_err() {
        warn!("the connections of {what} did not close in time");
    }
}

/// Accepts connections until it is stopped; each is a task in `tasks`.
pub(crate) async fn accept<F>(listener: TcpListener, answer: F, stop: CancellationToken, tasks: TaskTracker)
where
    F: Fn(Request<Incoming>) -> Answered + Clone + Send + Unpin + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve(stream, answer.clone(), stop.clone()));
            }
            Err(error) => {
                warn!(%error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection until either side closes it.
async fn serve<F>(stream: TcpStream, answer: F, stop: CancellationToken)
where
    F: Fn(Request<Incoming>) -> Answered + Unpin,
{
    // Answers are small, and clients wait for them. A socket that keeps Nagle's delay is only
    // slower.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection stays slow");
    }
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    let ended = tokio::select! {
        ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
        () = stop.cancelled() => return,
    };
    let Err(error) = ended else { return };
    debug!(%error, "a connection ended early");
    if std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<Reset>) {
        // Without this the client would see an orderly close. Dropping the stream closes it.
        let stream = connection.into_parts().io.into_inner();
        if let Err(error) = stream.set_zero_linger() {
            debug!(%error, "a connection is closed instead of reset");
        }
    }
}
