//! The mock refuses the same requests as Azure, and answers the others as Azure does.

use crate::support::{ME, NEIGHBOUR, NOTICE, server};
use reprieve_sim::metadata::MetadataServer;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";

struct Asker {
    server: MetadataServer,
    http: reqwest::Client,
}

impl Asker {
    async fn new() -> Self {
        Self {
            server: server().await,
            http: reqwest::Client::builder().no_proxy().build().expect("a client"),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, String) {
        let mut request = self.http.request(method, self.server.url() + path).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    }

    /// Sends a request with the right header.
    async fn get(&self, path: &str) -> (u16, String) {
        let (status, body) = self.ask(Method::GET, path, &[("Metadata", "true")], "").await;
        (status.as_u16(), body)
    }

    async fn post(&self, body: &str) -> u16 {
        self.ask(Method::POST, EVENTS, &[("Metadata", "true")], body).await.0.as_u16()
    }
}

fn json(body: &str) -> Value {
    serde_json::from_str(body).expect(body)
}

#[tokio::test]
async fn a_request_needs_the_metadata_header_and_must_not_be_forwarded() {
    let asker = Asker::new().await;
    let refusal = "Bad Request, Required metadata header not specified";
    for headers in [&[][..], &[("Metadata", "false")], &[("Metadata", "True")]] {
        let (status, body) = asker.ask(Method::GET, EVENTS, headers, "").await;
        assert_eq!((status, body.as_str()), (StatusCode::BAD_REQUEST, refusal), "{headers:?}");
    }
    let forwarded = [("Metadata", "true"), ("X-Forwarded-For", "10.0.0.1")];
    assert_eq!(asker.ask(Method::GET, EVENTS, &forwarded, "").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(asker.get(EVENTS).await, (200, r#"{"DocumentIncarnation":1,"Events":[]}"#.to_owned()));
}

#[tokio::test]
async fn a_request_needs_a_version_of_its_own_endpoint() {
    let asker = Asker::new().await;
    for (path, newest) in [
        ("/metadata/scheduledevents", json!(["2024-07-09", "2020-07-01", "2019-08-01"])),
        ("/metadata/scheduledevents?api-version=", json!(["2024-07-09", "2020-07-01", "2019-08-01"])),
        ("/metadata/scheduledevents?api-version=latest", json!(["2024-07-09", "2020-07-01", "2019-08-01"])),
        (
            "/metadata/scheduledevents?api-version=2021-02-01",
            json!(["2024-07-09", "2020-07-01", "2019-08-01"]),
        ),
        ("/metadata/instance", json!(["2025-04-07", "2024-07-17", "2024-03-15"])),
        (
            "/metadata/instance/compute?api-version=2020-07-01",
            json!(["2025-04-07", "2024-07-17", "2024-03-15"]),
        ),
    ] {
        let (status, body) = asker.get(path).await;
        assert_eq!(status, 400, "{path}");
        let error = "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds";
        assert_eq!(json(&body), json!({ "error": error, "newest-versions": newest }), "{path}");
    }
    assert_eq!(asker.get(&format!("{EVENTS}&api-version=2020-07-01")).await.0, 400, "a name twice");
    let (status, body) = asker.get("/metadata/versions").await;
    assert_eq!((status, &json(&body)["apiVersions"][0]), (200, &json!("2017-03-01")));
}

#[tokio::test]
async fn verbs_and_paths_that_are_not_supported_are_refused() {
    let asker = Asker::new().await;
    for (method, path, status) in [
        (Method::PUT, EVENTS, 405),
        (Method::DELETE, EVENTS, 405),
        (Method::POST, "/metadata/instance?api-version=2021-02-01", 405),
        (Method::POST, "/metadata/versions", 405),
        (Method::GET, "/metadata/nothing?api-version=2021-02-01", 404),
        (Method::GET, "/metadata/instance/compute/nothing?api-version=2021-02-01", 404),
        (Method::GET, "/vm/nobody/metadata/versions", 404),
    ] {
        let answered = asker.ask(method.clone(), path, &[("Metadata", "true")], "").await.0;
        assert_eq!(answered.as_u16(), status, "{method} {path}");
    }
}

#[tokio::test]
async fn an_approval_must_be_well_formed_and_name_events_that_stand() {
    let asker = Asker::new().await;
    for body in ["", "null", "{}", "{", r#"{"StartRequests":[{}]}"#, r#"{"StartRequests":"x"}"#] {
        assert_eq!(asker.post(body).await, 400, "{body}");
    }
    assert_eq!(
        asker.post(r#"{"StartRequests":[{"EventId":"f020ba2e-3bc0-4c40-a10b-86575a9eabd5"}]}"#).await,
        400
    );

    let first = asker.server.evict(ME, NOTICE).expect("a known VM").event_id;
    let second = asker.server.evict(NEIGHBOUR, NOTICE).expect("a known VM").event_id.to_lowercase();
    let both = format!(
        r#"{{"DocumentIncarnation":3,"StartRequests":[{{"EventId":"{first}"}},{{"EventId":"{second}"}}]}}"#
    );
    assert_eq!(asker.post(&both).await, 200);
    assert_eq!(asker.post(&both).await, 200, "again");
    let events = asker.server.state().document.events;
    assert_eq!(events.iter().filter(|event| event.not_before.is_empty()).count(), 2, "{events:?}");
}

#[tokio::test]
async fn each_vm_gets_its_own_name_and_the_events_of_all() {
    let asker = Asker::new().await;
    asker.server.evict(NEIGHBOUR, NOTICE).expect("a known VM");
    for (prefix, name) in [("", ME), ("/vm/workers_0", ME), ("/vm/workers_1", NEIGHBOUR)] {
        let leaf = format!("{prefix}/metadata/instance/compute/name?api-version=2021-02-01");
        assert_eq!(asker.get(&format!("{leaf}&format=text")).await, (200, name.to_owned()));
        assert_eq!(asker.get(&leaf).await.0, 400, "a leaf has no JSON");
        let (_, body) = asker.get(&format!("{prefix}/metadata/instance?api-version=2021-02-01")).await;
        let compute = &json(&body)["compute"];
        assert_eq!((&compute["name"], &compute["vmScaleSetName"]), (&json!(name), &json!("workers")));
        let (_, body) =
            asker.get(&format!("{prefix}/metadata/instance/compute?api-version=2021-02-01")).await;
        assert_eq!(&json(&body), compute);
        let (_, body) = asker.get(&format!("{prefix}{EVENTS}")).await;
        assert_eq!(json(&body)["Events"][0]["Resources"], json!([NEIGHBOUR]));
    }
}
