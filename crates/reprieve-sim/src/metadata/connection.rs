//! One listener of the mock: takes connections, and resets those that are to be reset.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// How long accepting pauses after it failed, which is when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An extension of an answer: it is not given, and the connection is reset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reset;

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reset on demand")
    }
}

impl std::error::Error for Reset {}

/// Takes connections until it is stopped.
pub(super) async fn accept(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve(stream, router.clone(), stop.clone()));
            }
            Err(error) => {
                warn!(%error, "the mock metadata service could not accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection until either side ends it.
async fn serve(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Answers are small and waited for. A socket that can't do without Nagle's delay is only slower.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection stays slow");
    }
    let router = TowerToHyperService::new(router);
    let handler = service_fn(move |request: Request<Incoming>| {
        let answer = router.call(request);
        Box::pin(async { unless_reset(answer.await) })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), handler);
    let ended = tokio::select! {
        ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
        () = stop.cancelled() => return,
    };
    let Err(error) = ended else { return };
    debug!(%error, "a connection ended early");
    if std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<Reset>) {
        // Without this the client would see the connection closed in good order. It is closed when it is dropped.
        let stream = connection.into_parts().io.into_inner();
        if let Err(error) = stream.set_zero_linger() {
            debug!(%error, "a connection is closed instead of reset");
        }
    }
}

fn unless_reset(answer: Result<Response<Body>, Infallible>) -> Result<Response<Body>, Reset> {
    match answer {
        Ok(answer) => answer.extensions().get::<Reset>().copied().map_or(Ok(answer), Err),
        Err(never) => match never {},
    }
}
