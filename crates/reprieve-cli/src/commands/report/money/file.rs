//! The file of `reprieve prices --json`.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::prices::{Os, parse_price};
use reprieve_plan::Price;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::book::{Basis, Book, Entry, steps};
use crate::files;

#[derive(Debug, Deserialize)]
struct File {
    prices: Vec<Quote>,
}

#[derive(Debug, Deserialize)]
struct Quote {
    size: String,
    region: String,
    os: Os,
    currency: String,
    #[serde(default)]
    regular: Option<Box<RawValue>>,
    #[serde(default)]
    spot: Option<Box<RawValue>>,
    #[serde(default)]
    azure: Option<Azure>,
}

#[derive(Debug, Default, Deserialize)]
struct Azure {
    #[serde(default)]
    past_prices_usd: Vec<Past>,
}

#[derive(Debug, Deserialize)]
struct Past {
    #[serde(default)]
    price: Option<Box<RawValue>>,
    #[serde(default)]
    since: Option<Timestamp>,
}

/// Reads the prices of a system.
pub(super) fn read(path: &Path, os: Os) -> Result<Book> {
    let refuse = |why: String| {
        let message = format!("{} {why}", path.display());
        Error::new(ErrorKind::Invalid, "read the prices", message)
    };
    let text = files::text(path)
        .map_err(|why| refuse(format!("{why}; --prices takes `ask`, `cache`, or a file")))?;
    let file: File = serde_json::from_str(&text).map_err(|error| {
        refuse(format!("has not the form of `reprieve prices --json`: {error}")).with_source(error)
    })?;
    book(file, os).map_err(refuse)
}

fn book(file: File, os: Os) -> Result<Book, String> {
    let of_os: Vec<_> = file.prices.into_iter().filter(|quote| quote.os == os).collect();
    let Some(first) = of_os.first() else {
        return Err(format!("has no price for {os}; ask `reprieve prices` for one"));
    };
    let mut book = Book::new(&first.currency);
    for quote in &of_os {
        if quote.currency != book.currency {
            return Err(format!("has prices in {} and {}; give one currency", book.currency, quote.currency));
        }
        if book.has(&quote.size, &quote.region) {
            return Err(format!("has two prices of {} in {}; give one", quote.size, quote.region));
        }
        let of = format!("of {} in {}", quote.size, quote.region);
        let spot = price(quote.spot.as_deref(), || format!("as `spot` {of}"))?;
        let regular = price(quote.regular.as_deref(), || format!("as `regular` {of}"))?;
        let now = spot.and_then(|price| steps([(i64::MIN, price)]));
        book.insert(&quote.size, &quote.region, Entry { spot: now, regular, basis: Basis::Now });
        let past = quote.azure.iter().flat_map(|azure| &azure.past_prices_usd);
        let history = history(past, &of)?;
        if book.currency == "USD" {
            book.set_history(&quote.size, &quote.region, steps(history));
        }
    }
    Ok(book)
}

/// Past prices with their times. What has no time or no price is left out, as Azure leaves it out.
fn history<'a>(past: impl Iterator<Item = &'a Past>, of: &str) -> Result<Vec<(i64, Price)>, String> {
    let mut known: BTreeMap<i64, Price> = BTreeMap::new();
    for (index, past) in past.enumerate() {
        let row = || format!("in row {} of past_prices_usd {of}", index + 1);
        let Some((since, price)) = past.since.zip(price(past.price.as_deref(), row)?) else { continue };
        if known.insert(since.as_millisecond(), price).is_some_and(|other| other != price) {
            return Err(format!("has two prices {of} from {since} on; give one"));
        }
    }
    Ok(known.into_iter().collect())
}

/// A price above zero, if there is one.
fn price(raw: Option<&RawValue>, place: impl Fn() -> String) -> Result<Option<Price>, String> {
    let Some(raw) = raw else { return Ok(None) };
    let price = parse_price(raw.get()).filter(|price| price.nanos_per_hour() > 0);
    price.map(Some).ok_or_else(|| format!("has no price above zero {}, such as 0.046", place()))
}

#[cfg(test)]
mod tests {
    use reprieve_core::ledger::Machine;

