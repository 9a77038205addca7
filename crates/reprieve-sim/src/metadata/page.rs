//! The page at `/` that shows and controls the mock: its files and their headers.

mod other_sites;

use axum::Router;
use axum::http::header;
use axum::routing;

pub(super) use other_sites::refuse_other_sites;

/// The page's content security policy: it may load only its own files, and call only the mock that
/// served it. Markup that got into it through a name or a description could neither run nor load
/// anything.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// The path, content type and content of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/page.css", STYLE, include_str!("page/page.css")),
    ("/page/icon.svg", PICTURE, include_str!("page/icon.svg")),
    ("/page/main.js", SCRIPT, include_str!("page/main.js")),
    ("/page/mock.js", SCRIPT, include_str!("page/mock.js")),
    ("/page/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/page/words.js", SCRIPT, include_str!("page/words.js")),
    ("/page/vms.js", SCRIPT, include_str!("page/vms.js")),
    ("/page/events.js", SCRIPT, include_str!("page/events.js")),
    ("/page/timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("/page/scenarios.js", SCRIPT, include_str!("page/scenarios.js")),
    ("/page/faults.js", SCRIPT, include_str!("page/faults.js")),
];

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, content_type, text)| {
        let headers = [
            (header::CONTENT_TYPE, content_type),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // A newer mock on the same port has a newer page.
            (header::CACHE_CONTROL, "no-store"),
        ];
        router.route(path, routing::get(move || async move { (headers, text) }))
    })
}
