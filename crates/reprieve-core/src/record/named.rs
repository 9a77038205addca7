//! The payloads that a record needs.

use std::collections::BTreeSet;

use super::{Manifest, Place, Record};
use crate::error::Result;
use crate::ids::PayloadName;
use crate::ports::RecordStore;

/// Returns every payload that the record names, itself or in the manifest of a checkpoint; `None`
/// if a manifest can't be read, because it may name any.
///
/// # Errors
/// The store's errors.
pub async fn named_payloads(
    records: &dyn RecordStore,
    record: &Record,
) -> Result<Option<BTreeSet<PayloadName>>> {
    let mut named: BTreeSet<_> = record.payloads().into_iter().collect();
    for part in record.checkpoints.iter().filter_map(|checkpoint| checkpoint.attachments.as_ref()) {
        let bytes = match &part.place {
            Place::Inside(bytes) => Some(bytes.clone().into()),
            Place::Payload(name) => records.payload(&record.job, name).await?,
        };
        let intact = bytes.filter(|bytes| part.fits(bytes));
        let Some(Ok(manifest)) = intact.map(|bytes| Manifest::decode(&bytes)) else { return Ok(None) };
        named.extend(manifest.payloads().cloned());
    }
    Ok(Some(named))
}
