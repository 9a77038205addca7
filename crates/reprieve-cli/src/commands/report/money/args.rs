//! Where prices come from: flags, a file, the cache, or the service if that is asked for.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::prices::{Os, Query, parse_price};
use reprieve_azure::spot::{Client, MANAGEMENT_URL};
use reprieve_core::ledger::Life;
use reprieve_plan::Price;

use super::book::{Basis, Book, Entry, steps};
use super::file;
use crate::commands::prices::{Lookup, ServiceArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct MoneyArgs {
    /// What the machines cost: `ask`, `cache`, or a file
    ///
    /// ask: the public Azure Retail Prices API, for the sizes and regions in the ledger. cache: what `reprieve
    /// prices` has kept, without a request. Else a file with the output of `reprieve prices --json`; its past
    /// prices, which --subscription adds there, count at their time.
    #[arg(long, value_name = "SOURCE", conflicts_with = "spot_price")]
    prices: Option<Source>,

    /// Also asks Azure Resource Graph for the Spot prices of 90 days, so that each hour counts at its price
    ///
    /// With the identity of this machine: workload identity, managed identity, or `az login`. It needs the role
    /// Reader; without it, the report says so and takes the present price.
    #[arg(long, requires = "prices", conflicts_with_all = ["spot_price", "regular_price"])]
    price_history: bool,

    /// Prices of Windows instead of Linux
    #[arg(long, requires = "prices", conflicts_with_all = ["spot_price", "regular_price"])]
    windows: bool,

    /// What a Spot machine cost, in US dollars for an hour; for a fleet of one size
    #[arg(long, value_name = "USD", requires = "regular_price", value_parser = price)]
    spot_price: Option<Price>,

    /// What a regular machine costs, in US dollars for an hour
    #[arg(long, value_name = "USD", requires = "spot_price", value_parser = price)]
    regular_price: Option<Price>,

    #[command(flatten)]
    service: ServiceArgs,

    /// Azure Resource Manager, or a mock of it on this machine
    #[arg(long, value_name = "URL", default_value = MANAGEMENT_URL, env = "REPRIEVE_MANAGEMENT_URL", hide = true)]
    management_url: String,
}

/// The value of `--prices`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Ask,
    Cache,
    File(PathBuf),
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        match text {
            "ask" => Self::Ask,
            "cache" => Self::Cache,
            file => Self::File(file.into()),
        }
    }
}

impl MoneyArgs {
    /// Finds the prices of these machines; `None` if no flag gives any.
    pub(crate) async fn book(&self, lives: &[Life]) -> Result<Option<Book>> {
        if let Some((spot, regular)) = self.spot_price.zip(self.regular_price) {
            return given(spot, regular, lives).map(Some);
        }
        let os = if self.windows { Os::Windows } else { Os::Linux };
        let mut book = match &self.prices {
            None => return Ok(None),
            Some(Source::File(file)) => file::read(file, os)?,
            Some(Source::Ask) => self.look_up(Lookup::Service, lives, os).await?,
            Some(Source::Cache) => self.look_up(Lookup::Cache, lives, os).await?,
        };
        if self.price_history {
            self.add_history(&mut book, lives, os).await?;
        }
        Ok(Some(book))
    }

    async fn look_up(&self, lookup: Lookup, lives: &[Life], os: Os) -> Result<Book> {
        // A size that Azure can't have, such as one of another cloud, has no price, and hides no other.
        let query = |(size, region): (&str, &str)| Query::new(size, region, "USD").ok();
        let queries: Vec<_> = places(lives).into_iter().filter_map(query).collect();
        let mut book = Book::new("USD");
        if queries.is_empty() {
            return Ok(book);
        }
        let found = lookup.pairs(&self.service, &queries, os).await?;
        book.notes = found.notes;
        for (query, pair) in queries.iter().zip(found.pairs) {
            book.notes.extend(pair.problem);
            let spot = pair.spot.and_then(|price| steps([(i64::MIN, price)]));
            if spot.is_some() || pair.regular.is_some() {
                let entry = Entry { spot, regular: pair.regular, basis: Basis::Now };
                book.insert(query.size(), query.region(), entry);
            }
        }
        Ok(book)
    }

    /// Adds the prices of the last 90 days where Azure has them. What can't be had is noted.
    async fn add_history(&self, book: &mut Book, lives: &[Life], os: Os) -> Result<()> {
        if book.currency != "USD" {
            book.notes
                .push(format!("past prices are in US dollars, and these in {}: left out", book.currency));
            return Ok(());
        }
        let places = places(lives);
        let sizes = distinct(places.iter().map(|it| it.0));
        let regions = distinct(places.iter().map(|it| it.1));
        if places.is_empty() {
            return Ok(());
        }
        let client = Client::of_this_machine(&self.management_url)?;
        match client.history(&sizes, &regions, os).await {
            Err(error) => {
                book.notes.push(format!("past prices are unknown, so present ones count: failed to {error}"));
            }
            Ok(history) => {
                for past in history {
                    let known =
                        past.prices.iter().filter_map(|it| Some((it.since?.as_millisecond(), it.price)));
                    book.set_history(&past.size, &past.region, steps(known));
                }
            }
        }
        Ok(())
    }
}

/// The prices of the flags, for machines of one size in one region at most.
fn given(spot: Price, regular: Price, lives: &[Life]) -> Result<Book> {
    let places = places(lives);
    if places.len() > 1 {
        let names: Vec<_> = places.iter().map(|(size, region)| format!("{size} in {region}")).collect();
        let message = format!(
            "the machines are {}, and one price can't be that of all; give --prices ask, cache, or a file of `reprieve \
             prices --json`",
            names.join(", ")
        );
        return Err(Error::new(ErrorKind::Invalid, "count the money", message));
    }
    Ok(Book::of_all(spot, regular))
}

/// The sizes and regions of the machines, each once.
fn places(lives: &[Life]) -> BTreeSet<(&str, &str)> {
    lives
        .iter()
        .map(|life| (life.machine.size.as_str(), life.machine.region.as_str()))
        .filter(|(size, region)| !size.is_empty() && !region.is_empty())
        .collect()
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Reads a price in US dollars.
fn price(text: &str) -> Result<Price, String> {
    let price = parse_price(text.trim()).filter(|price| price.nanos_per_hour() > 0);
    price.ok_or_else(|| "it must be US dollars for an hour, above 0, such as 0.046".to_owned())
}
