//! One item of the Retail Prices API.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reprieve_plan::Price;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

use super::{parse_price, price_text};

/// One item of the Retail Prices API: the price of one meter, with the service's field names in JSON.
/// Fields that do not decide which meter counts are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meter {
    /// The currency, such as `USD`.
    pub currency_code: String,
    /// The price for one `unit_of_measure` before the customer's own discounts; `None` if the item has
    /// no number there.
    #[serde(deserialize_with = "read_price", serialize_with = "write_price")]
    pub retail_price: Option<Price>,
    /// The region, such as `westeurope`; empty for a price that is for no region.
    #[serde(default)]
    pub arm_region_name: String,
    /// The size, such as `Standard_D4s_v5`.
    #[serde(default)]
    pub arm_sku_name: String,
    /// The meter, such as `D4s v5 Spot`.
    pub meter_name: String,
    /// The variant of the size, such as `D4s v5 Low Priority`.
    #[serde(default)]
    pub sku_name: String,
    /// The series. The only field that tells Windows from Linux.
    pub product_name: String,
    /// `Virtual Machines` for sizes.
    pub service_name: String,
    /// The unit of the price, such as `1 Hour`.
    pub unit_of_measure: String,
    /// `Consumption`, `DevTestConsumption` or `Reservation`, whose price is for the whole term.
    #[serde(rename = "type")]
    pub price_type: String,
    /// From when the price is valid.
    #[serde(deserialize_with = "read_time")]
    pub effective_start_date: Timestamp,
    /// Until when it is valid; `None` without an end.
    #[serde(default, deserialize_with = "read_maybe_time", skip_serializing_if = "Option::is_none")]
    pub effective_end_date: Option<Timestamp>,
    /// Whether it is the main one of several meters of a region.
    #[serde(default)]
    pub is_primary_meter_region: bool,
}

/// Reads the digits as they were sent, and not through a float.
fn read_price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(|raw| parse_price(raw.get()))
}

#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn write_price<S: Serializer>(price: &Option<Price>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = price.map_or_else(|| "null".to_owned(), price_text);
    RawValue::from_string(text).map_err(ser::Error::custom)?.serialize(serializer)
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    time(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no time")))
}

fn read_maybe_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| time(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no time")))).transpose()
}

/// Times are in UTC, also where an item does not say so.
fn time(text: &str) -> Option<Timestamp> {
    let without_zone = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    text.parse().ok().or_else(|| without_zone().map(|time| time.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of Microsoft's page.
    const SAMPLE: &str = r#"{"currencyCode":"USD","tierMinimumUnits":0.0,"retailPrice":0.176346,
        "unitPrice":0.176346,"armRegionName":"westeurope","location":"EU West",
        "effectiveStartDate":"2020-08-01T00:00:00Z","meterId":"000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName":"F16s Spot","productId":"DZH318Z0BQPS","skuId":"DZH318Z0BQPS/00TG",
        "productName":"Virtual Machines FS Series Windows","skuName":"F16s Spot",
        "serviceName":"Virtual Machines","serviceId":"DZH313Z7MMC8","serviceFamily":"Compute",
        "unitOfMeasure":"1 Hour","type":"DevTestConsumption","isPrimaryMeterRegion":true,
        "armSkuName":"Standard_F16s"}"#;

    #[test]
    fn the_documented_sample_is_read_and_comes_back_from_a_file() {
        let meter: Meter = serde_json::from_str(SAMPLE).expect("a meter");
        assert_eq!(meter.retail_price.map(Price::nanos_per_hour), Some(176_346_000));
        assert_eq!((&*meter.price_type, meter.effective_end_date), ("DevTestConsumption", None));
        assert_eq!(meter.effective_start_date.to_string(), "2020-08-01T00:00:00Z");
        let written = serde_json::to_string(&meter).expect("JSON");
        assert!(written.contains(r#""retailPrice":0.176346,"#), "{written}");
        assert_eq!(serde_json::from_str::<Meter>(&written).expect("a meter"), meter);
    }

    #[test]
    fn a_price_that_is_no_number_is_none_and_a_time_without_zone_is_utc() {
        let changed = SAMPLE
            .replace(r#""retailPrice":0.176346"#, r#""retailPrice":"free""#)
            .replace(r#""meterId""#, r#""effectiveEndDate":"2020-09-01T00:00:00","meterId""#);
        let meter: Meter = serde_json::from_str(&changed).expect("a meter");
        assert_eq!(meter.retail_price, None);
        assert_eq!(meter.effective_end_date, "2020-09-01T00:00:00Z".parse().ok());
        let wrong = SAMPLE.replace("2020-08-01T00:00:00Z", "soon");
        let fault = serde_json::from_str::<Meter>(&wrong).expect_err("no time").to_string();
        assert!(fault.starts_with(r#""soon" is no time"#), "{fault}");
    }
}