    use super::*;

    const FILE: &str = r#"{"at_unix_ms":1,"prices":[
        {"size":"Standard_D4s_v5","region":"westeurope","os":"linux","currency":"USD","regular":0.23,"spot":0.046,
         "discount_permille":800,"asked_unix_ms":1,"from":"service","problem":null,
         "azure":{"eviction_rate":null,"past_prices_usd":[{"price":0.05,"since":"1970-01-01T02:00:00Z"},
            {"price":0.04,"since":"1970-01-01T00:00:00Z"},{"price":0.09,"since":null}]}},
        {"size":"Standard_B2ms","region":"westeurope","os":"linux","currency":"USD","regular":0.096,"spot":null},
        {"size":"Standard_D4s_v5","region":"westeurope","os":"windows","currency":"USD","regular":0.4,"spot":0.08}]}"#;

    fn parse(text: &str, os: Os) -> Result<Book, String> {
        book(serde_json::from_str(text).expect(text), os)
    }

    #[test]
    fn a_file_has_prices_and_past_prices_of_each_size() {
        let linux = parse(FILE, Os::Linux).expect("prices");
        let machine = |size: &str| Machine {
            size: size.to_owned(),
            region: "westeurope".to_owned(),
            ..Machine::default()
        };
        let d4s = linux.of(&machine("Standard_D4s_v5")).expect("a price");
        assert_eq!((d4s.basis, d4s.regular), (Basis::History, Some(Price::from_nanos_per_hour(230_000_000))));
        // Three hours: two at 0.04, one at 0.05. What has no time is left out.
        let cost = d4s.spot.as_ref().expect("a price").cost(0, 3 * 3_600_000).cost;
        assert_eq!(cost.to_string(), "0.130000");
        let b2ms = linux.of(&machine("Standard_B2ms")).expect("a price");
        assert_eq!((b2ms.basis, &b2ms.spot), (Basis::Now, &None));
        let windows = parse(FILE, Os::Windows).expect("prices");
        assert_eq!(windows.of(&machine("Standard_D4s_v5")).expect("a price").basis, Basis::Now);
    }

    #[test]
    fn a_file_that_answers_twice_or_not_at_all_is_refused() {
        let euros = FILE.replacen("\"USD\"", "\"EUR\"", 1);
        let twice = FILE.replace("Standard_B2ms", "standard_d4s_v5");
        let with = |old: &str, new: &str| FILE.replacen(old, new, 1);
        for (text, os, why) in [
            (euros.as_str(), Os::Linux, "has prices in EUR and USD; give one currency"),
            (&twice, Os::Linux, "has two prices of standard_d4s_v5 in westeurope; give one"),
            (r#"{"prices":[]}"#, Os::Windows, "has no price for Windows"),
            (
                &with("0.046", "-0.046"),
                Os::Linux,
                "has no price above zero as `spot` of Standard_D4s_v5 in westeurope",
            ),
            (
                &with("0.23", "0"),
                Os::Linux,
                "has no price above zero as `regular` of Standard_D4s_v5 in westeurope",
            ),
            (
                &with("0.04,", "\"0.9\","),
                Os::Linux,
                "has no price above zero in row 2 of past_prices_usd of Standard_D4s_v5",
            ),
            (
                &with("0.05", "-1"),
                Os::Linux,
                "has no price above zero in row 1 of past_prices_usd of Standard_D4s_v5",
            ),
            (
                &with("02:00:00Z", "00:00:00Z"),
                Os::Linux,
                "has two prices of Standard_D4s_v5 in westeurope from 1970",
            ),
        ] {
            let fault = parse(text, os).expect_err(why);
            assert!(fault.starts_with(why), "{fault}");
        }
    }

    #[test]
    fn past_prices_are_in_dollars_and_left_out_beside_others() {
        let euros = parse(&FILE.replace("\"USD\"", "\"EUR\""), Os::Linux).expect("prices");
        let machine = Machine {
            size: "Standard_D4s_v5".to_owned(),
            region: "westeurope".to_owned(),
            ..Machine::default()
        };
        assert_eq!(euros.of(&machine).map(|it| it.basis), Ok(Basis::Now));
    }
}
