//! Prints changes, each on a line of its own.

use jiff::tz::TimeZone;
use reprieve::Result;

use super::told::Told;
use crate::out::Out;

#[derive(Debug)]
pub(super) struct Printer {
    out: Out,
    json: bool,
    /// Whether it is said whose an event is, because it may be others'.
    all: bool,
    /// The system's.
    zone: TimeZone,
}

impl Printer {
    pub(super) fn new(json: bool, all: bool) -> Self {
        Self { out: Out::new(), json, all, zone: TimeZone::system() }
    }

    pub(super) fn print(&mut self, told: &Told) -> Result<()> {
        if self.json {
            self.out.json(told)?;
            self.out.text("\n")?;
        } else {
            self.out.text(&told.line(&self.zone, self.all))?;
        }
        self.out.flush()
    }

    /// Whether nobody reads any more.
    pub(super) const fn unread(&self) -> bool {
        self.out.unread()
    }
}
