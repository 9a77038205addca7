//! Parsers of the flags of `reprieve plan`: prices, rates, bytes, boots, notices and speeds.

use std::time::Duration;

use reprieve_azure::prices::parse_price;
use reprieve_plan::Price;
use reprieve_plan::fleet::Notice;
use reprieve_plan::money::Cost;
use reprieve_plan::plan::{ASSUMED_NOTICE, ESCALATION_INSTANCES_MAX, INSTANCES_MAX};
use reprieve_plan::support::check_max_price;

use crate::values::{duration, nonzero_duration};

/// The most that a price for an hour may be, in billionths of a dollar: above every VM's.
const PRICE_MAX: u64 = 1_000_000_000_000;

/// The longest boot: a machine that takes longer is broken.
const BOOT_MAX_MS: u64 = 24 * 3_600_000;

/// The longest notice: none of Azure's comes that early.
const NOTICE_MAX_MS: u64 = 3_600_000;

/// An eviction rate as it is given: a share of the machines in an hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GivenRate {
    /// From a lower end to an upper one; `None`: the interval is open.
    Between(f64, Option<f64>),
    /// It is known that nothing is known.
    Unknown,
}

/// How much faster a size is than the one on which the times of jobs were measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Speed {
    pub(super) size: String,
    pub(super) factor: f64,
}

/// A price of a machine for an hour, above zero.
pub(super) fn price(text: &str) -> Result<Price, String> {
    let price = decimal(text).filter(|price| (1..=PRICE_MAX).contains(&price.nanos_per_hour()));
    price.ok_or_else(|| "it must be US dollars for an hour, above 0 and up to 1000, such as 0.046".to_owned())
}

/// A price that may be zero.
pub(super) fn price_or_zero(text: &str) -> Result<Price, String> {
    let price = decimal(text).filter(|price| price.nanos_per_hour() <= PRICE_MAX);
    price.ok_or_else(|| "it must be US dollars from 0 to 1000, such as 0.0033".to_owned())
}

/// A sum of money above zero.
pub(super) fn money(text: &str) -> Result<Cost, String> {
    let sum = decimal(text).filter(|sum| sum.nanos_per_hour() > 0);
    let sum = sum.ok_or_else(|| "it must be US dollars above 0, such as 50".to_owned())?;
    Ok(Cost::from_nanos(sum.nanos_per_hour()))
}

/// A decimal number without an exponent, in billionths.
fn decimal(text: &str) -> Option<Price> {
    let text = text.strip_prefix('$').unwrap_or(text);
    parse_price(text).filter(|_| !text.contains(['e', 'E']))
}

/// An eviction rate: `5-10%`, `7.5%`, `20+%`, or `unknown`.
pub(super) fn rate(text: &str) -> Result<GivenRate, String> {
    if text.eq_ignore_ascii_case("unknown") {
        return Ok(GivenRate::Unknown);
    }
    // Each number may have its sign.
    let number = |text: &str| {
        let text = text.trim();
        share(text.strip_suffix('%').map_or(text, str::trim_end))
    };
    let text = text.trim();
    let given = if let Some(low) = text.strip_suffix('+') {
        number(low).map(|low| GivenRate::Between(low, None))
    } else if let Some(low) = text.strip_suffix('%').and_then(|text| text.trim_end().strip_suffix('+')) {
        share(low.trim()).map(|low| GivenRate::Between(low, None))
    } else if let Some((low, high)) = text.split_once(['-', '–']) {
        number(low).zip(number(high)).map(|(low, high)| GivenRate::Between(low, Some(high)))
    } else {
        number(text).map(|rate| GivenRate::Between(rate, Some(rate)))
    };
    given.ok_or_else(|| {
        "it must be percent of the machines an hour, such as 7.5%, 5-10% or 20+%, or unknown".to_owned()
    })
}

/// A share in percent, from 0 to 100.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let bare = text.strip_suffix('%').unwrap_or(text).trim_end();
    let share = share(bare).filter(|share| *share <= 1.0);
    share.ok_or_else(|| "it must be a number of percent from 0% to 100%".to_owned())
}

/// A number of percent as a share. Digits and a dot only, so neither negative nor infinite.
fn share(digits: &str) -> Option<f64> {
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number.then(|| digits.parse::<f64>().ok())?.map(|percent| percent / 100.0)
}

