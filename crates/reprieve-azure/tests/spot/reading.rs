use std::sync::Arc;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::OffsetDateTime;
use reprieve_azure::identity::Tokens;
use reprieve_azure::prices::{Os, price_text};
use reprieve_azure::spot::{Client, Score};
use reprieve_core::ErrorKind;
use reprieve_core::clock::wall_now;
use reprieve_sim::management::{Config, ManagementServer};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
const SIZES: [&str; 4] = ["Standard_D4s_v5", "Standard_D2s_v5", "Standard_F16s", "Standard_X1"];
const REGIONS: [&str; 2] = ["westeurope", "northeurope"];

async fn mock(config: Config) -> (ManagementServer, Client) {
    let server = ManagementServer::start(config).await.expect("a mock");
    let client = Client::of_this_machine(&server.url()).expect("a client");
    (server, client)
}

#[tokio::test]
async fn rates_are_read_on_any_number_of_pages_and_what_is_missing_is_unknown() {
    for page_size in [1, 2, 1_000] {
        let (server, client) = mock(Config { page_size, ..Config::default() }).await;
        let rates = client.rates(&SIZES, &REGIONS).await.expect("rates");
        let shown: Vec<_> = rates
            .iter()
            .map(|it| format!("{} {} {:?}", it.size, it.region, it.rate.map(|rate| rate.to_string())))
            .collect();
        assert_eq!(
            shown,
            [
                "standard_d4s_v5 westeurope Some(\"0-5\")",
                "standard_d4s_v5 northeurope Some(\"20+\")",
                "standard_d2s_v5 westeurope None",
            ]
        );
        assert_eq!(rates[1].rate.expect("a bucket").high_percent, None);
        assert_eq!(server.requests().len(), 3_usize.div_ceil(page_size));
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_hide_the_others() {
    for odd in [serde_json::json!({}), serde_json::json!({ "skuName": 7 }), serde_json::Value::Null] {
        let (_server, client) = mock(Config { odd_row: Some(odd), ..Config::default() }).await;
        assert_eq!(client.rates(&SIZES, &REGIONS).await.expect("rates").len(), 3);
        assert_eq!(client.history(&SIZES, &REGIONS, Os::Linux).await.expect("a history").len(), 3);
        let scores = client.scores(SUBSCRIPTION, &SIZES, &REGIONS, 1).await;
        assert_eq!(scores.expect("scores").len(), 4);
        // A table of nothing else is another format.
        let fault = client.rates(&["Standard_X1"], &REGIONS).await.expect_err("only the odd row");
        assert_eq!(fault.kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn past_prices_are_exact_and_what_is_no_price_is_left_out() {
    let (_server, client) = mock(Config::default()).await;
    let history = client.history(&SIZES[..1], &REGIONS[..1], Os::Linux).await.expect("a history");
    let prices: Vec<_> = history[0]
        .prices
        .iter()
        .map(|past| (price_text(past.price), past.since.map(|since| since.to_string())))
        .collect();
    let since = Some("2026-11-01T00:00:00Z".to_owned());
    assert_eq!(prices, [("0.0460".to_owned(), since), ("0.0512".to_owned(), None)]);
}

#[tokio::test]
async fn scores_are_asked_for_in_requests_that_the_service_accepts() {
    let (server, client) = mock(Config::default()).await;
    let mut sizes = SIZES.to_vec();
    sizes.extend(["a1", "a2", "a3"]);
    let mut regions = REGIONS.to_vec();
    regions.extend(["r1", "r2", "r3", "r4", "r5", "r6", "r7"]);
    let placements = client.scores(SUBSCRIPTION, &sizes, &regions, 10).await.expect("scores");
    let shown: Vec<_> =
        placements.iter().map(|it| (&*it.sku, &*it.region, &it.score, it.is_quota_available)).collect();
    assert_eq!(
        shown,
        [
            (SIZES[0], REGIONS[0], &Score::High, Some(true)),
            (SIZES[0], REGIONS[1], &Score::Low, Some(false)),
            (SIZES[1], REGIONS[0], &Score::RestrictedSku, Some(false)),
            (SIZES[2], REGIONS[0], &Score::DataNotFound, Some(false)),
        ]
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 4, "two of sizes, for two of regions");
    let path = "/subscriptions/00000000-0000-0000-0000-000000000001/providers/Microsoft.Compute/locations/westeurope/\
                placementScores/spot/generate";
    assert_eq!(requests[0].0, path);
}

#[tokio::test]
async fn a_missing_role_is_named() {
    let (_server, client) = mock(Config { reader: false, recommendations: false, ..Config::default() }).await;
    let rates = client.rates(&SIZES, &REGIONS).await.expect_err("no role");
    let scores = client.scores(SUBSCRIPTION, &SIZES, &REGIONS, 1).await.expect_err("no role");
    for (error, role) in [(rates, "\"Reader\""), (scores, "\"Compute Recommendations Role\"")] {
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.message().contains("answered 403") && error.message().contains(role), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_and_a_wrong_subscription_are_errors() {
    let (server, client) = mock(Config { busy: true, ..Config::default() }).await;
    let error = client.rates(&SIZES, &REGIONS).await.expect_err("busy");
    assert!(error.is_temporary() && error.message().contains("answered 429"), "{error}");
    assert_eq!(server.requests().len(), 5);
    let error = client.scores("../x", &SIZES, &REGIONS, 1).await.expect_err("no id");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("az account show"), "{error}");
    assert_eq!(server.requests().len(), 5);
}

/// Always returns this token.
#[derive(Debug)]
struct Fixed(&'static str);

#[async_trait::async_trait]
impl TokenCredential for Fixed {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let until = wall_now() + std::time::Duration::from_secs(3_600);
        Ok(AccessToken::new(self.0, OffsetDateTime::from(until)))
    }
}

#[tokio::test]
async fn requests_have_the_token_of_the_identity() {
    let (server, without) = mock(Config { token: Some("secret"), ..Config::default() }).await;
    let with = |token| {
        let tokens = Tokens::of("https://management.azure.com/.default", Arc::new(Fixed(token)));
        Client::with_tokens(&server.url(), tokens).expect("a client")
    };
    assert_eq!(with("secret").rates(&SIZES, &REGIONS).await.expect("rates").len(), 3);
    for client in [without, with("another")] {
        let error = client.rates(&SIZES, &REGIONS).await.expect_err("not signed in");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.message().contains("answered 401") && !error.message().contains("another"), "{error}");
    }
}
