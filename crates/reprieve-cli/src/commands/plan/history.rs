//! The file of `--price-history`: Spot prices over time, as `reprieve prices --json` prints them or in CSV.

use std::path::Path;

use jiff::Timestamp;
use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::prices::parse_price;
use reprieve_plan::Price;
use reprieve_plan::fleet::PriceSteps;
use reprieve_plan::support::{check_region, check_size};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::files;

const HEADER: &str = "since_utc,price_usd";

/// Prices from the first one on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History {
    /// The file's name.
    pub(super) name: String,
    pub(super) steps: PriceSteps,
    /// How many prices it has, and from the first to the last.
    pub(super) count: usize,
    pub(super) spans_ms: u64,
}

#[derive(Deserialize)]
struct File {
    prices: Vec<Quote>,
}

#[derive(Deserialize)]
struct Quote {
    #[serde(default)]
    size: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    azure: Option<Azure>,
}

#[derive(Deserialize)]
struct Azure {
    #[serde(default)]
    past_prices_usd: Vec<Past>,
}

#[derive(Deserialize)]
struct Past {
    #[serde(default)]
    price: Option<Box<RawValue>>,
    #[serde(default)]
    since: Option<Timestamp>,
}

impl Quote {
    /// Whether there are such Spot machines, as far as the file says what they are.
    fn check(&self) -> std::result::Result<(), String> {
        let of_size = if self.size.is_empty() { Ok(()) } else { check_size(&self.size) };
        of_size
            .and_then(|()| check_region(&self.region))
            .map_err(|fault| format!("has no prices of Spot machines: {fault}"))?;
        if self.os.is_empty() || self.os.eq_ignore_ascii_case("linux") {
            return Ok(());
        }
        Err(format!(
            "has prices of {} machines, and such a plan is of Linux: ask for them without --windows",
            self.os
        ))
    }
}

impl History {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a file that can't be read, or that has no prices of one market.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let refused =
            |why: String| Error::new(ErrorKind::Invalid, "read the price history", format!("{name} {why}"));
        let text = files::text(path).map_err(refused)?;
        let prices = prices(text.trim_start_matches('\u{feff}').trim_start()).map_err(refused)?;
        let Some((first, later)) = prices.split_first() else {
            return Err(refused("has no price with its time".to_owned()));
        };
        let since = |at_ms: i64| u64::try_from(at_ms.saturating_sub(first.0)).unwrap_or(0);
        Ok(Self {
            steps: PriceSteps::new(first.1, later.iter().map(|(at_ms, price)| (since(*at_ms), *price))),
            count: prices.len(),
            spans_ms: prices.last().map_or(0, |(at_ms, _)| since(*at_ms)),
            name: name.clone(),
        })
    }
}

/// Prices with their times, which rise.
fn prices(text: &str) -> std::result::Result<Vec<(i64, Price)>, String> {
    let mut prices = if text.starts_with('{') { of_json(text)? } else { of_csv(text)? };
    prices.sort_by_key(|(at_ms, _)| *at_ms);
    if let Some(pair) = prices.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let at = Timestamp::from_millisecond(pair[0].0).map(|at| at.to_string()).unwrap_or_default();
        return Err(format!("has two prices from {at} on: give one"));
    }
    prices.dedup_by_key(|(at_ms, _)| *at_ms);
    Ok(prices)
}

fn of_json(text: &str) -> std::result::Result<Vec<(i64, Price)>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("has not the form of `reprieve prices --json`: {error}"))?;
    let histories = file.prices.into_iter().filter_map(|mut quote| {
        let past = quote.azure.take()?.past_prices_usd;
        (!past.is_empty()).then_some((quote, past))
    });
    let mut histories = histories.collect::<Vec<_>>();
    let (quote, history) = histories
        .pop()
        .ok_or("has no past prices: `reprieve prices --subscription ID --json` prints them")?;
    if !histories.is_empty() {
        return Err("has past prices of several markets: give those of one size in one region".to_owned());
    }
    quote.check()?;
    let rows = history.into_iter().enumerate().filter_map(|(index, Past { price, since })| {
        // Azure may leave one out.
        let price = price?;
        let read = of_text(price.get()).ok_or_else(|| {
            format!("has no price above zero in row {} of past_prices_usd, such as 0.046", index + 1)
        });
        read.map(|price| Some((since?.as_millisecond(), price))).transpose()
    });
    rows.collect()
}