/// A number of bytes: `200MB`, `1.5GiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let found = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.trim_end(), *bytes)));
    // In billionths, so that the sum is exact.
    let number = found.and_then(|(number, unit)| Some((decimal(number)?.nanos_per_hour(), unit)));
    number
        .and_then(|(nanos, unit)| u64::try_from(u128::from(nanos) * u128::from(unit) / 1_000_000_000).ok())
        .ok_or_else(|| {
            "it must be a number and a unit: kB, MB, GB, KiB, MiB or GiB, such as 200MB".to_owned()
        })
}

/// The least and the longest boot: `2m-5m`, or one time for both.
pub(super) fn boot(text: &str) -> Result<(u64, u64), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let ms = |text: &str| duration(text.trim()).map(millis);
    match (ms(least), ms(most)) {
        (Ok(_), Ok(most)) if most > BOOT_MAX_MS => Err("a boot takes a day at most".to_owned()),
        (Ok(least), Ok(most)) if least <= most => Ok((least, most)),
        (Ok(_), Ok(_)) => Err("the shortest boot comes first, such as 2m-5m".to_owned()),
        (Err(_), _) | (_, Err(_)) => Err("it must be one time or two, such as 3m or 2m-5m".to_owned()),
    }
}

/// The notice of an eviction: `30s`, `30s:90%` for nine of ten, or `none`.
pub(super) fn notice(text: &str) -> Result<Option<Notice>, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let (lead, of) = text.split_once(':').unwrap_or((text, "100%"));
    match (nonzero_duration(lead), percent(of)) {
        (Ok(lead), Ok(_)) if millis(lead) > NOTICE_MAX_MS => {
            Err("a notice comes an hour before the eviction at most; Azure's comes up to 30s before".to_owned())
        }
        (Ok(lead), Ok(share)) => Ok(Some(Notice { lead_ms: millis(lead), share, ..ASSUMED_NOTICE })),
        (Err(_), _) | (_, Err(_)) => {
            Err("it must be a time, such as 30s, with the share of evictions that have it, such as 30s:90%; or none"
                .to_owned())
        }
    }
}

/// How much faster a size is: `Standard_D8s_v5=1.9`.
pub(super) fn speed(text: &str) -> Result<Speed, String> {
    let given = text.split_once('=').and_then(|(size, factor)| {
        let factor = share(factor.trim()).map(|share| share * 100.0);
        let factor = factor.filter(|factor| (0.001..=1000.0).contains(factor))?;
        Some(Speed { size: size.trim().to_owned(), factor }).filter(|speed| !speed.size.is_empty())
    });
    given.ok_or_else(|| {
        "it must be a size and how many times as fast as --job-time jobs run there, such as Standard_D8s_v5=1.9"
            .to_owned()
    })
}

/// A number of VMs that `infra/` deploys.
pub(super) fn vms(text: &str) -> Result<u32, String> {
    within(text, 1, INSTANCES_MAX).ok_or_else(|| {
        format!("it must be a number from 1 to {INSTANCES_MAX}: infra/ deploys no more VMs at once")
    })
}

/// The base of `balanced`.
pub(super) fn base_instances(text: &str) -> Result<u32, String> {
    let most = INSTANCES_MAX - 1;
    within(text, 1, most).ok_or_else(|| {
        format!("it must be a number from 1 to {most}: without a base `balanced` is `elastic`")
    })
}

/// The regular machines of `swap`.
pub(super) fn escalation_instances(text: &str) -> Result<u32, String> {
    within(text, 1, ESCALATION_INSTANCES_MAX).ok_or_else(|| {
        format!("it must be a number from 1 to {ESCALATION_INSTANCES_MAX}: infra/ deploys no more of them")
    })
}

/// A maximum price that Azure takes.
pub(super) fn max_price(text: &str) -> Result<Price, String> {
    let taken = price(text).ok().filter(|price| check_max_price(price.nanos_per_hour()).is_ok());
    taken.ok_or_else(|| {
        "it must be US dollars for an hour, above 0 and up to 1000, with at most five decimals, such as 0.05".to_owned()
    })
}

/// The share of regular machines above that base.
pub(super) fn percent_above(text: &str) -> Result<u32, String> {
    let bare = text.strip_suffix('%').unwrap_or(text).trim_end();
    within(bare, 0, 99).ok_or_else(|| {
        "it must be a whole number of percent from 0 to 99: with 100 no VM would be Spot".to_owned()
    })
}

