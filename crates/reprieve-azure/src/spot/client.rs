//! Requests what Azure knows about Spot VMs, with the identity of this machine.

use std::fmt::Write as _;

use jiff::Timestamp;
use reprieve_core::{Error, ErrorKind, Result};
use reprieve_plan::Price;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{EvictionRate, Placement};
use crate::identity::Tokens;
use crate::prices::{Os, parse_price};
use crate::web::{Post, Service, Web};

/// The address of Azure Resource Manager.
pub const MANAGEMENT_URL: &str = "https://management.azure.com";

const SCOPE: &str = "https://management.azure.com/.default";

const OPERATION: &str = "read what Azure knows about Spot";

const SERVICE: Service = Service { operation: OPERATION, url: MANAGEMENT_URL };

const GRAPH_API_VERSION: &str = "2022-10-01";

const SCORES_API_VERSION: &str = "2025-06-05";

/// The most regions and sizes of one request for scores.
const SCORE_REGIONS_MAX: usize = 8;
const SCORE_SIZES_MAX: usize = 5;

/// How many pages of one query are read. A page has up to 1,000 rows, and a query a row for each size and region.
const PAGES_MAX: usize = 50;

/// A client of Azure Resource Manager.
#[derive(Debug)]
pub struct Client {
    web: Web,
    /// `None` for a mock on this machine.
    tokens: Option<Tokens>,
}

/// The eviction rate of a size in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeRate {
    /// The size, in lower case.
    pub size: String,
    /// The region, in lower case.
    pub region: String,
    /// The bucket; `None` where the service has none, or one that is no interval: the rate is unknown.
    pub rate: Option<EvictionRate>,
}

