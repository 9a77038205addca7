//! Whether a Spot price leaves room below a max price, and what raises the max price. Pure.

use std::fmt;

use reprieve_azure::prices::{parse_price, price_text};
use reprieve_plan::Price;
use serde::Serialize;

/// A Spot price compared with a max price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The max price is above the Spot price by the margin or more.
    Below,
    /// The Spot price is closer than the margin.
    Close,
    /// The Spot price is the max price or above: VMs are evicted from above it, and none can be created with
    /// it from the same price on, because a max price has to be greater than the Spot price then.
    Reached,
}

impl Verdict {
    /// Compares the prices; the margin is in percent of the max price.
    pub(super) fn of(spot: Price, max: Price, margin_percent: u32) -> Self {
        let [spot, max] = [spot, max].map(|price| u128::from(price.nanos_per_hour()));
        let kept = u128::from(100_u32.saturating_sub(margin_percent));
        if spot >= max {
            Self::Reached
        } else if spot * 100 > max * kept {
            Self::Close
        } else {
            Self::Below
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Below => "below",
            Self::Close => "close",
            Self::Reached => "reached",
        })
    }
}

/// How much of the max price is left, in thousandths of it; negative above it.
pub(super) fn left_permille(spot: Price, max: Price) -> i64 {
    let [spot, max] = [spot, max].map(|price| i128::from(price.nanos_per_hour()));
    i64::try_from((max - spot) * 1_000 / max.max(1)).unwrap_or(i64::MIN)
}

/// The commands that remove a max price: from a VM, and from a scale set. The max price of an allocated
/// VM can't be changed.
pub(super) const COMMANDS: [&str; 6] = [
    "az vm deallocate --resource-group GROUP --name VM",
    "az vm update --resource-group GROUP --name VM --max-price -1",
    "az vm start --resource-group GROUP --name VM",
    "az vmss deallocate --resource-group GROUP --name SET",
    "az vmss update --resource-group GROUP --name SET --max-price -1",
    "az vmss start --resource-group GROUP --name SET",
];

/// What to do about a price that is close to the max price, or above.
pub(super) fn advice(verdict: Verdict, max: Price, regular: Option<Price>) -> String {
    let happens = match verdict {
        Verdict::Below => return String::new(),
        Verdict::Close => "VMs with this max price are evicted once the Spot price is above it.",
        Verdict::Reached => {
            "VMs with this max price are evicted when the Spot price is above it, and none can be created with it."
        }
    };
    let max = price_text(max);
    let up_to = regular.map(|price| format!(", which is now {} USD", price_text(price))).unwrap_or_default();
    let [vm @ .., _, _, _] = COMMANDS;
    let [_, _, _, set @ ..] = COMMANDS;
    format!(
        "{happens}\n\
         Azure bills the Spot price, never the max price: a max price above {max} USD costs no more while the price stays.\n\
         With -1 no price evicts, and the Spot price is paid up to the regular one{up_to}.\n\
         The max price of an allocated VM can't be changed (MaxPriceChangeNotAllowedForAllocatedVMs), so deallocate \
         it first; this command does not.\nA VM:\n  {}\nA scale set, all of its VMs at once:\n  {}",
        vm.join("\n  "),
        set.join("\n  ")
    )
}

/// Reads a max price as Azure takes it: US dollars above zero, with at most five decimals. Zeros at the end are none.
pub(super) fn max_price(text: &str) -> Result<Price, String> {
    let text = text.trim();
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = decimals.trim_end_matches('0');
    if whole == "-1" && decimals.is_empty() {
        return Err("with -1 no price evicts, so there is nothing to watch".to_owned());
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let price = parse_price(&format!("{whole}.{decimals}")).filter(|price| price.nanos_per_hour() > 0);
    price.filter(|_| is_plain && decimals.len() <= 5).ok_or_else(|| {
        "it must be US dollars for an hour, a plain number above 0 with at most five decimals, such as 0.05".to_owned()
    })
}

/// Reads a margin in percent.
pub(super) fn margin(text: &str) -> Result<u32, String> {
    let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent = digits.parse().ok().filter(|percent| *percent < 100);
    percent.ok_or_else(|| "it must be a whole number of percent from 0% to 99%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn price(nanos_per_hour: u64) -> Price {
        Price::from_nanos_per_hour(nanos_per_hour)
    }

    #[test]
    fn a_price_is_close_from_the_margin_on_and_reached_at_the_max_price() {
        const MAX: u64 = 50_000_000;
        for (spot, margin, expected) in [
            (45_000_000, 10, Verdict::Below),
            (45_000_001, 10, Verdict::Close),
            (MAX - 1, 10, Verdict::Close),
            (MAX, 10, Verdict::Reached),
            (MAX + 1, 10, Verdict::Reached),
            (MAX - 1, 0, Verdict::Below),
            (MAX, 0, Verdict::Reached),
            (500_001, 99, Verdict::Close),
            (u64::MAX, 10, Verdict::Reached),
        ] {
            assert_eq!(Verdict::of(price(spot), price(MAX), margin), expected, "{spot} {margin}");
        }
        assert_eq!([left_permille(price(45), price(50)), left_permille(price(60), price(50))], [100, -200]);
    }

    #[test]
    fn a_max_price_is_one_that_azure_takes() {
        assert_eq!(max_price("0.01538"), Ok(price(15_380_000)));
        assert_eq!(max_price("2"), Ok(price(2_000_000_000)));
        assert_eq!(max_price("20"), Ok(price(20_000_000_000)), "zeros before the point count");
        for text in ["0.05", "0.050000", "0.0500000000000", " 0.05"] {
            assert_eq!(max_price(text), Ok(price(50_000_000)), "{text}");
        }
        for text in [
            "0",
            "0.0",
            "-2",
            "-0.05",
            "0.000001",
            "0.0500000000001",
            "1,5",
            "",
            ".",
            "1..0",
            "USD 1",
            "1e-9",
            "5e-2",
            "1e0",
            "+1",
            "NaN",
            "99999999999",
        ] {
            assert!(max_price(text).expect_err(text).contains("at most five decimals"), "{text}");
        }
        for text in ["-1", "-1.0"] {
            assert!(max_price(text).expect_err("no price").contains("nothing to watch"), "{text}");
        }
    }

    #[test]
    fn a_margin_is_below_the_whole() {
        assert_eq!(
            [margin("10%"), margin("10 %"), margin("0"), margin("99")],
            [Ok(10), Ok(10), Ok(0), Ok(99)]
        );
        for text in ["100%", "-1%", "1.5%", "", "%", "ten"] {
            assert!(margin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn advice_names_the_change_and_the_deallocation_that_it_needs() {
        insta::assert_snapshot!(advice(Verdict::Close, price(50_000_000), Some(price(230_000_000))));
        assert!(advice(Verdict::Reached, price(50_000_000), None).contains("none can be created"));
        assert_eq!(advice(Verdict::Below, price(50_000_000), None), "");
    }
}
