//! What Azure refuses to run on Spot, known before anything is deployed.

use std::fmt;

/// A reason why a machine can't run on Spot, or why Azure refuses its maximum price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The name is no size of a VM.
    NotASize {
        /// The name as it was given.
        size: String,
    },
    /// The size is of the B series.
    Burstable {
        /// The size.
        size: String,
    },
    /// The size is a promotional one.
    Promotional {
        /// The size.
        size: String,
    },
    /// The region is of the cloud that 21Vianet operates in China.
    Cloud {
        /// The region.
        region: String,
    },
    /// The maximum price is zero, or has more than five decimals.
    MaxPrice {
        /// The price in billionths of a dollar per hour.
        nanos_per_hour: u64,
    },
}

/// Checks that Azure runs `size` on Spot.
///
/// The B series is refused because the [guide for scale sets](https://learn.microsoft.com/azure/virtual-machine-scale-sets/use-spot)
/// excludes it; the one for [single VMs](https://learn.microsoft.com/azure/virtual-machines/spot-vms) does not
/// mention it.
///
/// # Errors
///
/// A name that is no size, the B series, and promotional sizes.
pub fn check_size(size: &str) -> Result<(), Unsupported> {
    let lower = size.to_ascii_lowercase();
    let Some(name) = lower.strip_prefix("standard_").or_else(|| lower.strip_prefix("basic_")) else {
        return Err(Unsupported::NotASize { size: size.to_owned() });
    };
    let series: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
    let has_number = name[series.len()..].starts_with(|c: char| c.is_ascii_digit());
    if series.is_empty() || !has_number {
        Err(Unsupported::NotASize { size: size.to_owned() })
    } else if series == "b" {
        Err(Unsupported::Burstable { size: size.to_owned() })
    } else if name.ends_with("_promo") {
        Err(Unsupported::Promotional { size: size.to_owned() })
    } else {
        Ok(())
    }
}

/// Checks that there is Spot in the cloud of `region`: not in China.
///
/// # Errors
///
/// A region of the cloud that 21Vianet operates.
pub fn check_region(region: &str) -> Result<(), Unsupported> {
    let name = region.to_ascii_lowercase().replace(' ', "");
    if name.starts_with("china") { Err(Unsupported::Cloud { region: region.to_owned() }) } else { Ok(()) }
}

/// Checks a maximum price, as Azure does (`MaxPriceValueInvalid`): above zero, with at most five decimals.
///
/// # Errors
///
/// A price that Azure refuses.
pub const fn check_max_price(nanos_per_hour: u64) -> Result<(), Unsupported> {
    if nanos_per_hour == 0 || !nanos_per_hour.is_multiple_of(10_000) {
        Err(Unsupported::MaxPrice { nanos_per_hour })
    } else {
        Ok(())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASize { size } => {
                write!(f, "{size:?} is no size of a VM: give one like Standard_D4s_v5")
            }
            Self::Burstable { size } => {
                write!(f, "{size} is of the B series, which is not for Spot: give another series")
            }
            Self::Promotional { size } => {
                write!(f, "{size} is a promotional size, which is not for Spot: give the size without _Promo")
            }
            Self::Cloud { region } => {
                write!(f, "{region} is in 21Vianet's cloud, which has no Spot: give a region outside China")
            }
            Self::MaxPrice { nanos_per_hour } => write!(
                f,
                "the maximum price of {nanos_per_hour} billionths of a dollar can't be set: give one above zero \
                 with at most five decimals, or none"
            ),
        }
    }
}

impl std::error::Error for Unsupported {}

#[cfg(test)]
mod tests {
    use super::{check_max_price, check_region, check_size};

    #[track_caller]
    fn check(found: Result<(), super::Unsupported>, expected: &str) {
        assert_eq!(found.map_or_else(|fault| fault.to_string(), |()| "supported".to_owned()), expected);
    }

    #[test]
    fn sizes_that_spot_has_not_are_refused() {
        for size in ["Standard_D4s_v5", "standard_f16s", "Standard_NC4as_T4_v3", "Standard_DC2s_v3"] {
            check(check_size(size), "supported");
        }
        check(
            check_size("Standard_B2ts_v2"),
            "Standard_B2ts_v2 is of the B series, which is not for Spot: give another series",
        );
        check(
            check_size("Standard_D2_v2_Promo"),
            "Standard_D2_v2_Promo is a promotional size, which is not for Spot: give the size without _Promo",
        );
        for size in ["D4s_v5", "Standard_", "Standard_large", ""] {
            check(check_size(size), &format!("{size:?} is no size of a VM: give one like Standard_D4s_v5"));
        }
    }

    #[test]
    fn clouds_without_spot_are_refused() {
        check(check_region("westeurope"), "supported");
        for region in ["chinanorth3", "China East 2"] {
            check(
                check_region(region),
                &format!("{region} is in 21Vianet's cloud, which has no Spot: give a region outside China"),
            );
        }
    }

    #[test]
    fn maximum_prices_that_azure_refuses_are_refused() {
        check(check_max_price(50_010_000), "supported");
        for nanos in [0, 50_001_000] {
            check(
                check_max_price(nanos),
                &format!(
                    "the maximum price of {nanos} billionths of a dollar can't be set: give one above zero with at \
                     most five decimals, or none"
                ),
            );
        }
    }
}
