//! `reprieve prices`: the regular and the Spot price of VM sizes, from the Retail Prices API.

mod book;
mod cache;
mod lookup;
mod number;
mod page;
mod spot;
mod verdict;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};
use reprieve::{Result, clock};
use reprieve_azure::prices::{Client, NoPrice, Os, PRICES_URL, Query, select};

use self::book::Book;
pub(super) use self::book::{Found, Source as PriceSource};
use self::cache::Cache;
pub(crate) use self::lookup::Lookup;
pub(super) use self::number::number;
use self::page::{Answer, Quote};
use self::spot::SpotArgs;
pub(super) use self::spot::{Known, Question, subscription};
use crate::format::plain;
use crate::out::{answer, print_stderr};

/// The end of `prices --help`.
const AFTER_HELP: &str = "\
Prices are those of pay-as-you-go, for an hour, before your own discounts. They are kept in a cache:
REPRIEVE_CACHE_DIR, else reprieve/prices in the user's cache directory.
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
Exit codes: 0 every price was found; 1 one was not; 2 wrong usage, or an unknown size or region.
Data goes to stdout, everything else to stderr.";

/// The exit code when a price is missing.
const MISSING: u8 = 1;

/// The exit code for an unknown size or region.
const USAGE: u8 = 2;

/// Shows the regular and the Spot price of VM sizes, and watches a max price
///
/// The prices are the public ones of the Azure Retail Prices API, which asks for no login.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    table: TableArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares the Spot price of a size with a max price, again and again
    #[command(after_help = watch::AFTER_HELP)]
    Watch(watch::WatchArgs),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
struct TableArgs {
    /// The VM sizes, separated by commas, such as Standard_D4s_v5
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', required = true)]
    sizes: Vec<String>,

    /// The regions, separated by commas, such as westeurope
    #[arg(long = "region", value_name = "REGIONS", value_delimiter = ',', required = true)]
    regions: Vec<String>,

    /// The currency of the prices
    #[arg(long, value_name = "CODE", default_value = "USD")]
    currency: String,

    /// Prices of Windows instead of Linux
    #[arg(long)]
    windows: bool,

    /// How old a price of the cache may be to be shown without a request
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = crate::values::duration)]
    max_age: Duration,

    /// Sends no request, and shows prices of the cache however old they are
    #[arg(long, conflicts_with = "max_age")]
    offline: bool,

    /// Prints JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    spot: SpotArgs,

    #[command(flatten)]
    service: ServiceArgs,
}

/// The service of prices, and the cache of its answers.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    /// The Retail Prices API, or a mock of it on this machine
    #[arg(long, value_name = "URL", default_value = PRICES_URL, env = "REPRIEVE_PRICES_URL")]
    prices_url: String,

    /// The directory of cached prices [default: in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "REPRIEVE_CACHE_DIR", value_parser = directory())]
    cache_dir: Option<PathBuf>,

    /// The user's cache directory, by the XDG Base Directory Specification.
    #[arg(long, value_name = "DIR", env = "XDG_CACHE_HOME", hide = true, value_parser = directory())]
    xdg_cache_home: Option<PathBuf>,
}

/// A directory, which may be empty: by the XDG Base Directory Specification that is none.
fn directory() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl ServiceArgs {
    pub(super) fn open(&self) -> Result<Book> {
        let client = Client::new(&self.prices_url)?;
        let given = self.cache_dir.clone().filter(|directory| !directory.as_os_str().is_empty());
        let directory = given.or_else(|| cache::default_directory(self.xdg_cache_home.clone()));
        let cache = Cache::new(directory, client.base());
        Ok(Book::new(client, cache))
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        super::log_warnings();
        let ran = match self.command {
            Some(Command::Watch(args)) => reprieve::block_on(watch::run(args)),
            None => reprieve::block_on(show(&self.table)),
        };
        ran.unwrap_or_else(|error| reprieve::fail(&error))
    }
}

async fn show(args: &TableArgs) -> Result<ExitCode> {
    let queries = queries(args)?;
    let book = args.service.open()?;
    let os = os(args.windows);
    let known = args.spot.ask(&queries, os).await?;
    let findings =
        if args.offline { book.offline(&queries) } else { book.find(&queries, args.max_age).await };
    for note in findings.notes.iter().chain(known.iter().flat_map(|known| &known.notes)) {
        print_stderr(&plain(note));
    }
    let quote = |(query, found)| {
        let facts = known.as_ref().map(|known| known.of(query));
        quote(query, found, os).knowing(facts)
    };
    let quotes = queries.iter().zip(findings.found).map(quote).collect();
    let shown = Answer::new(clock::unix_millis(), quotes);
    answer(args.json, &shown, || page::page(&shown))?;
    for problem in shown.problems() {
        print_stderr(&plain(&format!("error: {problem}")));
    }
    Ok(ExitCode::from(shown.code()))
}

pub(super) const fn os(windows: bool) -> Os {
    if windows { Os::Windows } else { Os::Linux }
}

/// Every size in every region, once.
fn queries(args: &TableArgs) -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for size in &args.sizes {
        for region in &args.regions {
            let query = Query::new(size.trim(), region.trim(), args.currency.trim())?;
            if !queries.contains(&query) {
                queries.push(query);
            }
        }
    }
    Ok(queries)
}

/// The prices that were found, or why there are none.
fn quote(query: &Query, found: Result<Found, String>, os: Os) -> Quote {
    let quote = Quote::of(query, os);
    let found = match found {
        Ok(found) => found,
        Err(why) => return quote.without(why, MISSING),
    };
    let quote = quote.asked(found.asked_unix_ms, found.source);
    match select(&found.meters, query, os, clock::wall_now()) {
        Ok(pair) => quote.priced(&pair),
        // Only the cache has no price any more; what the service has in its place is not known.
        Err(NoPrice::NoRegular { .. } | NoPrice::NoSpot { .. }) if found.has_ended() => {
            let (size, region) = (query.size(), query.region());
            let why = format!(
                "the price of {size} in {region} in the cache has ended; ask the service for the new one"
            );
            quote.without(why, MISSING)
        }
        Err(fault) => {
            let is_usage = matches!(fault, NoPrice::UnknownSize { .. } | NoPrice::UnknownRegion { .. });
            let quote = quote.without(fault.to_string(), if is_usage { USAGE } else { MISSING });
            match fault {
                NoPrice::NoSpot { size, regular, .. } => quote.regular_only(size, regular),
                _ => quote,
            }
        }
    }
}
