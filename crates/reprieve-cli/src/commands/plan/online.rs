//! Sizes and regions with the prices of the Retail Prices API, and with what Azure says of their evictions.

use reprieve::{Result, clock};
use reprieve_azure::prices::{NoPrice, Os, PricePair, Query, select};
use reprieve_plan::plan::Source;
use reprieve_plan::support::{check_region, check_size};

use super::answer::Unplanned;
use super::args::MarketArgs;
use super::batch::invalid;
use super::market::{Azure, Market};
use super::values::Speed;
use crate::commands::prices::{Found, Known, PriceSource, Question, os};
use crate::format::duration;

/// The exit codes for a price that is missing, and for an unknown size or region.
const MISSING: u8 = 1;
const USAGE: u8 = 2;

/// The markets that were found, and what is to be said of the others.
#[derive(Debug, Default)]
pub(super) struct Markets {
    pub(super) found: Vec<Market>,
    pub(super) problems: Vec<Unplanned>,
    pub(super) notes: Vec<String>,
}

/// A size in a region before its prices are known.
#[derive(Debug)]
struct Wanted {
    query: Query,
    speed: f64,
}

impl Markets {
    /// Asks for every size in every region. Scores are for as many VMs as `vms` says of a size that is so fast.
    ///
    /// # Errors
    /// [`Invalid`](reprieve::ErrorKind::Invalid) for names that can't be ones, and for sizes without a speed.
    pub(super) async fn ask(args: &MarketArgs, vms: impl Fn(f64) -> u32) -> Result<Self> {
        let mut markets = Self::default();
        let wanted = markets.wanted(args)?;
        let queries: Vec<_> = wanted.iter().map(|it| it.query.clone()).collect();
        let os = os(args.windows);
        let book = args.service.open()?;
        let known = match &args.subscription {
            Some(subscription) => {
                let question = Question { subscription, management_url: &args.management_url };
                let vms: Vec<_> = wanted.iter().map(|it| vms(it.speed)).collect();
                Some(question.ask(&queries, &vms, os).await?)
            }
            None => None,
        };
        let findings =
            if args.offline { book.offline(&queries) } else { book.find(&queries, args.max_age).await };
        markets.notes.extend(findings.notes);
        markets.notes.extend(known.iter().flat_map(|known| known.notes.clone()));
        for (wanted, found) in wanted.iter().zip(findings.found) {
            markets.add(wanted, found, os, known.as_ref());
        }
        Ok(markets)
    }

    /// Every size in every region, once, without those that have no Spot.
    fn wanted(&mut self, args: &MarketArgs) -> Result<Vec<Wanted>> {
        check_names("--sizes", &args.sizes)?;
        check_names("--regions", &args.regions)?;
        let speeds = speeds(args)?;
        let mut wanted: Vec<Wanted> = Vec::new();
        for (size, speed) in speeds {
            for region in args.regions.iter().map(|region| region.trim()) {
                let query = Query::new(&size, region, "USD")?;
                let supported = check_size(&size).and_then(|()| check_region(region));
                match supported {
                    Err(fault) => self.problems.push(problem(&query, fault.to_string(), USAGE)),
                    Ok(()) if wanted.iter().any(|it| it.query == query) => {}
                    Ok(()) => wanted.push(Wanted { query, speed }),
                }
            }
        }
        Ok(wanted)
    }

    fn add(&mut self, wanted: &Wanted, found: Result<Found, String>, os: Os, known: Option<&Known>) {
        let query = &wanted.query;
        let priced = found.map_err(|why| (why, MISSING)).and_then(|found| {
            let pair = select(&found.meters, query, os, clock::wall_now()).map_err(|fault| {
                let is_usage = matches!(fault, NoPrice::UnknownSize { .. } | NoPrice::UnknownRegion { .. });
                (fault.to_string(), if is_usage { USAGE } else { MISSING })
            })?;
            Ok((found, pair))
        });
        match priced {
            Ok((found, pair)) => self.found.push(market(wanted, &found, pair, known)),
            Err((why, code)) => self.problems.push(problem(query, why, code)),
        }
    }
}

fn problem(query: &Query, problem: String, code: u8) -> Unplanned {
    let (size, region) = (Some(query.size().to_owned()), Some(query.region().to_owned()));
    Unplanned { size, region, problem, code }
}

