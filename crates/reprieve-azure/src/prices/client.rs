//! Reads all pages of the Retail Prices API for a query.

use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Url;
use serde::Deserialize;

use super::meters::Rows;
use super::query::API_VERSION;
use super::{Meters, Query};
use crate::web::{Service, Web};

/// The address of the Retail Prices API. It is public and asks for no identity.
/// <https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices>
pub const PRICES_URL: &str = "https://prices.azure.com";

const SERVICE: Service = Service { operation: OPERATION, url: PRICES_URL };

/// The operation, as in "failed to …".
const OPERATION: &str = "read the retail prices";

/// How many pages are read for one query. A size has a few dozen meters, less than one page.
const PAGES_MAX: usize = 100;

/// How many queries are asked at once. The service limits its clients, by a measure that it does not tell.
const AT_ONCE: usize = 4;

/// A client of the Retail Prices API. Cheap to clone.
///
/// It follows the link of each page to the next, and only to the same service. A page that is refused with
/// 429 or 5xx, or breaks off, is requested five times in all, after 1, 2, 4 and 8 s, or after the pause that the
/// service asks for if that is longer, up to a minute; one of a service that can't be reached twice.
#[derive(Debug, Clone)]
pub struct Client {
    web: Web,
}

/// A page, without what describes the request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    items: Rows,
    #[serde(default)]
    next_page_link: Option<String>,
}

impl Client {
    /// Creates a client of the service at `base`, such as [`PRICES_URL`](super::PRICES_URL).
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when `base` is not an `https://` address, or one of this machine.
    pub fn new(base: &str) -> Result<Self> {
        Web::new(base, &SERVICE).map(|web| Self { web })
    }

    /// The service's address.
    #[must_use]
    pub fn base(&self) -> &str {
        self.web.base()
    }

    /// Requests the meters of the size. If there are none, it looks for the size in another spelling, and
    /// then for any meters of the region, so that [`select`](super::select()) can say what is unknown.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) and [`TimedOut`](ErrorKind::TimedOut) when the service does
    /// not answer or is busy, [`Invalid`](ErrorKind::Invalid) when it refuses the request,
    /// [`Corrupt`](ErrorKind::Corrupt) when an answer is no page of prices, has no row that can be read, or links to
    /// another host, and [`TooLarge`](ErrorKind::TooLarge) when there is too much of it. Single rows that can't be read
    /// are left out and [counted](Meters::skipped).
    pub async fn meters(&self, query: &Query) -> Result<Meters> {
        for version in [Some(API_VERSION), None] {
            let meters = self.pages(self.url(&query.of_size(version))).await?;
            if !meters.is_empty() {
                return Ok(meters);
            }
        }
        let (meters, _) = self.page(&self.url(&query.of_region())).await?;
        self.checked(meters)
    }

    /// Requests the meters of many queries, a few at once; the answers are in the order of the queries.
    /// After a temporary failure the rest is not asked for: a service that is away would cost every query
    /// its retries.
    pub async fn meters_of(&self, queries: &[Query]) -> Vec<Result<Meters>> {
        let away: Mutex<Option<(ErrorKind, String)>> = Mutex::default();
        let away = || away.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = async |query: &Query| {
            let known = away().clone();
            if let Some((kind, message)) = known {
                return Err(Error::new(kind, OPERATION, message));
            }
            let meters = self.meters(query).await;
            if let Some(error) = meters.as_ref().err().filter(|error| error.is_temporary()) {
                *away() = Some((error.kind(), error.message().to_owned()));
            }
            meters
        };
        stream::iter(queries).map(ask).buffered(AT_ONCE).collect().await
    }

    fn url(&self, parameters: &str) -> Url {
        self.web.url("/api/retail/prices", parameters)
    }

    async fn pages(&self, first: Url) -> Result<Meters> {
        let mut read: Vec<Url> = Vec::new();
        let mut meters = Meters::default();
        let mut next = Some(first);
        while let Some(url) = next {
            let (of_page, link) = self.page(&url).await?;
            read.push(url);
            meters.extend(of_page);
            let link = link.filter(|link| !link.is_empty());
            next = link.map(|link| self.web.follow(&link)).transpose()?;
            if next.as_ref().is_some_and(|next| read.contains(next)) {
                return Err(corrupt("the link to the next page leads back to an earlier one"));
            }
            if next.is_some() && read.len() >= PAGES_MAX {
                let message = format!("there are more than {PAGES_MAX} pages of one size");
                return Err(Error::new(ErrorKind::TooLarge, OPERATION, message));
            }
        }
        self.checked(meters)
    }

    /// Refuses an answer of which no row can be read.
    fn checked(&self, meters: Meters) -> Result<Meters> {
        match meters.all_unread() {
            Some(fault) => Err(self.no_page(fault)),
            None => Ok(meters),
        }
    }

    fn no_page(&self, why: impl std::fmt::Display) -> Error {
        corrupt(format!("the answer of {} is no page of prices: {why}", self.base()))
    }

    /// Requests a page: its meters, and the link to the next one.
    async fn page(&self, url: &Url) -> Result<(Meters, Option<String>)> {
        let body = self.web.read(url, None).await?;
        let page: Page =
            serde_json::from_slice(&body).map_err(|error| self.no_page(&error).with_source(error))?;
        Ok((Meters::read(&page.items), page.next_page_link))
    }
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, OPERATION, message)
}