fn within(text: &str, least: u32, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

/// A time in milliseconds; what does not fit is as long as can be.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_above_zero_and_no_more_than_a_vm_costs() {
        assert_eq!(price("0.046").map(Price::nanos_per_hour), Ok(46_000_000));
        assert_eq!(price("$1").map(Price::nanos_per_hour), Ok(1_000_000_000));
        assert_eq!(price_or_zero("0").map(Price::nanos_per_hour), Ok(0));
        for text in ["0", "-1", "1e-3", "1000.01", "1,5", "free", "", "NaN", "inf"] {
            assert!(price(text).expect_err(text).contains("above 0 and up to 1000"), "{text}");
        }
        assert_eq!(money("50").map(Cost::micros), Ok(50_000_000));
        assert_eq!(max_price("0.05").map(Price::nanos_per_hour), Ok(50_000_000));
        for text in ["0", "-1", "0.050001", "x"] {
            assert!(max_price(text).expect_err(text).contains("five decimals"), "{text}");
        }
        assert!(money("0").is_err() && money("-5").is_err());
    }

    #[test]
    fn a_rate_is_an_interval_and_an_open_end_is_none() {
        for (text, expected) in [
            ("5-10%", GivenRate::Between(0.05, Some(0.1))),
            ("5 - 10 %", GivenRate::Between(0.05, Some(0.1))),
            ("7.5%", GivenRate::Between(0.075, Some(0.075))),
            ("20+%", GivenRate::Between(0.2, None)),
            ("20%+", GivenRate::Between(0.2, None)),
            (" 20 + % ", GivenRate::Between(0.2, None)),
            ("5%-10%", GivenRate::Between(0.05, Some(0.1))),
            ("20", GivenRate::Between(0.2, Some(0.2))),
            ("unknown", GivenRate::Unknown),
        ] {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        // What is above 100 % or backwards, the plan refuses in its own words.
        assert_eq!(rate("100%"), Ok(GivenRate::Between(1.0, Some(1.0))));
        let no_rates = [
            "", "%", "-5%", "a-b", "often", "5-", "+", "inf", "1e1", "5%1", "5%%", "%5", "5%-1%0", "20%+%",
            "5 1%+", "1 0%",
        ];
        for text in no_rates {
            assert!(rate(text).expect_err(text).contains("or unknown"), "{text}");
        }
    }

    #[test]
    fn bytes_boots_notices_and_speeds_are_read() {
        assert_eq!([bytes("200MB"), bytes("1.5 GiB"), bytes("7B")], [Ok(200_000_000), Ok(3 << 29), Ok(7)]);
        assert!(bytes("200").is_err() && bytes("-1MB").is_err() && bytes("99999999999GB").is_err());
        assert_eq!((boot("2m-5m"), boot("90s")), (Ok((120_000, 300_000)), Ok((90_000, 90_000))));
        assert!(boot("5m-2m").expect_err("backwards").contains("first"));
        assert!(boot("2m-40d").expect_err("too long").contains("a day at most"));
        assert!(boot("5").is_err() && boot("2m-").is_err());
        let of = |text| notice(text).map(|it| it.map(|it| (it.lead_ms, it.share)));
        assert_eq!(
            [of("30s"), of("20s:90%"), of("none")],
            [Ok(Some((30_000, 1.0))), Ok(Some((20_000, 0.9))), Ok(None)]
        );
        assert!(notice("0s").is_err() && notice("30s:110%").is_err());
        assert!(notice("1h").is_ok() && notice("9999999h").expect_err("too long").contains("an hour"));
        assert_eq!(speed("Standard_D8s_v5=1.9").map(|it| it.size), Ok("Standard_D8s_v5".to_owned()));
        for text in ["Standard_D8s_v5", "=2", "X=0", "X=-1", "X=fast", "X=1e9"] {
            assert!(speed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_vms_are_those_that_are_deployed() {
        assert_eq!([vms("1"), vms("1000"), base_instances("999")], [Ok(1), Ok(1000), Ok(999)]);
        for text in ["0", "-1", "1001", "many", "1.5", ""] {
            assert!(vms(text).expect_err(text).contains("from 1 to 1000"), "{text}");
        }
        for text in ["0", "1000"] {
            assert!(base_instances(text).expect_err(text).contains("is `elastic`"), "{text}");
        }
        assert!(escalation_instances("101").is_err() && escalation_instances("100").is_ok());
        assert_eq!([percent_above("0"), percent_above("99%")], [Ok(0), Ok(99)]);
        assert!(percent_above("100").is_err() && percent_above("-1").is_err());
    }
}
