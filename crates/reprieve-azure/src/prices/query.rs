//! A size, a region and a currency, and the filter for them.

use reprieve_core::{Error, ErrorKind, Result};

/// The version in whose filters values are case-sensitive.
pub(super) const API_VERSION: &str = "2023-01-01-preview";

/// A size in a region, in one currency.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    size: String,
    region: String,
    currency: String,
}

impl Query {
    /// The prices of `size`, such as `Standard_D4s_v5`, in `region`, such as `westeurope`, in `currency`,
    /// such as `USD`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when one of them can't be a name of that kind.
    pub fn new(size: &str, region: &str, currency: &str) -> Result<Self> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, "ask for a price", message));
        let is_size = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if size.is_empty() || !size.chars().all(is_size) {
            return refuse(format!("{size:?} is no VM size; write it as Standard_D4s_v5"));
        }
        if region.is_empty() || !region.chars().all(|c| c.is_ascii_alphanumeric()) {
            return refuse(format!("{region:?} is no region; write it as westeurope"));
        }
        if currency.len() != 3 || !currency.chars().all(|c| c.is_ascii_alphabetic()) {
            return refuse(format!("{currency:?} is no currency; write it as EUR"));
        }
        let (region, currency) = (region.to_ascii_lowercase(), currency.to_ascii_uppercase());
        Ok(Self { size: size.to_owned(), region, currency })
    }

    /// The size, as it was written.
    #[must_use]
    pub fn size(&self) -> &str {
        &self.size
    }

    /// The region, in lower case.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The currency, in upper case.
    #[must_use]
    pub fn currency(&self) -> &str {
        &self.currency
    }

    /// The parameters of a request for the size's meters. Without `api_version` the service does not
    /// tell upper case from lower case.
    pub(super) fn of_size(&self, api_version: Option<&str>) -> String {
        self.parameters(api_version, &format!(" and armSkuName eq '{}'", self.size))
    }

    /// The parameters of a request for any meters of the region.
    pub(super) fn of_region(&self) -> String {
        self.parameters(Some(API_VERSION), "")
    }

    fn parameters(&self, api_version: Option<&str>, more: &str) -> String {
        let version = api_version.map(|version| format!("api-version={version}&")).unwrap_or_default();
        // The filter's `priceType` is the field `type` of an item. Spot and regular meters come together.
        format!(
            "{version}currencyCode='{}'&$filter=serviceName eq 'Virtual Machines' and armRegionName eq '{}'{more} and \
             priceType eq 'Consumption'",
            self.currency, self.region
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_the_names_as_the_service_spells_them() {
        let query = Query::new("Standard_D4s_v5", "WestEurope", "eur").expect("a query");
        assert_eq!(
            query.of_size(Some(API_VERSION)),
            "api-version=2023-01-01-preview&currencyCode='EUR'&$filter=serviceName eq 'Virtual Machines' and \
             armRegionName eq 'westeurope' and armSkuName eq 'Standard_D4s_v5' and priceType eq 'Consumption'"
        );
        assert!(query.of_size(None).starts_with("currencyCode='EUR'&$filter="));
        assert!(!query.of_region().contains("armSkuName"));
    }

    #[test]
    fn a_name_that_could_change_the_filter_is_refused() {
        for (size, region, currency, what) in [
            ("", "westeurope", "EUR", "no VM size"),
            ("D2' or 'a", "westeurope", "EUR", "no VM size"),
            ("Standard_D2&x=1", "westeurope", "EUR", "no VM size"),
            ("Standard_D2", "West Europe", "EUR", "no region"),
            ("Standard_D2", "", "EUR", "no region"),
            ("Standard_D2", "westeurope", "EURO", "no currency"),
            ("Standard_D2", "westeurope", "E'R", "no currency"),
        ] {
            let error = Query::new(size, region, currency).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains(what), "{error}");
        }
    }
}
