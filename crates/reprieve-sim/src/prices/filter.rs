//! The part of `$filter` (of the Open Data Protocol) that the service is known to have: `eq`, `and` and `contains`.

use serde_json::Value;

/// A filter: all of its conditions hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filter {
    conditions: Vec<Condition>,
    /// Whether upper case differs from lower case in values.
    case_sensitive: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Condition {
    field: String,
    value: String,
    /// Whether the field only has to contain the value.
    contains: bool,
}

/// The fields that the service filters by, and the item's field for each.
const FIELDS: [(&str, &str); 10] = [
    ("armRegionName", "armRegionName"),
    ("armSkuName", "armSkuName"),
    ("currencyCode", "currencyCode"),
    ("meterName", "meterName"),
    ("priceType", "type"),
    ("productName", "productName"),
    ("serviceFamily", "serviceFamily"),
    ("serviceName", "serviceName"),
    ("skuId", "skuId"),
    ("skuName", "skuName"),
];

impl Filter {
    /// Parses the text of a filter; the error says where it is wrong.
    pub(super) fn parse(text: &str, case_sensitive: bool) -> Result<Self, String> {
        let mut conditions = Vec::new();
        let mut rest = text.trim();
        loop {
            let (condition, after) = Condition::parse(rest)?;
            conditions.push(condition);
            rest = after.trim_start();
            if rest.is_empty() {
                return Ok(Self { conditions, case_sensitive });
            }
            rest =
                rest.strip_prefix("and ").ok_or_else(|| format!("expected `and` at {rest:?}"))?.trim_start();
        }
    }

    /// Whether the item passes.
    pub(super) fn matches(&self, item: &Value) -> bool {
        self.conditions.iter().all(|condition| {
            let field = item[&condition.field].as_str().unwrap_or_default();
            let (field, value) = if self.case_sensitive {
                (field.to_owned(), condition.value.clone())
            } else {
                (field.to_lowercase(), condition.value.to_lowercase())
            };
            if condition.contains { field.contains(&value) } else { field == value }
        })
    }
}

impl Condition {
    /// Parses the first condition of `text`, and returns what follows it.
    fn parse(text: &str) -> Result<(Self, &str), String> {
        if let Some(arguments) = text.strip_prefix("contains(") {
            let (field, rest) = field(arguments)?;
            let rest = rest.trim_start().strip_prefix(',').ok_or("contains takes two arguments")?;
            let (value, rest) = literal(rest.trim_start())?;
            let rest = rest.trim_start().strip_prefix(')').ok_or("contains is not closed")?;
            return Ok((Self { field, value, contains: true }, rest));
        }
        let (field, rest) = field(text)?;
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("eq ").ok_or_else(|| format!("expected `eq` at {rest:?}"))?;
        let (value, rest) = literal(rest.trim_start())?;
        Ok((Self { field, value, contains: false }, rest))
    }
}

fn field(text: &str) -> Result<(String, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let known = FIELDS.iter().find(|(name, _)| *name == &text[..end]);
    let (_, field) = known.ok_or_else(|| format!("there is no field {:?}", &text[..end]))?;
    Ok(((*field).to_owned(), &text[end..]))
}

fn literal(text: &str) -> Result<(String, &str), String> {
    let quoted = text.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    quoted.map(|(value, rest)| (value.to_owned(), rest)).ok_or_else(|| format!("expected a text at {text:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(text: &str, case_sensitive: bool) -> bool {
        let item =
            json!({ "armSkuName": "Standard_D4s_v5", "meterName": "D4s v5 Spot", "type": "Consumption" });
        Filter::parse(text, case_sensitive).expect(text).matches(&item)
    }

    #[test]
    fn all_conditions_hold_and_case_counts_by_version() {
        assert!(matches("armSkuName eq 'Standard_D4s_v5'", true));
        assert!(matches("armSkuName eq 'Standard_D4s_v5' and contains(meterName, 'Spot')", true));
        assert!(!matches("armSkuName eq 'Standard_D4s_v5' and contains(meterName,'Low')", true));
        assert!(!matches("armSkuName eq 'standard_d4s_v5'", true));
        assert!(matches("armSkuName eq 'standard_d4s_v5'", false));
        assert!(matches("priceType eq 'Consumption'", true), "the field is called type");
        assert!(!matches("skuName eq 'x'", true), "an item without the field");
    }

    #[test]
    fn what_the_service_is_not_known_to_have_is_refused() {
        for text in [
            "",
            "type eq 'Consumption'",
            "armSkuName ne 'x'",
            "armSkuName eq x",
            "armSkuName eq 'x' or armSkuName eq 'y'",
            "armSkuName eq 'x' and",
            "contains(armSkuName)",
            "contains(armSkuName,'x'",
        ] {
            assert!(Filter::parse(text, true).is_err(), "{text}");
        }
    }
}
