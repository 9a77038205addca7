//! The prices of sizes as a table and as JSON.

use std::time::Duration;

use reprieve_azure::prices::{Os, PricePair, Query, price_text};
use reprieve_plan::Price;
use serde::Serialize;

use super::book::Source;
use super::number::number;
use super::spot::Facts;
use crate::format::{duration, plain, table};

/// Every size in every region, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    /// The time of the answer, in milliseconds since the Unix epoch.
    at_unix_ms: i64,
    prices: Vec<Quote>,
}

/// One size in one region.
#[derive(Debug, Serialize)]
pub(super) struct Quote {
    size: String,
    region: String,
    os: Os,
    currency: String,
    /// The regular price of an hour.
    #[serde(serialize_with = "number")]
    regular: Option<Price>,
    /// The Spot price of an hour.
    #[serde(serialize_with = "number")]
    spot: Option<Price>,
    /// How much less Spot costs, in thousandths of the regular price.
    discount_permille: Option<i64>,
    /// When the service was asked.
    asked_unix_ms: Option<i64>,
    from: Option<Source>,
    /// What else Azure knows; left out without a subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    azure: Option<Facts>,
    /// Why a price is missing.
    problem: Option<String>,
    /// The exit code for the problem; 0 without one.
    #[serde(skip)]
    code: u8,
}

impl Answer {
    pub(super) const fn new(at_unix_ms: i64, prices: Vec<Quote>) -> Self {
        Self { at_unix_ms, prices }
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = &str> {
        self.prices.iter().filter_map(|quote| quote.problem.as_deref())
    }

    /// The exit code for the worst problem.
    pub(super) fn code(&self) -> u8 {
        self.prices.iter().map(|quote| quote.code).max().unwrap_or(0)
    }
}

impl Quote {
    /// A quote without prices.
    pub(super) fn of(query: &Query, os: Os) -> Self {
        Self {
            size: query.size().to_owned(),
            region: query.region().to_owned(),
            os,
            currency: query.currency().to_owned(),
            regular: None,
            spot: None,
            discount_permille: None,
            asked_unix_ms: None,
            from: None,
            azure: None,
            problem: None,
            code: 0,
        }
    }

    pub(super) fn asked(self, unix_ms: i64, source: Source) -> Self {
        Self { asked_unix_ms: Some(unix_ms), from: Some(source), ..self }
    }

    pub(super) fn priced(self, pair: &PricePair) -> Self {
        let discount_permille = Some(pair.discount_permille());
        let (regular, spot) = (Some(pair.regular), Some(pair.spot));
        Self { size: pair.size.clone(), regular, spot, discount_permille, ..self }
    }

    pub(super) fn knowing(self, azure: Option<Facts>) -> Self {
        Self { azure, ..self }
    }

    pub(super) fn regular_only(self, size: String, regular: Price) -> Self {
        Self { size, regular: Some(regular), ..self }
    }

