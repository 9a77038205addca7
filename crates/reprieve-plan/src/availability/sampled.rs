//! Series with a fixed time between samples, the format of the traces of "Can't Be Late".

use serde::Deserialize;

use super::{Series, TraceError};

#[derive(Deserialize)]
struct Document {
    metadata: Metadata,
    data: Vec<u32>,
}

#[derive(Deserialize)]
struct Metadata {
    gap_seconds: u64,
}

pub(super) fn parse(text: &str) -> Result<Series, TraceError> {
    let document: Document =
        serde_json::from_str(text).map_err(|error| TraceError::Series(error.to_string()))?;
    let gap_ms = document.metadata.gap_seconds.checked_mul(1000).ok_or(TraceError::TooLong)?;
    if gap_ms == 0 {
        return Err(TraceError::ZeroGap);
    }
    if document.data.is_empty() {
        return Err(TraceError::Empty);
    }
    let end_ms = gap_ms.checked_mul(document.data.len() as u64).ok_or(TraceError::TooLong)?;
    let times = (0..end_ms).step_by(usize::try_from(gap_ms).map_err(|_| TraceError::TooLong)?);
    Series::from_counts(times.zip(document.data), end_ms)
}
