//! `reprieve prices watch`: compares a Spot price with a max price. It changes nothing in Azure.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use reprieve::{Error, ErrorKind, Result, clock};
use reprieve_azure::prices::{NoPrice, Os, PricePair, Query, price_text, select};
use reprieve_plan::Price;
use serde::Serialize;
use tokio::time::sleep;

use super::ServiceArgs;
use super::book::Book;
use super::number::number;
use super::page::percent;
use super::verdict::{COMMANDS, Verdict, advice, left_permille, margin, max_price};
use crate::format::{duration, plain};
use crate::out::{Out, print_stderr};

/// The end of `prices watch --help`.
pub(super) const AFTER_HELP: &str = "\
A line has the time, the Spot price, the max price, and how they compare:
  below    the max price is above the Spot price by the margin or more
  close    the Spot price is closer than the margin
  reached  the Spot price is the max price or above; from above it VMs are evicted
When it becomes close or reached, stderr says what raises the max price: deallocating first, which
the watch never does. Azure bills the Spot price, never the max price.

Durations are a number and a unit: 500ms, 10s, 5m, 1h.
On SIGTERM or SIGINT (Ctrl-C) the watch exits.
Exit codes: 0 stopped, or with --once below; 1 failed; 2 wrong usage, or an unknown size or region;
with --once also 3 close; 4 reached.
Data goes to stdout, everything else to stderr.";

/// The exit codes of `--once`.
const CLOSE: u8 = 3;
const REACHED: u8 = 4;

#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub(super) struct WatchArgs {
    /// The max price of the VMs, in US dollars for an hour
    #[arg(long, value_name = "USD", value_parser = max_price, allow_negative_numbers = true)]
    max_price: Price,

    /// The VM size, such as Standard_D4s_v5
    #[arg(long)]
    size: String,

    /// The region, such as westeurope
    #[arg(long)]
    region: String,

    /// Prices of Windows instead of Linux
    #[arg(long)]
    windows: bool,

    /// How close to the max price a Spot price is reported as close, in percent of the max price
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = margin)]
    margin: u32,

    /// The time between two comparisons
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = crate::values::nonzero_duration)]
    every: Duration,

    /// Compares once and exits with the result
    #[arg(long, conflicts_with = "every")]
    once: bool,

    /// Prints JSON, one object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: ServiceArgs,
}

/// A line of the output.
#[derive(Debug, Serialize)]
struct Compared {
    at: Timestamp,
    size: String,
    region: String,
    os: Os,
    currency: &'static str,
    #[serde(serialize_with = "number")]
    spot: Option<Price>,
    #[serde(serialize_with = "number")]
    regular: Option<Price>,
    #[serde(serialize_with = "number")]
    max_price: Option<Price>,
    /// How much of the max price is left, in thousandths of it.
    left_permille: i64,
    verdict: Verdict,
    /// What removes the max price, where it is close.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    commands: &'static [&'static str],
}

pub(super) async fn run(args: WatchArgs) -> Result<ExitCode> {
    // A max price is in US dollars, whatever the bill is in.
    let query = Query::new(&args.size, &args.region, "USD")?;
    let book = args.service.open()?;
    let mut out = Out::new();
    if args.once {
        let compared = compare(&book, &query, &args).await?;
        compared.print(&args, &mut out)?;
        compared.print_advice();
        return Ok(compared.verdict.code());
    }
    let stopped = reprieve::stop_signal()?;
    tokio::select! {
        ended = watch(&book, &query, &args, &mut out) => ended.map(|()| ExitCode::SUCCESS),
        _ = stopped => Ok(ExitCode::SUCCESS),
    }
}

/// Compares until stdout is closed. A request that fails is reported, and the watch goes on.
async fn watch(book: &Book, query: &Query, args: &WatchArgs, out: &mut Out) -> Result<()> {
    let mut last = None;
    while !out.closed() {
        match compare(book, query, args).await {
            Ok(compared) => {
                compared.print(args, out)?;
                if last != Some(compared.verdict) {
                    compared.print_advice();
                }
                last = Some(compared.verdict);
            }
            // Once there was a price, the size and the region are right, and the service has a bad day.
            Err(error) if error.kind() == ErrorKind::Invalid && last.is_none() => return Err(error),
            Err(error) => print_stderr(&plain(&format!(
                "failed to {error}; the next comparison is in {}",
                duration(args.every)
            ))),
        }
        sleep(args.every).await;
    }
    Ok(())
}

/// Asks the service: a price of the cache says nothing about now.
async fn compare(book: &Book, query: &Query, args: &WatchArgs) -> Result<Compared> {
    let os = super::os(args.windows);
    let (meters, notes) = book.ask(query).await?;
    for note in notes {
        print_stderr(&plain(&note));
    }
    let pair = select(&meters, query, os, clock::wall_now()).map_err(|fault| {
        let unknown = matches!(fault, NoPrice::UnknownSize { .. } | NoPrice::UnknownRegion { .. });
        let kind = if unknown { ErrorKind::Invalid } else { ErrorKind::NotFound };
        Error::new(kind, "compare the prices", fault.to_string())
    })?;
    let at = Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default();
    Ok(Compared::new(at, query, os, &pair, args))
}

impl Compared {
    fn new(at: Timestamp, query: &Query, os: Os, pair: &PricePair, args: &WatchArgs) -> Self {
        let verdict = Verdict::of(pair.spot, args.max_price, args.margin);
        Self {
            at,
            size: pair.size.clone(),
            region: query.region().to_owned(),
            os,
            currency: "USD",
            spot: Some(pair.spot),
            regular: Some(pair.regular),
            max_price: Some(args.max_price),
            left_permille: left_permille(pair.spot, args.max_price),
            verdict,
            commands: if verdict == Verdict::Below { &[] } else { &COMMANDS },
        }
    }

    fn print(&self, args: &WatchArgs, out: &mut Out) -> Result<()> {
        if args.json {
            out.json(self)?;
            out.text("\n")?;
        } else {
            out.text(&self.line(&TimeZone::system()))?;
        }
        out.flush()
    }

    fn line(&self, zone: &TimeZone) -> String {
        let at = self.at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let [spot, max] = [self.spot, self.max_price].map(|price| price.map(price_text).unwrap_or_default());
        let (size, region, left) = (&self.size, &self.region, percent(self.left_permille));
        format!(
            "{at}  {:<7}  Spot {spot} USD of max {max} USD, {left} left, {size} in {region}\n",
            self.verdict.to_string()
        )
    }

    fn print_advice(&self) {
        if let Some(max) = self.max_price.filter(|_| self.verdict != Verdict::Below) {
            print_stderr(&advice(self.verdict, max, self.regular));
        }
    }
}

impl Verdict {
    /// The exit code of `--once`.
    fn code(self) -> ExitCode {
        match self {
            Self::Below => ExitCode::SUCCESS,
            Self::Close => ExitCode::from(CLOSE),
            Self::Reached => ExitCode::from(REACHED),
        }
    }
}
