//! The items of the mock: a few sizes in a few regions, with every trap of the real catalogue.
//!
//! Names and fields are the service's; prices are made up, so that each decoy shows by its price: it is
//! below every real one.

use serde_json::{Map, Value, json};

/// An item of the catalogue: the fields in which it differs from a regular meter for Linux in US dollars.
#[derive(Clone, Copy)]
struct Row {
    size: &'static str,
    region: &'static str,
    /// The meter without the size, such as ` Spot`.
    kind: &'static str,
    price: &'static str,
    /// Other fields, and what they are instead.
    but: &'static [(&'static str, &'static str)],
}

const fn row(size: &'static str, region: &'static str, kind: &'static str, price: &'static str) -> Row {
    Row { size, region, kind, price, but: &[] }
}

/// The same size in the same region with other fields.
const fn but(row: Row, but: &'static [(&'static str, &'static str)]) -> Row {
    Row { but, ..row }
}

const D4S: &str = "Standard_D4s_v5";
const WE: &str = "westeurope";

const WINDOWS: (&str, &str) = ("productName", "Virtual Machines Dsv5 Series Windows");
const EUR: (&str, &str) = ("currencyCode", "EUR");

/// When the prices that count came into effect.
const START: &str = "2021-11-01T00:00:00Z";

/// A price that no meter that counts has.
const DECOY: &str = "0.0001";

/// Regular, Spot and Low Priority meters, Linux and Windows, in an order that no client should rely on.
const ROWS: &[Row] = &[
    row(D4S, WE, " Low Priority", "0.046"),
    row(D4S, WE, " Spot", "0.046"),
    but(row(D4S, WE, "", "0.414"), &[WINDOWS]),
    row(D4S, WE, "", "0.23"),
    but(row(D4S, WE, " Spot", "0.0828"), &[WINDOWS]),
    but(row(D4S, WE, " Low Priority", "0.1656"), &[WINDOWS]),
    // Rows that must not count, at a price that would be seen.
    but(row(D4S, WE, " Spot", DECOY), &[("type", "DevTestConsumption")]),
    but(row(D4S, WE, "", DECOY), &[("type", "DevTestConsumption"), WINDOWS]),
    but(row(D4S, WE, " Spot", DECOY), &[("effectiveStartDate", "2999-01-01T00:00:00Z")]),
    but(row(D4S, WE, "", DECOY), &[("effectiveStartDate", "2999-01-01T00:00:00Z")]),
    but(row(D4S, WE, " Spot", DECOY), &[("effectiveEndDate", "2022-12-31T00:00:00Z")]),
    but(row(D4S, WE, " Spot", DECOY), &[("effectiveStartDate", "2019-01-01T00:00:00Z")]),
    but(row(D4S, WE, " Spot", DECOY), &[("isPrimaryMeterRegion", "false")]),
    but(row(D4S, WE, "", DECOY), &[("unitOfMeasure", "1/Month")]),
    but(row(D4S, WE, "", DECOY), &[("serviceName", "Cloud Services")]),
    // As the service lists them: with the service name of VMs, and a newer date.
    but(
        row(D4S, WE, "", DECOY),
        &[("productName", "Dsv5 Series CloudServices"), ("effectiveStartDate", "2026-01-01T00:00:00Z")],
    ),
    but(row(D4S, WE, "", DECOY), &[("productName", "Dsv5 Series Cloud Services")]),
    // The unit price of a reservation is for the whole term.
    but(row(D4S, WE, "", "1189.0"), &[("type", "Reservation"), ("reservationTerm", "1 Year")]),
    but(row(D4S, WE, "", "0.2127"), &[EUR]),
    but(row(D4S, WE, " Spot", "0.04254"), &[EUR]),
    but(row(D4S, WE, "", "0.38285"), &[EUR, WINDOWS]),
    but(row(D4S, WE, " Spot", "0.07657"), &[EUR, WINDOWS]),
    row(D4S, "northeurope", "", "0.214"),
    row(D4S, "northeurope", " Spot", "0.02568"),
    row("Standard_D2s_v5", WE, "", "0.115"),
    row("Standard_D2s_v5", WE, " Spot", "0.023"),
    row("Standard_F16s", WE, "", "0.952"),
    row("Standard_F16s", WE, " Spot", "0.176346"),
    // A size without Spot meter: Low Priority is none.
    row("Standard_B2ms", WE, "", "0.096"),
    row("Standard_B2ms", WE, " Low Priority", "0.0192"),
    // Two Spot meters that differ by their product only.
    row("Standard_E8s_v5", WE, "", "0.608"),
    row("Standard_E8s_v5", WE, " Spot", "0.1216"),
    but(
        row("Standard_E8s_v5", WE, " Spot", "0.1824"),
        &[("productName", "Virtual Machines Esv5 Series Other")],
    ),
];

/// The items, in the service's form.
#[must_use]
pub fn items() -> Vec<Value> {
    ROWS.iter().map(item).collect()
}

/// Whether the item is the Spot meter of a size for Linux that counts, in US dollars.
pub(super) fn is_linux_spot(item: &Value, size: &str) -> bool {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    text("armSkuName") == size
        && text("meterName").ends_with(" Spot")
        && !text("productName").contains("Windows")
        && text("currencyCode") == "USD"
        && text("type") == "Consumption"
        && text("effectiveStartDate") == START
        && item["effectiveEndDate"].is_null()
        && item["isPrimaryMeterRegion"] == true
}

fn item(row: &Row) -> Value {
    let short = row.size.trim_start_matches("Standard_").replace('_', " ");
    let meter = format!("{short}{}", row.kind);
    // Numbers stay as they are written here.
    let price: Value = row.price.parse().unwrap_or(Value::Null);
    let item = json!({
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": row.region,
        "location": if row.region == WE { "EU West" } else { "EU North" },
        "effectiveStartDate": START,
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": meter,
        "productId": "DZH318Z0BQPS",
        "skuId": "DZH318Z0BQPS/00TG",
        "productName": "Virtual Machines Dsv5 Series",
        "skuName": meter,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": true,
        "armSkuName": row.size,
    });
    let Value::Object(mut item) = item else { return Value::Null };
    change(&mut item, row.but);
    Value::Object(item)
}

fn change(item: &mut Map<String, Value>, but: &[(&str, &str)]) {
    for (field, value) in but {
        let value = value.parse::<bool>().map_or_else(|_| Value::from(*value), Value::from);
        item.insert((*field).to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_catalogue_has_the_traps_of_the_service() {
        let items = items();
        let values =
            |field: &str| -> BTreeSet<String> { items.iter().map(|item| item[field].to_string()).collect() };
        assert!(values("type").len() == 3 && values("unitOfMeasure").len() == 2);
        assert!(values("isPrimaryMeterRegion").len() == 2 && values("effectiveEndDate").len() == 2);
        assert!(values("effectiveStartDate").len() == 4 && values("currencyCode").len() == 2);
        assert!(values("productName").iter().any(|name| name.contains("Windows")));
        assert!(values("meterName").iter().any(|name| name.contains("Low Priority")));
        assert!(items.iter().all(|item| item["retailPrice"].is_number()), "prices are numbers");
    }
}
