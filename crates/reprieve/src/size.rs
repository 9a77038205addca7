//! Sizes as text.

/// The units, largest first, so that `B` is tried last.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Parses a size: a whole number and a unit, such as `512MiB` or `2GiB`.
///
/// # Errors
/// A sentence that says what to write instead.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let parsed = UNITS.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << bits)
    });
    parsed.ok_or_else(|| {
        format!("{text:?} is not a whole number and a unit; use B, KiB, MiB, GiB or TiB, such as 512MiB")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_whole_number_and_a_unit() {
        for (text, bytes) in
            [("0B", 0), ("7B", 7), ("512MiB", 512 << 20), ("2 GiB", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "512", "MiB", "1.5GiB", "-1MiB", "2GB", "99999999TiB", "1MiB KiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