fn market(wanted: &Wanted, found: &Found, pair: PricePair, known: Option<&Known>) -> Market {
    let query = &wanted.query;
    let age = clock::unix_millis().saturating_sub(found.asked_unix_ms);
    let asked = match (found.source, u64::try_from(age)) {
        (PriceSource::Service, _) => "asked now".to_owned(),
        (PriceSource::Cache, Ok(ms)) => {
            format!("kept for {}", duration(std::time::Duration::from_secs(ms / 1_000)))
        }
        (PriceSource::Cache, Err(_)) => "kept since a time in the future".to_owned(),
    };
    let azure = known.map(|known| {
        let facts = known.of(query);
        let past = facts.past_prices_usd.iter().filter_map(|past| past.price);
        Azure {
            eviction_rate: facts.eviction_rate,
            placement_score: facts.placement_score,
            is_quota_available: facts.quota_available,
            past_prices: past.clone().min().zip(past.max()),
        }
    });
    Market {
        size: Some(pair.size),
        region: Some(query.region().to_owned()),
        spot: pair.spot,
        history: None,
        regular: pair.regular,
        source: Source::Measured(format!("the Retail Prices API, {asked}")),
        asked_unix_ms: Some(found.asked_unix_ms),
        speed: wanted.speed,
        azure,
    }
}

/// Checks that each name of a list is there, once.
fn check_names(flag: &str, names: &[String]) -> Result<()> {
    let plain: Vec<_> = names.iter().map(|name| name.replace(' ', "").to_ascii_lowercase()).collect();
    for (number, name) in plain.iter().enumerate() {
        if name.is_empty() {
            return Err(invalid(format!("{flag} has an empty name: leave out the comma beside it")));
        }
        if plain[..number].contains(name) {
            return Err(invalid(format!("{flag} names {} twice: give it once", names[number].trim())));
        }
    }
    Ok(())
}

/// The sizes with their speeds. Jobs were timed on the first one, unless it has a speed of its own.
fn speeds(args: &MarketArgs) -> Result<Vec<(String, f64)>> {
    let sizes: Vec<_> = args.sizes.iter().map(|size| size.trim()).collect();
    if let Some(other) =
        args.speeds.iter().find(|it| !sizes.iter().any(|size| it.size.eq_ignore_ascii_case(size)))
    {
        return Err(invalid(format!("--speed names {:?}, which is not among --sizes", other.size)));
    }
    let is_twice = |(at, it): &(usize, &Speed)| {
        args.speeds[..*at].iter().any(|before| before.size.eq_ignore_ascii_case(&it.size))
    };
    if let Some((_, twice)) = args.speeds.iter().enumerate().find(is_twice) {
        return Err(invalid(format!("--speed names {} twice: give it once", twice.size)));
    }
    let mut speeds = Vec::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let given = args.speeds.iter().find(|it| it.size.eq_ignore_ascii_case(size)).map(|it| it.factor);
        let Some(speed) = given.or((number == 0).then_some(1.0)) else {
            return Err(invalid(format!(
                "how fast jobs run on {size} is not known: measure it, and give --speed {size}=FACTOR, times as fast \
                 as where --job-time was measured"
            )));
        };
        speeds.push((size.to_owned(), speed));
    }
    Ok(speeds)
}

#[cfg(test)]
mod tests {
    use reprieve_azure::prices::Meter;

    use super::*;

    /// A meter in western Europe that is in effect since 2021.
    fn meter(name: &str, price: &str) -> Meter {
        let text = format!(
            r#"{{"currencyCode":"USD","retailPrice":{price},"armRegionName":"westeurope","armSkuName":"Standard_F2",
                "meterName":"{name}","productName":"p","serviceName":"Virtual Machines","unitOfMeasure":"1 Hour",
                "type":"Consumption","isPrimaryMeterRegion":true,"effectiveStartDate":"2021-11-01T00:00:00Z"}}"#
        );
        serde_json::from_str(&text).expect("a meter")
    }

    fn markets(meters: Vec<Meter>) -> Markets {
        let query = Query::new("Standard_F2", "westeurope", "USD").expect("a query");
        let found =
            Found { meters, asked_unix_ms: clock::unix_millis() - 7_200_000, source: PriceSource::Cache };
        let mut markets = Markets::default();
        markets.add(&Wanted { query, speed: 1.0 }, Ok(found), Os::Linux, None);
        markets
    }

    #[test]
    fn a_price_of_the_cache_says_how_old_it_is() {
        let found = markets(vec![meter("F2", "0.1"), meter("F2 Spot", "0.02")]).found;
        let sources: Vec<_> = found.iter().map(|market| market.source.clone()).collect();
        assert_eq!(sources, [Source::Measured("the Retail Prices API, kept for 2h".to_owned())]);
    }

    #[test]
    fn a_size_without_a_spot_meter_has_a_sentence() {
        let markets = markets(vec![meter("F2", "0.1"), meter("F2 Low Priority", "0.02")]);
        assert!(markets.found.is_empty());
        let problems: Vec<_> = markets.problems.iter().map(|it| (it.problem.as_str(), it.code)).collect();
        let [(problem, MISSING)] = problems[..] else { panic!("one problem: {problems:?}") };
        assert!(problem.contains("Spot"), "{problem}");
    }
}
