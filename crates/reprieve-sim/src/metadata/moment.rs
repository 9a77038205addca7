//! One moment on both clocks: the timers' clock, and the wall clock that events show.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reprieve_core::clock::wall_now;
use tokio::time::Instant;

/// The longest time span. A century counts as unlimited, and still fits into an [`Instant`].
pub(super) const SPAN_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// A moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) wall: SystemTime,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), wall: wall_now() }
    }

    /// Returns the moment at `at`, or this one if `at` is later.
    pub(super) fn back_to(self, at: Instant) -> Self {
        let ago = self.at.saturating_duration_since(at);
        Self { at: self.at - ago, wall: self.wall.checked_sub(ago).unwrap_or(UNIX_EPOCH) }
    }

    /// Returns the moment `span` after this one.
    pub(super) fn after(self, span: Duration) -> Self {
        let span = span.min(SPAN_MAX);
        Self { at: self.at + span, wall: self.wall.checked_add(span).unwrap_or(self.wall) }
    }

    /// Returns the milliseconds since the Unix epoch.
    pub(super) fn unix_ms(self) -> i64 {
        match self.wall.duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
