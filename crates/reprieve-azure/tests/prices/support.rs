//! A mock, a client of it, and the price of the size that most tests ask for.

use reprieve_azure::prices::{Client, NoPrice, Os, PricePair, Query, price_text, select};
use reprieve_core::Result;
use reprieve_core::clock::wall_now;
use reprieve_sim::prices::{Config, PricesServer};

pub(crate) const SIZE: &str = "Standard_D4s_v5";

/// Its prices in the mock, which every decoy would change.
pub(crate) const PAIR: &str = "0.2300 0.0460";

pub(crate) async fn server(page_size: usize) -> (PricesServer, Client) {
    let server = PricesServer::start(Config { page_size, ..Config::default() }).await.expect("a mock");
    let client = Client::new(&server.url()).expect("a client");
    (server, client)
}

pub(crate) fn query(size: &str, region: &str, currency: &str) -> Query {
    Query::new(size, region, currency).expect("a query")
}

/// The regular and the Spot price of the size in US dollars, in western Europe with Linux.
pub(crate) async fn prices(client: &Client) -> Result<String> {
    let query = query(SIZE, "westeurope", "USD");
    let meters = client.meters(&query).await?;
    Ok(shown(&select(&meters, &query, Os::Linux, wall_now()).expect("a pair")))
}

pub(crate) async fn pair(client: &Client, query: &Query, os: Os) -> Result<PricePair, NoPrice> {
    let meters = client.meters(query).await.expect("meters");
    select(&meters, query, os, wall_now())
}

pub(crate) fn shown(pair: &PricePair) -> String {
    format!("{} {}", price_text(pair.regular), price_text(pair.spot))
}
