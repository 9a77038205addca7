//! All meters of an answer, and how many rows of it could not be read.

use std::ops::Deref;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Meter;

/// The meters of an answer, as a slice. Rows that can't be read are left out, and counted: a field that is missing in
/// one of thousands is no reason to know no price at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meters {
    read: Vec<Meter>,
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
        self.read
    }

    /// Reads the rows of a page.
    pub(super) fn read(Rows(rows): &Rows) -> Self {
        let mut meters = Self::default();
        for row in rows {
            match serde_json::from_str(row.get()) {
                Ok(meter) => meters.read.push(meter),
                Err(error) => {
                    meters.skipped += 1;
                    meters.fault.get_or_insert_with(|| error.to_string());
                }
            }
        }
        meters
    }

    /// The fault of the first row if none can be read: then the service has changed.
    pub(super) fn all_unread(&self) -> Option<&str> {
        self.fault().filter(|_| self.read.is_empty())
    }

    /// Adds the meters of a further page.
    pub(super) fn extend(&mut self, more: Self) {
        self.read.extend(more.read);
        self.skipped += more.skipped;
        if self.fault.is_none() {
            self.fault = more.fault;
        }
    }
}

impl Deref for Meters {
    type Target = [Meter];

    fn deref(&self) -> &[Meter] {
        &self.read
    }
}
