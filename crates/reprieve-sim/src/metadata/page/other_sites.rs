//! Decides which pages may control the mock. The mock has no access control, and any page in a
//! person's browser can send requests to it, so only its own page may. Programs other than browsers
//! are not restricted.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::metadata::control::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const OTHER_SITE: &str = "pages of other sites may not drive the mock; use its own, at /";
const OTHER_NAME: &str =
    "the mock may not be driven from a page under a domain name; open it at its IP address or localhost";

/// Middleware that answers 403, with the reason, to every request of another site's page.
pub(in crate::metadata) async fn refuse_other_sites(request: Request, next: Next) -> Response {
    match objection(request.headers()) {
        None => next.run(request).await,
        Some(why) => (StatusCode::FORBIDDEN, Json(Problem { error: why.to_owned() })).into_response(),
    }
}

/// Returns why the request is refused; `None` when it is allowed.
///
/// A browser that trusts the address sends the page's relation to it in `Sec-Fetch-Site`, which no
/// page can set. To an untrusted address (plain HTTP to anything but this machine) it only sends
/// `Origin`. A page's `Origin` can equal the mock's own name after DNS rebinding: the owner of a
/// domain points it at the mock's address once the page is loaded. Public domain names are
/// therefore not trusted.
fn objection(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text(SEC_FETCH_SITE) {
        return (!matches!(site, "same-origin" | "none")).then_some(OTHER_SITE);
    }
    let origin = text(header::ORIGIN)?;
    let host = text(header::HOST).unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    if !own {
        return Some(OTHER_SITE);
    }
    (!is_local(host)).then_some(OTHER_NAME)
}

/// Returns whether a `Host` is an address, or a single-word name, which no one can register on the
/// internet.
fn is_local(host: &str) -> bool {
    if host.starts_with('[') {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    !name.is_empty() && (name.parse::<std::net::Ipv4Addr>().is_ok() || !name.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None` for a header that is not sent.
    #[track_caller]
    fn check(host: &str, site: Option<&'static str>, origin: Option<&'static str>, why: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a host"));
        if let Some(site) = site {
            headers.insert(SEC_FETCH_SITE, site.parse().expect("a site"));
        }
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("an origin"));
        }
        assert_eq!(objection(&headers), why, "{host} {site:?} {origin:?}");
    }

    #[test]
    fn programs_that_are_no_browsers_are_not_asked() {
        for host in ["127.0.0.1:8169", "mock.example.com", ""] {
            check(host, None, None, None);
        }
    }

    #[test]
    fn the_browsers_fetch_site_header_decides() {
        for origin in [None, Some("http://127.0.0.1:8169")] {
            check("127.0.0.1:8169", Some("same-origin"), origin, None);
            check("127.0.0.1:8169", Some("none"), origin, None);
            // Another port of the same machine is another site, too.
            check("127.0.0.1:8169", Some("same-site"), origin, Some(OTHER_SITE));
            check("127.0.0.1:8169", Some("cross-site"), origin, Some(OTHER_SITE));
            check("127.0.0.1:8169", Some("\u{e9}"), origin, Some(OTHER_SITE));
        }
        // Behind a proxy that terminates TLS, the mock does not check the name.
        check("mock.example.com", Some("same-origin"), Some("https://mock.example.com"), None);
    }

    #[test]
    fn without_it_the_origin_must_be_the_mock_itself() {
        check("169.254.169.254", None, Some("http://169.254.169.254"), None);
        check("192.168.0.7:8169", None, Some("http://192.168.0.7:8169"), None);
        check("[fd00::7]:8169", None, Some("http://[fd00::7]:8169"), None);
        check("Mock:8169", None, Some("http://mock:8169"), None);
        for origin in [
            "http://evil.example",
            "http://192.168.0.7",
            "http://192.168.0.7:80",
            "null",
            "",
            "192.168.0.7:8169",
        ] {
            check("192.168.0.7:8169", None, Some(origin), Some(OTHER_SITE));
        }
    }

    #[test]
    fn a_domain_that_was_made_to_mean_the_mock_is_not_believed() {
        check("evil.example:8169", None, Some("http://evil.example:8169"), Some(OTHER_NAME));
        check("127.0.0.1.evil.example", None, Some("http://127.0.0.1.evil.example"), Some(OTHER_NAME));
        check("", None, Some("http://"), Some(OTHER_NAME));
    }
}
