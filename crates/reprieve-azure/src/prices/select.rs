//! Finds the regular and the Spot meter of a size among all of its meters. Pure: no I/O, no clock.

use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use reprieve_plan::Price;
use serde::{Deserialize, Serialize};

use super::{Meter, Query, price_text};

/// The operating system whose licence a price includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// Linux, and every system without a licence in the price.
    Linux,
    /// Windows.
    Windows,
}

/// What one VM of a size costs for an hour, in one region and currency, before the customer's own
/// discounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricePair {
    /// The size, as the service spells it.
    pub size: String,
    /// The regular price.
    pub regular: Price,
    /// The Spot price.
    pub spot: Price,
}

/// Why there is no pair of prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPrice {
    /// No meter is of this region.
    UnknownRegion {
        /// The region.
        region: String,
        /// The currency that was asked for: in one that it does not know, Azure has no prices either.
        currency: String,
    },
    /// The region has prices, but none of this size.
    UnknownSize {
        /// The size.
        size: String,
        /// The region.
        region: String,
    },
    /// All prices are in another currency.
    OtherCurrency {
        /// The currency that was asked for.
        wanted: String,
        /// The currency of the answer.
        got: String,
    },
    /// There is no regular meter, so the size is not for sale with this system.
    NoRegular {
        /// The size.
        size: String,
        /// The region.
        region: String,
        /// The system.
        os: Os,
    },
    /// There is no Spot meter, so the size is not for sale as Spot.
    NoSpot {
        /// The size.
        size: String,
        /// The region.
        region: String,
        /// The system.
        os: Os,
        /// The regular price, which there is.
        regular: Price,
    },
    /// Several meters fit, with different prices, and nothing tells which one counts.
    Ambiguous {
        /// The size.
        size: String,
        /// The region.
        region: String,
        /// The meters and their prices.
        meters: Vec<String>,
    },
}

/// Returns the prices of the size at the time `now`.
///
/// A meter counts if it is of the size, region and currency, of type `Consumption` with the unit
/// `1 Hour`, neither of the past nor of the future, neither `Low Priority` nor of Cloud Services, and has a price
/// above zero. Windows is told from Linux by the product, Spot from regular by the meter's name. Of several, a
/// primary one counts, and then the one that came into effect last.
///
/// # Errors
/// The [`NoPrice`] that fits. An unknown region is told from an unknown size only if `meters` has some
/// of the region, as the answer of [`Client::meters`](super::Client::meters) has.
pub fn select(meters: &[Meter], query: &Query, os: Os, now: SystemTime) -> Result<PricePair, NoPrice> {
    let (size, region) = (query.size().to_owned(), query.region().to_owned());
    let here: Vec<_> = meters.iter().filter(|it| it.arm_region_name == region).collect();
    if here.is_empty() {
        return Err(NoPrice::UnknownRegion { region, currency: query.currency().to_owned() });
    }
    let of_size: Vec<_> = here.into_iter().filter(|it| it.arm_sku_name.eq_ignore_ascii_case(&size)).collect();
    let Some(first) = of_size.first() else { return Err(NoPrice::UnknownSize { size, region }) };
    let size = first.arm_sku_name.clone();
    if of_size.iter().all(|it| it.currency_code != query.currency()) {
        let (wanted, got) = (query.currency().to_owned(), first.currency_code.clone());
        return Err(NoPrice::OtherCurrency { wanted, got });
    }
    let fits = |it: &&&Meter| it.currency_code == query.currency() && it.is_offered(os, now);
    let (spot, regular): (Vec<&Meter>, Vec<&Meter>) =
        of_size.iter().filter(fits).copied().partition(|it| it.names("Spot"));
    let ambiguous = |meters| NoPrice::Ambiguous { size: size.clone(), region: region.clone(), meters };
    let Some(regular) = price(regular).map_err(ambiguous)? else {
        return Err(NoPrice::NoRegular { size, region, os });
    };
    match price(spot).map_err(ambiguous)? {
        Some(spot) => Ok(PricePair { size, regular, spot }),
        None => Err(NoPrice::NoSpot { size, region, os, regular }),
    }
}