/// What a size cost as Spot in a region, the newest first, as the service has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastPrices {
    /// The size, in lower case.
    pub size: String,
    /// The region, in lower case.
    pub region: String,
    /// The prices, in US dollars.
    pub prices: Vec<PastPrice>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastPrice {
    /// The price of an hour.
    pub price: Price,
    /// From when it was valid; `None` where the answer has no time. The field is not documented.
    pub since: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<Box<RawValue>>,
    #[serde(rename = "$skipToken", default)]
    skip_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateRow {
    sku_name: String,
    location: String,
    #[serde(default)]
    spot_eviction_rate: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryRow {
    sku_name: String,
    location: String,
    #[serde(default)]
    spot_prices: Option<Vec<PriceRow>>,
}

#[derive(Debug, Deserialize)]
struct PriceRow {
    #[serde(rename = "priceUSD", default)]
    price: Option<Box<RawValue>>,
    #[serde(rename = "effectiveDate", default)]
    since: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scores {
    placement_scores: Vec<Box<RawValue>>,
}

impl Client {
    /// Creates a client of the service at `base`, such as [`MANAGEMENT_URL`], with the identity of this
    /// machine: workload identity, managed identity, or the login of the Azure CLI. A service on this machine
    /// is a mock, and gets no token.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when `base` is not an `https://` address, or one of this machine.
    pub fn of_this_machine(base: &str) -> Result<Self> {
        let web = Web::new(base, &SERVICE)?;
        let tokens = if web.is_local() { None } else { Some(Tokens::of_this_machine(SCOPE, None)?) };
        Ok(Self { web, tokens })
    }

    /// Creates a client of the service at `base` with these tokens, which are for [`MANAGEMENT_URL`].
    ///
    /// # Errors
    /// Those of [`of_this_machine`](Self::of_this_machine).
    pub fn with_tokens(base: &str, tokens: Tokens) -> Result<Self> {
        Ok(Self { web: Web::new(base, &SERVICE)?, tokens: Some(tokens) })
    }

    /// Requests the eviction rates of these sizes in these regions. Those that the service does not know are
    /// missing.
    ///
    /// # Errors
    /// [`Denied`](ErrorKind::Denied) without an identity or its role, [`Unavailable`](ErrorKind::Unavailable)
    /// and [`TimedOut`](ErrorKind::TimedOut) when the service does not answer, and
    /// [`Corrupt`](ErrorKind::Corrupt) when the answer is no table.
    pub async fn rates(&self, sizes: &[&str], regions: &[&str]) -> Result<Vec<SizeRate>> {
        let query = format!(
            "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location' \
             | where sku.name in~ ({}) and location in~ ({}) \
             | project skuName=tostring(sku.name), location, spotEvictionRate=tostring(properties.evictionRate)",
            list(sizes),
            list(regions)
        );
        let rows: Vec<RateRow> = self.table(&query).await?;
        let rate = |row: RateRow| SizeRate {
            size: row.sku_name.to_lowercase(),
            region: row.location.to_lowercase(),
            rate: row.spot_eviction_rate.as_deref().and_then(EvictionRate::parse),
        };
        Ok(rows.into_iter().map(rate).collect())
    }

    /// Requests the Spot prices of these sizes of the last 90 days.
    ///
    /// # Errors
    /// Those of [`rates`](Self::rates).
    pub async fn history(&self, sizes: &[&str], regions: &[&str], os: Os) -> Result<Vec<PastPrices>> {
        let query = format!(
            "SpotResources | where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location' \
             | where sku.name in~ ({}) and location in~ ({}) and properties.osType =~ '{}' \
             | project skuName=tostring(sku.name), location, spotPrices=properties.spotPrices",
            list(sizes),
            list(regions),
            os.to_string().to_lowercase()
        );
        let rows: Vec<HistoryRow> = self.table(&query).await?;
        let prices = |row: HistoryRow| PastPrices {
            size: row.sku_name.to_lowercase(),
            region: row.location.to_lowercase(),
            prices: row.spot_prices.into_iter().flatten().filter_map(PriceRow::read).collect(),
        };
        Ok(rows.into_iter().map(prices).collect())
    }

    /// Requests the scores for `count` more VMs of each size in each region.
    ///
    /// # Errors
    /// Those of [`rates`](Self::rates); [`Invalid`](ErrorKind::Invalid) for what is no subscription's id.
    pub async fn scores(
        &self,
        subscription: &str,
        sizes: &[&str],
        regions: &[&str],
        count: u32,
    ) -> Result<Vec<Placement>> {
        // In one form, since other ones would be other paths.
        let Ok(subscription) = uuid::Uuid::try_parse(subscription).map(uuid::Uuid::hyphenated) else {
            let message =
                format!("{subscription:?} is no subscription's id; `az account show --query id` shows it");
            return Err(Error::new(ErrorKind::Invalid, OPERATION, message));
        };
        let mut placements: Vec<Box<RawValue>> = Vec::new();
        for regions in regions.chunks(SCORE_REGIONS_MAX) {
            for sizes in sizes.chunks(SCORE_SIZES_MAX) {
                let sizes: Vec<_> = sizes.iter().map(|sku| json!({ "sku": sku })).collect();
                let body = json!({
                    "desiredLocations": regions,
                    "desiredSizes": sizes,
                    "desiredCount": count,
                    "availabilityZones": false,
                });
                let path = format!(
                    "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{}/placementScores/spot/generate",
                    regions[0]
                );
                let role = "Compute Recommendations Role";
                let Scores { placement_scores } = self.post(&path, SCORES_API_VERSION, &body, role).await?;
                placements.extend(placement_scores);
            }
        }
        self.rows(&placements)
    }

    /// All rows of a query. It is not limited to subscriptions: what Spot does belongs to none of them.
    async fn table<T: DeserializeOwned>(&self, query: &str) -> Result<Vec<T>> {
        let mut rows: Vec<Box<RawValue>> = Vec::new();
        let mut skip_token: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut options = json!({ "resultFormat": "objectArray" });
            if let Some(token) = skip_token {
                options["$skipToken"] = token.into();
            }
            let body = json!({ "query": query, "options": options });
            let path = "/providers/Microsoft.ResourceGraph/resources";
            let page: Page = self.post(path, GRAPH_API_VERSION, &body, "Reader").await?;
            rows.extend(page.data);
            skip_token = page.skip_token.filter(|token| !token.is_empty());
            if skip_token.is_none() {
                return self.rows(&rows);
            }
        }
        Err(Error::new(ErrorKind::TooLarge, OPERATION, format!("there are more than {PAGES_MAX} pages")))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        api_version: &str,
        body: &Value,
        role: &str,
    ) -> Result<T> {
        let token = match &self.tokens {
            Some(tokens) => Some(tokens.token().await?),
            None => None,
        };
        let post = Post { body, token: token.as_ref().map(crate::identity::Token::secret) };
        let url = self.web.url(path, &format!("api-version={api_version}"));
        let answer = self.web.read(&url, Some(post)).await.map_err(|error| match error.kind() {
            ErrorKind::Denied => {
                let message = format!(
                    "{}; give this identity the role \"{role}\" on the subscription",
                    error.message()
                );
                Error::new(ErrorKind::Denied, OPERATION, message)
            }
            _ => error,
        })?;
        serde_json::from_slice(&answer).map_err(|error| self.corrupt(error))
    }

    /// Reads rows. Those that can't be read are left out and logged, unless none can be read: then the service has
    /// changed.
    fn rows<T: DeserializeOwned>(&self, rows: &[Box<RawValue>]) -> Result<Vec<T>> {
        let (mut read, mut faults) = (Vec::new(), Vec::new());
        for row in rows {
            match serde_json::from_str(row.get()) {
                Ok(row) => read.push(row),
                Err(error) => faults.push(error),
            }
        }
        let skipped = faults.len();
        match faults.into_iter().next() {
            Some(error) if read.is_empty() => Err(self.corrupt(error)),
            Some(error) => {
                tracing::warn!(skipped, %error, "rows of what Azure knows about Spot can't be read; leaving them out");
                Ok(read)
            }
            None => Ok(read),
        }
    }

    fn corrupt(&self, error: serde_json::Error) -> Error {
        let message = format!("the answer of {} is not as documented: {error}", self.web.base());
        Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
    }
}

impl PriceRow {
    fn read(self) -> Option<PastPrice> {
        // The number may be written as a text.
        let price = parse_price(self.price?.get().trim_matches('"'))?;
        if price.nanos_per_hour() == 0 {
            // No machine is free: the price is unknown.
            return None;
        }
        Some(PastPrice { price, since: self.since.and_then(|since| since.parse().ok()) })
    }
}

/// Names as texts of a query. They are those of a [`Query`](crate::prices::Query), without quotes.
fn list(names: &[&str]) -> String {
    let mut list = String::new();
    for name in names {
        let name: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect();
        let separator = if list.is_empty() { "" } else { ", " };
        // Writing to a string can't fail.
        let _infallible = write!(list, "{separator}'{}'", name.to_lowercase());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_a_query() {
        assert_eq!(list(&["Standard_D4s_v5", "a'b"]), "'standard_d4s_v5', 'ab'");
    }
}