    pub(super) fn without(self, problem: String, code: u8) -> Self {
        Self { problem: Some(problem), code, ..self }
    }
}

/// The quotes with a price as a table; nothing without any.
pub(super) fn page(answer: &Answer) -> String {
    let priced: Vec<_> = answer.prices.iter().filter(|quote| quote.regular.is_some()).collect();
    if priced.is_empty() {
        return String::new();
    }
    let row = |quote| row(quote, answer.at_unix_ms);
    if priced.iter().all(|quote| quote.azure.is_none()) {
        let rows: Vec<_> = priced.into_iter().map(row).collect();
        return table(["SIZE", "REGION", "OS", "CURRENCY", "REGULAR/H", "SPOT/H", "DISCOUNT", "AGE"], &rows);
    }
    let rows: Vec<_> = priced
        .into_iter()
        .map(|quote| {
            let [size, region, os, currency, regular, spot, discount, age] = row(quote);
            let [evicted, score] = facts(quote.azure.as_ref());
            [size, region, os, currency, regular, spot, discount, evicted, score, age]
        })
        .collect();
    let headings = [
        "SIZE",
        "REGION",
        "OS",
        "CURRENCY",
        "REGULAR/H",
        "SPOT/H",
        "DISCOUNT",
        "EVICTED/H",
        "PLACEMENT",
        "AGE",
    ];
    table(headings, &rows)
}

/// The eviction rate and the placement score, each of which may be unknown.
fn facts(facts: Option<&Facts>) -> [String; 2] {
    let rate = facts.and_then(|it| it.eviction_rate).map(|rate| format!("{rate} %"));
    let score = facts.and_then(|it| it.placement_score.as_deref()).map(plain);
    [rate, score].map(|known| known.unwrap_or_else(|| "unknown".to_owned()))
}

fn row(quote: &Quote, now: i64) -> [String; 8] {
    let price = |price: Option<Price>| price.map_or_else(|| "-".to_owned(), price_text);
    [
        quote.size.clone(),
        quote.region.clone(),
        quote.os.to_string(),
        quote.currency.clone(),
        price(quote.regular),
        price(quote.spot),
        quote.discount_permille.map_or_else(|| "-".to_owned(), percent),
        age(quote, now),
    ]
}

/// Thousandths as percent.
pub(super) fn percent(permille: i64) -> String {
    let sign = if permille < 0 { "-" } else { "" };
    let permille = permille.unsigned_abs();
    format!("{sign}{}.{} %", permille / 10, permille % 10)
}

/// How old the price is; `now` for one that the service was asked for by this command.
fn age(quote: &Quote, now: i64) -> String {
    let Some(asked) = quote.asked_unix_ms.filter(|_| quote.from == Some(Source::Cache)) else {
        return "now".to_owned();
    };
    u64::try_from(now.saturating_sub(asked)).map_or_else(
        |_| "in the future".to_owned(),
        // Below a second the table would change with each call.
        |ms| duration(Duration::from_secs(ms / 1_000)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_767_225_600_000;

    fn quote(region: &str) -> Quote {
        let query = Query::new("Standard_D4s_v5", region, "EUR").expect("a query");
        Quote::of(&query, Os::Linux)
    }

    fn pair(regular: u64, spot: u64) -> PricePair {
        let [regular, spot] = [regular, spot].map(|milli| Price::from_nanos_per_hour(milli * 1_000_000));
        PricePair { size: "Standard_D4s_v5".to_owned(), regular, spot }
    }

    fn answer() -> Answer {
        let old = |hours: i64| NOW - hours * 3_600_000;
        Answer::new(
            NOW,
            vec![
                quote("westeurope").asked(NOW, Source::Service).priced(&pair(230, 46)),
                quote("northeurope").asked(old(51), Source::Cache).priced(&pair(214, 300)),
                quote("eastus")
                    .asked(old(-1), Source::Cache)
                    .without("no Spot price".to_owned(), 1)
                    .regular_only("Standard_D4s_v5".to_owned(), Price::from_nanos_per_hour(192_000_001)),
                quote("mars").without("unknown region".to_owned(), 2),
            ],
        )
    }

    #[test]
    fn a_table_has_prices_discounts_and_ages() {
        insta::assert_snapshot!(page(&answer()));
        assert_eq!(page(&Answer::new(NOW, vec![quote("mars")])), "");
    }

    #[test]
    fn json_has_exact_numbers_and_the_problems() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&answer()).expect("JSON"));
    }

    #[test]
    fn the_worst_problem_decides_the_exit_code() {
        assert_eq!(answer().problems().collect::<Vec<_>>(), ["no Spot price", "unknown region"]);
        assert_eq!((answer().code(), Answer::new(NOW, Vec::new()).code()), (2, 0));
    }

    #[test]
    fn a_share_is_in_tenths_of_a_percent() {
        assert_eq!(
            [percent(800), percent(-5), percent(1), percent(-1_234)],
            ["80.0 %", "-0.5 %", "0.1 %", "-123.4 %"]
        );
    }
}
