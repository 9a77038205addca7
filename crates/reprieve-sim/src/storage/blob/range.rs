//! The part of a blob that a request reads.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/specifying-the-range-header-for-blob-service-operations>

use std::ops::Range;

use crate::storage::refusal::{INVALID_RANGE, Refusal};

/// Returns the bytes that `header` selects of a blob of `bytes` bytes; `None` for all. A header
/// that is not understood, such as one that counts from the end, is ignored.
pub(crate) fn parse(header: Option<&str>, bytes: u64) -> Result<Option<Range<u64>>, Refusal> {
    let Some((first, last)) =
        header.and_then(|header| header.strip_prefix("bytes=")).and_then(|range| range.split_once('-'))
    else {
        return Ok(None);
    };
    let Ok(first) = first.parse::<u64>() else { return Ok(None) };
    let end = match last {
        "" => bytes,
        last => match last.parse::<u64>() {
            Ok(last) if last >= first => last.saturating_add(1).min(bytes),
            _ => return Ok(None),
        },
    };
    if first >= bytes { Err(INVALID_RANGE) } else { Ok(Some(first..end)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end_of_the_blob() {
        let table = [
            (Some("bytes=0-3"), Ok(Some(0..4))),
            (Some("bytes=2-"), Ok(Some(2..10))),
            (Some("bytes=9-4194303"), Ok(Some(9..10))),
            (Some("bytes=0-18446744073709551615"), Ok(Some(0..10))),
            (Some("bytes=10-11"), Err(INVALID_RANGE)),
            (Some("bytes=-3"), Ok(None)),
            (Some("bytes=3-2"), Ok(None)),
            (Some("lines=1-2"), Ok(None)),
            (None, Ok(None)),
        ];
        for (header, range) in table {
            assert_eq!(parse(header, 10), range, "{header:?}");
        }
        assert_eq!(parse(Some("bytes=0-3"), 0), Err(INVALID_RANGE));
    }
}
