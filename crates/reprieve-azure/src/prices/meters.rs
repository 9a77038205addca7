//! All meters of an answer, and how many rows of it could not be read.

use std::ops::Deref;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Meter;

/// The meters of an answer, as a slice. Rows that can't be read are left out, and counted: a field that is missing in
/// one of thousands is no reason to know no price at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meters {
    meters: Vec<Meter>,
    skipped: usize,
    /// Why the first of the skipped rows can't be read.
    fault: Option<String>,
}

/// The rows of a page as they were sent.
#[derive(Debug, Deserialize)]
pub(super) struct Rows(Vec<Box<RawValue>>);

impl Meters {
    /// How many rows of the answer were left out because they can't be read.
    #[must_use]
    pub const fn skipped(&self) -> usize {
        self.skipped
    }

    /// Why rows were left out: the fault of the first one; `None` if none was.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The meters alone.
    #[must_use]
    pub fn into_vec(self) -> Vec<Meter> {
        self.meters
    }

    /// Reads the rows of a page.
    ///
    /// # Errors
    /// The fault of the first row, if no row can be read: then the service has changed.
    pub(super) fn read(Rows(rows): &Rows) -> Result<Self, String> {
        let mut read = Self::default();
        for row in rows {
            match serde_json::from_str(row.get()) {
                Ok(meter) => read.meters.push(meter),
                Err(error) => {
                    read.skipped += 1;
                    read.fault.get_or_insert_with(|| error.to_string());
                }
            }
        }
        match read.fault {
            Some(fault) if read.meters.is_empty() => Err(fault),
            _ => Ok(read),
        }
    }

    /// Adds the meters of a further page.
    pub(super) fn extend(&mut self, more: Self) {
        self.meters.extend(more.meters);
        self.skipped += more.skipped;
        if self.fault.is_none() {
            self.fault = more.fault;
        }
    }
}

impl Deref for Meters {
    type Target = [Meter];

    fn deref(&self) -> &[Meter] {
        &self.meters
    }
}
