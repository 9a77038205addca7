//! Prices for other commands: from the service, or from the cache alone.

use std::time::Duration;

use reprieve::{Result, clock};
use reprieve_azure::prices::{NoPrice, Os, PricePair, Query, select};
use reprieve_plan::Price;

use super::ServiceArgs;

/// How old a price of the cache may be to be taken without a request, as in `reprieve prices`.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Where prices may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The service, or a young cache.
    Service,
    /// The cache alone, however old.
    Cache,
}

/// What was found for one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) regular: Option<Price>,
    pub(crate) spot: Option<Price>,
    /// Why a price is missing.
    pub(crate) problem: Option<String>,
}

/// What was found for queries in their order, and what is to be said about it.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) notes: Vec<String>,
}

impl Lookup {
    /// Why there is no price, with what to do about it in another command than `reprieve prices`.
    fn problem(self, query: &Query, why: String) -> String {
        match self {
            Self::Service => why,
            Self::Cache => format!(
                "the cache has no price of {} in {} in {}; `reprieve prices` puts it there",
                query.size(),
                query.region(),
                query.currency()
            ),
        }
    }

    /// Finds the prices for these queries.
    pub(crate) async fn pairs(self, service: &ServiceArgs, queries: &[Query], os: Os) -> Result<Pairs> {
        let book = service.open()?;
        let findings = match self {
            Self::Service => book.find(queries, MAX_AGE).await,
            Self::Cache => book.offline(queries),
        };
        let pairs = queries.iter().zip(findings.found).map(|(query, found)| match found {
            Ok(found) => Pair::of(select(&found.meters, query, os, clock::wall_now())),
            Err(why) => Pair { regular: None, spot: None, problem: Some(self.problem(query, why)) },
        });
        Ok(Pairs { pairs: pairs.collect(), notes: findings.notes })
    }
}

impl Pair {
    fn of(selected: Result<PricePair, NoPrice>) -> Self {
        match selected {
            Ok(pair) => Self { regular: Some(pair.regular), spot: Some(pair.spot), problem: None },
            Err(fault) => {
                let problem = Some(fault.to_string());
                let regular = if let NoPrice::NoSpot { regular, .. } = fault { Some(regular) } else { None };
                Self { regular, spot: None, problem }
            }
        }
    }
}
