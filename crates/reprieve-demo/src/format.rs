//! Formats of numbers, times and lists.

/// `1 frame`, `2 frames`.
pub(crate) fn count(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A point in time, in seconds to a tenth: `12.3 s`.
pub(crate) fn at(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// A length of time, as exact as is worth reading: "31 ms", "1.4 s", "28 s".
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 if !ms.is_multiple_of(1_000) => at(ms),
        _ => format!("{} s", ms / 1_000),
    }
}

/// From the shortest to the longest: `9 to 31 ms`.
pub(crate) fn range(least: u64, most: u64) -> String {
    match (least, most) {
        _ if least == most => span(most),
        (_, ..1_000) => format!("{least} to {most} ms"),
        _ => format!("{} to {}", span(least), span(most)),
    }
}

/// The name of a job, by its number.
pub(crate) fn frame(job: usize) -> String {
    format!("frame {job:02}")
}

/// `part` of `whole` as a length in CSS; all of it when there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 100_000 / u128::from(whole.max(1));
    let thousandths = thousandths.min(100_000);
    format!("{}.{:03}%", thousandths / 1_000, thousandths % 1_000)
}

/// `part` of `whole` as people read it: "0.5 %".
pub(crate) fn share(part: u64, whole: u64) -> String {
    let whole = u128::from(whole.max(1));
    let tenths = (u128::from(part) * 1_000 + whole / 2) / whole;
    if part > 0 && tenths == 0 {
        "under 0.1 %".to_owned()
    } else {
        format!("{}.{} %", tenths / 10, tenths % 10)
    }
}

/// "a", "a and b", "a, b and c".
pub(crate) fn list(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well_at_every_size() {
        assert_eq!(
            [0, 999, 1_000, 1_450, 9_999, 28_400].map(span).join(" "),
            "0 ms 999 ms 1 s 1.4 s 9.9 s 28 s"
        );
        assert_eq!([0, 12_345].map(at).join(" "), "0.0 s 12.3 s");
        assert_eq!([0, 1, 2].map(|n: usize| count(n, "step")).join(" "), "0 steps 1 step 2 steps");
        assert_eq!([percent(0, 0), percent(1, 3), percent(9, 3)].join(" "), "0.000% 33.333% 100.000%");
        assert_eq!([share(0, 9), share(1, 9_999), share(8, 480)].join(" "), "0.0 % under 0.1 % 1.7 %");
        let [a, b, c] = ["a", "b", "c"].map(ToOwned::to_owned);
        assert_eq!(list(&[a.clone(), b.clone()]), "a and b");
        assert_eq!(list(&[a, b, c]), "a, b and c");
    }
}
