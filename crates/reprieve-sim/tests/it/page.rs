//! The page at `/`: sent with all its resources, and the only page that may control the mock.

use crate::support::{ME, server};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

#[tokio::test]
async fn the_page_and_all_its_files_are_there_and_may_load_nothing_else() {
    let server = server().await;
    let client = client();
    let get =
        async |path: &str| client.get(format!("{}/{path}", server.url())).send().await.expect("an answer");
    let mut wanted = vec![String::new()];
    let mut seen = Vec::new();
    while let Some(path) = wanted.pop() {
        let answer = get(&path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        assert!(
            header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"),
            "{path}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        let content_type = header("content-type");
        let ending = path.rsplit_once('.').map_or("html", |(_, ending)| ending);
        let expected = match ending {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(content_type, expected, "{path}");
        let text = answer.text().await.expect("text");
        assert!(!text.contains("innerHTML") && !text.contains("style=\""), "{path}");
        seen.push(path);
        for part in text.split('"') {
            let named = part.strip_prefix("./").map(|name| format!("page/{name}"));
            let named = named.or_else(|| part.starts_with("page/").then(|| part.to_owned()));
            wanted.extend(named.filter(|path| !seen.contains(path) && !wanted.contains(path)));
        }
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
    server.stop().await;
}

#[tokio::test]
async fn pages_of_other_sites_can_not_drive_the_mock() {
    let server = server().await;
    let client = client();
    let url = format!("{}/control/evict", server.url());
    let ask = async |headers: &[(&'static str, &str)]| {
        let mut request = client.request(Method::POST, &url).json(&json!({ "vm": ME }));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer")
    };
    let other = "http://evil.example:8169";
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site"), ("origin", &server.url())],
        &[("origin", other)],
        &[("origin", "null")],
        // An attacker's name that resolves to the mock's address.
        &[("origin", other), ("host", "evil.example:8169")],
    ] {
        let answer = ask(headers).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{headers:?}");
        let body: Value = answer.json().await.expect("JSON");
        assert!(body["error"].as_str().is_some_and(|why| why.contains("page")), "{headers:?}: {body}");
    }
    assert_eq!(server.state().events, [], "no event was announced");

    // A preflight request gets no permission, either.
    let preflight = client.request(Method::OPTIONS, &url).header("origin", other);
    let answer = preflight.header("access-control-request-method", "POST").send().await.expect("an answer");
    assert!(!answer.headers().contains_key("access-control-allow-origin"), "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn the_mock_s_own_page_and_programs_drive_it() {
    let server = server().await;
    let client = client();
    let url = format!("{}/control/restart", server.url());
    for headers in [
        &[][..],
        &[("origin", server.url().as_str())],
        &[("sec-fetch-site", "same-origin"), ("origin", server.url().as_str())],
    ] {
        let mut request = client.post(&url).json(&Value::Null);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        assert_eq!(request.send().await.expect("an answer").status(), StatusCode::NO_CONTENT, "{headers:?}");
    }
    // The check applies to the control API only: a worker's request is answered.
    let events = format!("{}/metadata/scheduledevents?api-version=2020-07-01", server.url());
    let asked = client.get(events).header("metadata", "true").header("sec-fetch-site", "cross-site");
    assert_eq!(asked.send().await.expect("an answer").status(), StatusCode::OK);
    server.stop().await;
}
