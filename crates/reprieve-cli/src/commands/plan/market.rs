//! A size in a region with its prices, and what is known of its evictions.

use std::time::Duration;

use reprieve_azure::prices::price_text;
use reprieve_azure::spot::EvictionRate;
use reprieve_plan::Price;
use reprieve_plan::measured::Band;
use reprieve_plan::plan::{Assumption, Known, Source};

use super::args::KnownArgs;
use super::batch::invalid;
use super::history::History;
use super::values::GivenRate;
use crate::format::{count, duration};

/// What is planned with: one table of the output.
#[derive(Debug)]
pub(super) struct Market {
    /// `None` where only prices are given.
    pub(super) size: Option<String>,
    pub(super) region: Option<String>,
    /// The Spot price, which is the first one if there is a history.
    pub(super) spot: Price,
    pub(super) history: Option<History>,
    pub(super) regular: Price,
    /// Where the prices are from.
    pub(super) source: Source,
    /// When the service of prices was asked, in milliseconds since the Unix epoch.
    pub(super) asked_unix_ms: Option<i64>,
    /// How many times as fast as on the first size jobs run here.
    pub(super) speed: f64,
    /// What Azure says, if it was asked.
    pub(super) azure: Option<Azure>,
}

/// What Azure says of the size in the region.
#[derive(Debug, Default)]
pub(super) struct Azure {
    pub(super) eviction_rate: Option<EvictionRate>,
    pub(super) placement_score: Option<String>,
    pub(super) is_quota_available: Option<bool>,
    /// The lowest and the highest Spot price of the last 90 days, in US dollars.
    pub(super) past_prices: Option<(Price, Price)>,
}

impl Market {
    /// The market by its prices alone.
    ///
    /// # Errors
    /// [`Invalid`](reprieve::ErrorKind::Invalid) if one is missing.
    pub(super) fn given(args: &KnownArgs) -> reprieve::Result<Self> {
        let history = args.price_history.as_deref().map(History::read).transpose()?;
        let first = history.as_ref().map(|history| history.steps.at(0));
        let (Some(spot), Some(regular)) = (args.spot_price.or(first), args.regular_price) else {
            return Err(invalid(
                "the prices are not known: give --sizes and --regions, or --spot-price and --regular-price",
            ));
        };
        let least = history.as_ref().map_or(spot, |history| history.steps.bounds().0);
        if least > regular {
            return Err(invalid("the Spot price is above the regular one, which it never is: exchange them"));
        }
        Ok(Self {
            size: None,
            region: None,
            spot,
            history,
            regular,
            source: Source::Given,
            asked_unix_ms: None,
            speed: 1.0,
            azure: None,
        })
    }

    /// Azure's bucket, if it is known.
    pub(super) fn band(&self) -> Option<Band> {
        let rate = self.azure.as_ref()?.eviction_rate?;
        let share = |percent: u32| f64::from(percent) / 100.0;
        Some(Band { low: share(rate.low_percent), high: rate.high_percent.map(share) })
    }

    /// The eviction rate that is planned with where no trace has one: the given one, else Azure's, else none.
    pub(super) fn rate(&self, given: Option<GivenRate>) -> Known {
        let azure = self.azure.as_ref().and_then(|azure| azure.eviction_rate);
        match (given, self.band().zip(azure)) {
            (Some(GivenRate::Between(low, high)), _) => {
                Known::Rate { low, high, pattern: None, source: Source::Given }
            }
            (Some(GivenRate::Unknown), _) | (None, None) => Known::Unknown,
            (None, Some((Band { low, high }, bucket))) => {
                let source = Source::Measured(format!("Azure's Resource Graph, bucket {bucket} %"));
                Known::Rate { low, high, pattern: None, source }
            }
        }
    }

    /// The speed, and what Azure says besides, as assumptions. `planned` is what is planned with.
    pub(super) fn assumptions(&self, planned: &Known) -> Vec<Assumption> {
        let mut all = Vec::new();
        let mut say = |subject, value, source| all.push(Assumption { subject, value, source });
        if (self.speed - 1.0).abs() > f64::EPSILON {
            // It was divided by another one.
            let speed = (self.speed * 1e6).round() / 1e6;
            let value = format!("{speed} times as fast as where jobs were timed");
            say("speed of jobs", value, Source::Given);
        }
        if let Some(history) = &self.history {
            let (low, high) = history.steps.bounds();
            let value = format!(
                "{} in {}, from {} to {} USD: the batch begins with the first, and the last one stays",
                count(history.count as u64, "price"),
                duration(Duration::from_millis(history.spans_ms)),
                price_text(low),
                price_text(high)
            );
            say("Spot prices over time", value, Source::Measured(history.name.clone()));
        }
        let Some(azure) = &self.azure else { return all };
        let graph = || Source::Measured("Azure's Resource Graph".to_owned());
        let is_azures = matches!(planned, Known::Rate { source: Source::Measured(_), .. });
        if let Some(rate) = azure.eviction_rate.filter(|_| !is_azures) {
            let value =
                format!("{rate} % of the VMs an hour; not used, because the evictions above come first");
            say("evictions by Azure's count", value, graph());
        }
        if let Some((low, high)) = azure.past_prices {
            let (low, high) = (price_text(low), price_text(high));
            let value = format!("from {low} to {high} USD in the last 90 days; the plan has today's always");
            say("past Spot prices", value, graph());
        }
        if let Some(score) = &azure.placement_score {
            let value = format!("{score}: how likely the VMs are to be had now; not simulated");
            say("placement score", value, Source::Measured("Azure, of this moment".to_owned()));
        }
        all
    }
}
