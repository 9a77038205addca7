//! The right prices among all the meters of the mock's catalogue.

use reprieve_azure::prices::{NoPrice, Os};

use crate::support::{PAIR, SIZE, pair, prices, query, server, shown};

#[tokio::test]
async fn the_prices_of_a_size_are_found_on_any_number_of_pages() {
    for page_size in [1, 2, 7, 1_000] {
        let (server, client) = server(page_size).await;
        assert_eq!(prices(&client).await.expect("prices"), PAIR, "pages of {page_size}");
        let requests = server.requests();
        assert!(requests.len() >= 12 / page_size, "{requests:?}");
        assert!(
            requests[0].starts_with("/api/retail/prices?api-version=2023-01-01-preview&"),
            "{requests:?}"
        );
    }
}

#[tokio::test]
async fn systems_currencies_and_regions_have_prices_of_their_own() {
    let (_server, client) = server(1_000).await;
    for (region, currency, os, expected) in [
        ("westeurope", "USD", Os::Linux, PAIR),
        ("westeurope", "USD", Os::Windows, "0.4140 0.0828"),
        ("westeurope", "EUR", Os::Linux, "0.2127 0.04254"),
        ("westeurope", "EUR", Os::Windows, "0.38285 0.07657"),
        ("northeurope", "USD", Os::Linux, "0.2140 0.02568"),
    ] {
        let pair = pair(&client, &query(SIZE, region, currency), os).await.expect(expected);
        assert_eq!(shown(&pair), expected);
    }
}

#[tokio::test]
async fn a_size_in_another_spelling_is_found_without_a_version() {
    let (server, client) = server(1_000).await;
    let pair =
        pair(&client, &query("standard_d4S_v5", "WestEurope", "usd"), Os::Linux).await.expect("a pair");
    assert_eq!((pair.size.as_str(), shown(&pair).as_str()), (SIZE, PAIR));
    let requests = server.requests();
    assert!(requests.len() == 2 && !requests[1].contains("api-version"), "{requests:?}");
}

#[tokio::test]
async fn what_is_unknown_is_told_apart() {
    let (_server, client) = server(1_000).await;
    let fault = async |size, region, currency| {
        let query = query(size, region, currency);
        pair(&client, &query, Os::Linux).await.expect_err("no pair")
    };
    assert!(matches!(fault("Standard_X1", "westeurope", "USD").await, NoPrice::UnknownSize { .. }));
    assert!(matches!(fault(SIZE, "mars", "USD").await, NoPrice::UnknownRegion { .. }));
    assert!(matches!(fault("Standard_B2ms", "westeurope", "USD").await, NoPrice::NoSpot { .. }));
    assert!(matches!(fault("Standard_E8s_v5", "westeurope", "USD").await, NoPrice::Ambiguous { .. }));
}

#[tokio::test]
async fn many_sizes_are_answered_in_the_order_of_their_queries() {
    let (_server, client) = server(3).await;
    let sizes = ["Standard_F16s", "Standard_D2s_v5", SIZE, "Standard_B2ms", "Standard_X1", "Standard_E8s_v5"];
    let queries = sizes.map(|size| query(size, "westeurope", "USD"));
    let answers = client.meters_of(&queries).await;
    let first: Vec<_> =
        answers.into_iter().map(|meters| meters.expect("meters")[0].arm_sku_name.clone()).collect();
    // For the unknown size there are those of its region.
    assert_eq!(first, [sizes[0], sizes[1], sizes[2], sizes[3], SIZE, sizes[5]]);
}