fn of_csv(text: &str) -> std::result::Result<Vec<(i64, Price)>, String> {
    let mut lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    if lines.next().is_none_or(|(_, header)| header != HEADER) {
        return Err(format!(
            "is neither the output of `reprieve prices --json` nor CSV below a line `{HEADER}`"
        ));
    }
    let price = |line: &str| {
        let (since, price) = line.split_once(',')?;
        Some((since.trim().parse::<Timestamp>().ok()?.as_millisecond(), of_text(price.trim())?))
    };
    lines
        .map(|(index, line)| {
            price(line).ok_or_else(|| {
                format!("has no time and price in line {}, such as 2026-01-31T08:00:00Z,0.046", index + 1)
            })
        })
        .collect()
}

/// A price above zero.
fn of_text(text: &str) -> Option<Price> {
    parse_price(text).filter(|price| price.nanos_per_hour() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> std::result::Result<Vec<(i64, u64)>, String> {
        Ok(prices(text)?.into_iter().map(|(at_ms, price)| (at_ms, price.nanos_per_hour())).collect())
    }

    #[test]
    fn prices_are_read_in_the_order_of_their_times() {
        let csv = "since_utc,price_usd\r\n1970-01-01T02:00:00Z, 0.05\r\n\r\n1970-01-01T00:00:00Z,0.04\r\n";
        let expected = Ok(vec![(0, 40_000_000), (7_200_000, 50_000_000)]);
        assert_eq!(found(csv), expected);
        let json = r#"{"prices":[{"azure":null},{"azure":{"past_prices_usd":[
            {"price":0.05,"since":"1970-01-01T02:00:00Z"},{"price":0.04,"since":"1970-01-01T00:00:00Z"},
            {"price":0.09,"since":null}]}}]}"#;
        assert_eq!(found(json), expected);
    }

    #[test]
    fn what_is_no_history_has_a_sentence() {
        let one = r#"{"azure":{"past_prices_usd":[{"price":0.05,"since":"1970-01-01T02:00:00Z"}]}}"#;
        let of = |what: &str| {
            format!(r#"{{"prices":[{{{what},{}}}]}}"#, one.trim_matches(['{', '}']).to_owned() + "}")
        };
        let second = |price: &str| {
            format!(
                r#"{{"prices":[{{"azure":{{"past_prices_usd":[{{"price":0.05,"since":"1970-01-01T02:00:00Z"}},
                    {{"price":{price},"since":"1970-01-01T03:00:00Z"}}]}}}}]}}"#
            )
        };
        for (text, why) in [
            ("", "is neither the output of"),
            ("a,b\n1,2\n", "is neither the output of"),
            ("since_utc,price_usd\nyesterday,0.04\n", "has no time and price in line 2"),
            ("since_utc,price_usd\n1970-01-01T00:00:00Z,-1\n", "has no time and price in line 2"),
            (
                "since_utc,price_usd\n1970-01-01T00:00:00Z,1\n1970-01-01T00:00:00Z,2\n",
                "has two prices from 1970",
            ),
            ("{}", "has not the form of"),
            (r#"{"prices":[]}"#, "has no past prices"),
            (&format!(r#"{{"prices":[{one},{one}]}}"#), "has past prices of several markets"),
            (&second("-0.05"), "has no price above zero in row 2 of past_prices_usd"),
            (&second("\"0.05\""), "has no price above zero in row 2 of past_prices_usd"),
            (&second("0"), "has no price above zero in row 2 of past_prices_usd"),
            (
                &of(r#""size":"Standard_B2s","os":"linux""#),
                "has no prices of Spot machines: Standard_B2s is of the B",
            ),
            (&of(r#""size":"D4""#), "has no prices of Spot machines: "),
            (
                &of(r#""region":"chinanorth3""#),
                "has no prices of Spot machines: chinanorth3 is in 21Vianet's",
            ),
            (
                &of(r#""size":"Standard_D4s_v5","os":"windows""#),
                "has prices of windows machines, and such a plan is of",
            ),
        ] {
            let fault = found(text).expect_err(why);
            assert!(fault.starts_with(why), "{fault}");
        }
    }
}
