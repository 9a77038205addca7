//! Lines of comma-separated values without quotes, which is all that traces use.

use super::TraceError;

/// The longest value that an error repeats.
const SHOWN_MAX: usize = 40;

/// The lines that are not empty, with their numbers from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .map(str::trim)
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.is_empty())
}

/// The error for a value.
pub(super) fn bad_value(line: usize, value: &str, expected: &'static str) -> TraceError {
    TraceError::Value { line, value: shortened(value), expected }
}

/// The value, cut to what an error can show.
pub(super) fn shortened(value: &str) -> String {
    value.chars().take(SHOWN_MAX).collect()
}
