//! Prices as decimal text, exact to a billionth and without floats.

use reprieve_plan::Price;

/// The decimals of a billionth.
const DECIMALS: i32 = 9;

/// The largest exponent that is read. A price has none; a number that some library wrote might.
const EXPONENT_MAX: i32 = 30;

/// Reads a price for an hour from a decimal number, such as `0.176346` or `1.2e-2`. Digits after the
/// ninth decimal are rounded half up.
///
/// Returns `None` for what is no number, negative, or beyond the range of [`Price`].
#[must_use]
pub fn parse_price(text: &str) -> Option<Price> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = !whole.is_empty() && [whole, fraction].iter().all(|part| is_digits(part));
    if !is_number || exponent.abs() > EXPONENT_MAX {
        return None;
    }
    let decimals = i32::try_from(fraction.len()).ok()?;
    // One digit more than is kept decides about rounding.
    let tenths = scaled(&format!("{whole}{fraction}"), exponent - decimals + DECIMALS + 1)?;
    let nanos = tenths.checked_add(5)? / 10;
    u64::try_from(nanos).ok().map(Price::from_nanos_per_hour)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number `digits`, times ten to the power of `shift`; digits below one are cut off.
fn scaled(digits: &str, shift: i32) -> Option<u128> {
    let (digits, zeros) = match usize::try_from(shift) {
        Ok(zeros) => (digits, zeros),
        Err(_) => (cut(digits, shift.unsigned_abs() as usize), 0),
    };
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse::<u128>().ok()?.checked_mul(10_u128.checked_pow(u32::try_from(zeros).ok()?)?)
}

/// `digits` without the last `count`.
fn cut(digits: &str, count: usize) -> &str {
    &digits[..digits.len().saturating_sub(count)]
}

/// Writes the price exactly, with at least four decimals: `0.1920`, `0.176346`.
#[must_use]
pub fn price_text(price: Price) -> String {
    const NANOS: u64 = 1_000_000_000;
    const DECIMALS_MIN: usize = 4;
    let nanos = price.nanos_per_hour();
    let fraction = format!("{:09}", nanos % NANOS);
    let kept = fraction.trim_end_matches('0').len().max(DECIMALS_MIN);
    format!("{}.{}", nanos / NANOS, &fraction[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<u64> {
        parse_price(text).map(Price::nanos_per_hour)
    }

    #[test]
    fn a_decimal_number_is_read_to_the_last_billionth() {
        for (text, expected) in [
            ("0.176346", 176_346_000),
            ("0", 0),
            ("0.0", 0),
            ("3", 3_000_000_000),
            ("0.1", 100_000_000),
            ("12.00000001", 12_000_000_010),
            ("0.0000000014", 1),
            ("0.0000000015", 2),
            ("0.17634600000000001", 176_346_000),
            ("1e-5", 10_000),
            ("1.2E-2", 12_000_000),
            ("2.5e1", 25_000_000_000),
            ("0.00000000000000000000000000000000001", 0),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in
            ["", ".", "-1", "-0.5", "+1", "1,5", "0x1", "NaN", "null", "\"1\"", "1e", "1e99", "1 ", ".5"]
        {
            assert_eq!(nanos(text), None, "{text}");
        }
        assert_eq!(nanos("18446744074"), None, "more than fits");
    }

    #[test]
    fn a_price_is_written_exactly() {
        for (nanos_per_hour, expected) in [
            (192_000_000, "0.1920"),
            (176_346_000, "0.176346"),
            (12_000_000_010, "12.00000001"),
            (0, "0.0000"),
            (1, "0.000000001"),
        ] {
            let text = price_text(Price::from_nanos_per_hour(nanos_per_hour));
            assert_eq!((text.as_str(), nanos(&text)), (expected, Some(nanos_per_hour)));
        }
    }
}
