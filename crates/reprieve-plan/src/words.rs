//! Shares and times in sentences.

use crate::money::Cost;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;

/// A share in percent, without the sign: to a tenth, and below that to two digits. Only nothing is 0, and only all is 100.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 0.1 {
        let tenths = (percent * 10.0).round() / 10.0;
        return if share < 1.0 { tenths.min(99.9) } else { tenths }.to_string();
    }
    if percent <= 0.0 {
        return "0".to_owned();
    }
    let zeros = (1..40).find(|zeros| percent * 10_f64.powi(*zeros) >= 1.0).unwrap_or(40);
    let digits = format!("{percent:.*}", usize::try_from(zeros).unwrap_or(0) + 1);
    digits.trim_end_matches('0').to_owned()
}

/// Money with six decimals, or as many as it has up to nine. Only nothing is shown as nothing.
pub(crate) fn money(cost: Cost) -> String {
    let nanos = cost.nanos();
    if nanos == 0 && cost != Cost::default() {
        return "less than 0.000000001".to_owned();
    }
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let decimals = text.trim_end_matches('0').len().max(text.len() - 3);
    text[..decimals].to_owned()
}

/// A length of time in seconds; in milliseconds where seconds would say too little.
pub(crate) fn seconds(ms: u64) -> String {
    match unit(ms) {
        (1, _) => format!("{ms} ms"),
        (_, _) => format!("{} s", ms / SECOND_MS),
    }
}

/// Two lengths of time, from the least to the longest.
pub(crate) fn seconds_between(least_ms: u64, most_ms: u64) -> String {
    match (unit(least_ms), unit(most_ms)) {
        ((1, _), _) | (_, (1, _)) => format!("{least_ms} to {most_ms} ms"),
        (_, _) => format!("{} to {} s", least_ms / SECOND_MS, most_ms / SECOND_MS),
    }
}

/// At most so long, in the largest unit that says enough.
pub(crate) fn at_most(ms: u64) -> String {
    let (unit_ms, unit) = unit(ms);
    format!("{} {unit}", ms / unit_ms)
}

/// At least so long, likewise.
pub(crate) fn at_least(ms: u64) -> String {
    let (unit_ms, unit) = unit(ms);
    format!("{} {unit}", ms.div_ceil(unit_ms))
}

/// The largest unit in which a length of time is whole, or ten at least.
const fn unit(ms: u64) -> (u64, &'static str) {
    if ms >= 10 * MINUTE_MS || (ms > 0 && ms.is_multiple_of(MINUTE_MS)) {
        (MINUTE_MS, "min")
    } else if ms >= 10 * SECOND_MS || ms.is_multiple_of(SECOND_MS) {
        (SECOND_MS, "s")
    } else {
        (1, "ms")
    }
}

#[cfg(test)]
mod tests {
    use super::{at_least, at_most, money, percent, seconds, seconds_between};
    use crate::money::{Cost, Price};

    #[test]
    fn only_nothing_is_no_money() {
        let shown = [0, 46_000_000, 400, 8, 1_000_000_100].map(|nanos| money(Cost::from_nanos(nanos)));
        assert_eq!(shown, ["0.000000", "0.046000", "0.0000004", "0.000000008", "1.0000001"]);
        let least = Cost::of_bytes(Price::from_nanos_per_hour(1_000_000), 40);
        assert_eq!(money(least), "less than 0.000000001");
    }

    #[test]
    fn only_nothing_is_no_percent_and_only_all_is_a_hundred() {
        let shown = [0.0, 0.000_1, 0.000_012_34, 0.000_96, 0.001, 0.05, 0.0726, 0.999_9, 1.0].map(percent);
        assert_eq!(shown, ["0", "0.01", "0.0012", "0.096", "0.1", "5", "7.3", "99.9", "100"]);
        assert_ne!(percent(1e-12), "0");
    }

    #[test]
    fn times_are_in_a_unit_in_which_they_are_not_nothing() {
        assert_eq!(
            [884, 1_000, 1_500, 14_600, 2_400_000].map(seconds),
            ["884 ms", "1 s", "1500 ms", "14 s", "2400 s"]
        );
        assert_eq!(seconds_between(120_000, 300_000), "120 to 300 s");
        assert_eq!(seconds_between(500, 2_000), "500 to 2000 ms");
        let times = [500, 30_000, 90_500, 180 * 60_000, 404 * 60_000 + 1];
        assert_eq!(times.map(at_most), ["500 ms", "30 s", "90 s", "180 min", "404 min"]);
        assert_eq!(times.map(at_least), ["500 ms", "30 s", "91 s", "180 min", "405 min"]);
    }
}
