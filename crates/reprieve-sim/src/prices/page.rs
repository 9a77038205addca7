//! The answer to one request: which items, and where the next page is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::filter::Filter;

/// The first version in whose filters values are case-sensitive.
const CASE_SENSITIVE_SINCE: &str = "2023-01-01-preview";

/// A request, parsed.
#[derive(Debug)]
pub(super) struct Asked {
    filter: Option<Filter>,
    currency: String,
    primary_only: bool,
    skip: usize,
    /// The query without its place, for the next link.
    query: String,
}

impl Asked {
    /// Parses the query of a request. The wording of a refusal is not documented.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let pairs: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let version = pairs.get("api-version").map_or("", String::as_str);
        let case_sensitive = version >= CASE_SENSITIVE_SINCE;
        let filter = pairs.get("$filter").map(|text| Filter::parse(text, case_sensitive)).transpose()?;
        let unquoted = |name: &str| {
            let text = pairs.get(name)?;
            Some(
                text.strip_prefix('\'')
                    .and_then(|text| text.strip_suffix('\''))
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        let skip = pairs.get("$skip").map_or(Ok(0), |text| text.parse());
        Ok(Self {
            filter,
            currency: unquoted("currencyCode").unwrap_or_else(|| "USD".to_owned()),
            primary_only: unquoted("meterRegion").as_deref() == Some("primary"),
            skip: skip.map_err(|_| "$skip is not a number".to_owned())?,
            query: query.split('&').filter(|pair| !pair.starts_with("$skip=")).collect::<Vec<_>>().join("&"),
        })
    }

    /// The page of these items, at most `page_size` long.
    pub(super) fn page(&self, items: &[Value], page_size: usize, addr: SocketAddr) -> Value {
        let matching: Vec<_> = items.iter().filter(|item| self.matches(item)).collect();
        let page: Vec<_> = matching.iter().skip(self.skip).take(page_size).collect();
        let next = self.skip + page.len();
        // The service writes its port, which is the default one, too.
        let link = (next < matching.len())
            .then(|| format!("http://{addr}/api/retail/prices?{}&$skip={next}", self.query));
        json!({
            "BillingCurrency": self.currency,
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": page,
            "NextPageLink": link,
            "Count": page.len(),
        })
    }

    fn matches(&self, item: &Value) -> bool {
        item["currencyCode"] == self.currency.as_str()
            && (!self.primary_only || item["isPrimaryMeterRegion"] == true)
            && self.filter.as_ref().is_none_or(|filter| filter.matches(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_next_page_and_null_ends_it() {
        let items: Vec<_> = (0..3)
            .map(|number| json!({ "currencyCode": "USD", "isPrimaryMeterRegion": number != 1, "n": number }))
            .collect();
        let page = |query: &str| {
            let addr = SocketAddr::from(([127, 0, 0, 1], 443));
            let page = Asked::parse(query).expect(query).page(&items, 2, addr);
            let numbers: Vec<_> =
                page["Items"].as_array().expect("items").iter().map(|item| item["n"].clone()).collect();
            (json!(numbers), page["NextPageLink"].clone(), page["Count"].clone())
        };
        let link = "http://127.0.0.1:443/api/retail/prices?currencyCode='USD'&$skip=2";
        assert_eq!(page("currencyCode='USD'"), (json!([0, 1]), json!(link), json!(2)));
        assert_eq!(page("currencyCode='USD'&$skip=2"), (json!([2]), Value::Null, json!(1)));
        assert_eq!(page("meterRegion='primary'"), (json!([0, 2]), Value::Null, json!(2)));
        assert_eq!(page("currencyCode='EUR'"), (json!([]), Value::Null, json!(0)));
        assert!(Asked::parse("$skip=-1").is_err());
    }
}