/// The price that counts of meters that differ by their region and time only.
fn price(meters: Vec<&Meter>) -> Result<Option<Price>, Vec<String>> {
    let has_primary = meters.iter().any(|it| it.is_primary_meter_region);
    let meters: Vec<_> = meters.into_iter().filter(|it| it.is_primary_meter_region || !has_primary).collect();
    let newest = meters.iter().map(|it| it.effective_start_date).max();
    let meters: Vec<_> = meters.into_iter().filter(|it| Some(it.effective_start_date) == newest).collect();
    let price = meters.first().and_then(|it| it.retail_price);
    if meters.iter().all(|it| it.retail_price == price) {
        return Ok(price);
    }
    let named = |it: &&Meter| {
        let price = it.retail_price.map(price_text).unwrap_or_default();
        format!("{:?} of {:?} for {price}", it.meter_name, it.product_name)
    };
    Err(meters.iter().map(named).collect())
}

impl Meter {
    /// Whether the price was in effect at the time `asked` and has ended by `now`. What the service has in its place
    /// may not have been known then.
    #[must_use]
    pub fn has_ended_since(&self, asked: SystemTime, now: SystemTime) -> bool {
        self.is_in_effect(asked) && !self.is_in_effect(now)
    }

    /// Whether it is an hour of a VM with this system at this time, regular or Spot.
    fn is_offered(&self, os: Os, now: SystemTime) -> bool {
        let is_windows = has_word(&self.product_name, "Windows");
        self.service_name == "Virtual Machines"
            && self.price_type == "Consumption"
            && self.unit_of_measure == "1 Hour"
            && self.retail_price.is_some_and(|price| price.nanos_per_hour() > 0)
            && is_windows == (os == Os::Windows)
            && !self.is_of_cloud_services()
            && !self.names("Low Priority")
            && self.is_in_effect(now)
    }

    /// Whether it is an hour in Azure Cloud Services, whose products are listed under the service of VMs with the same
    /// names of size and meter, as `Dsv5 Series Cloud Services` or `Dsv5 Series CloudServices`.
    fn is_of_cloud_services(&self) -> bool {
        self.product_name.replace(' ', "").contains("CloudServices")
    }

    fn is_in_effect(&self, now: SystemTime) -> bool {
        let Ok(now) = Timestamp::try_from(now) else { return false };
        self.effective_start_date <= now && self.effective_end_date.is_none_or(|end| now < end)
    }

    /// Whether the names of the meter have these words.
    fn names(&self, words: &str) -> bool {
        has_word(&self.meter_name, words) || has_word(&self.sku_name, words)
    }
}

/// Whether `text` has the words, and not only as a part of a longer one.
fn has_word(text: &str, words: &str) -> bool {
    format!(" {text} ").contains(&format!(" {words} "))
}

impl PricePair {
    /// How much less Spot costs, in thousandths of the regular price; negative where it costs more.
    #[must_use]
    pub fn discount_permille(&self) -> i64 {
        let [regular, spot] = [self.regular, self.spot].map(|it| i128::from(it.nanos_per_hour()));
        i64::try_from((regular - spot) * 1_000 / regular.max(1)).unwrap_or(i64::MIN)
    }
}

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "Linux",
            Self::Windows => "Windows",
        })
    }
}

impl std::error::Error for NoPrice {}

/// One sentence without its end, which says what to do.
impl fmt::Display for NoPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRegion { region, currency } => {
                let (in_it, or) = match currency.as_str() {
                    "USD" => (String::new(), ""),
                    other => (format!(" in {other}"), ", and --currency USD has prices in all of them"),
                };
                write!(
                    f,
                    "no VM has a price in region {region:?}{in_it}; `az account list-locations --query [].name` lists the \
                     regions{or}"
                )
            }
            Self::UnknownSize { size, region } => write!(
                f,
                "there is no price of size {size:?} in {region}; `az vm list-skus --location {region}` lists the sizes"
            ),
            Self::OtherCurrency { wanted, got } => {
                write!(f, "there are no prices in {wanted}, only in {got}; choose another --currency")
            }
            Self::NoRegular { size, region, os } => {
                write!(
                    f,
                    "{size} with {os} is not for sale in {region}; choose another size, region or system"
                )
            }
            Self::NoSpot { size, region, os, .. } => write!(
                f,
                "{size} with {os} has no Spot price in {region}, only a regular one; choose another size or region"
            ),
            Self::Ambiguous { size, region, meters } => write!(
                f,
                "{size} in {region} has several prices, and nothing tells which one counts: {}",
                meters.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests;
