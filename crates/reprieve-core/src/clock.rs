//! The only place that reads the wall clock and converts wall-clock times to deadlines.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

thread_local! {
    static SIMULATED: Cell<Option<(SystemTime, Instant)>> = const { Cell::new(None) };
}

/// Sets this thread's wall clock to `start` and lets it advance with tokio's clock, which tests can
/// pause.
pub fn simulate(start: SystemTime) {
    SIMULATED.set(Some((start, Instant::now())));
}

/// The present wall-clock time. For timestamps that people and other machines read, never for
/// measuring durations.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn wall_now() -> SystemTime {
    match SIMULATED.get() {
        Some((start, since)) => start + since.elapsed(),
        None => SystemTime::now(),
    }
}

/// The present time in milliseconds since the Unix epoch, the form in which stores keep times.
#[must_use]
pub fn unix_millis() -> i64 {
    wall_now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The time after this `delay`, in milliseconds since the Unix epoch.
pub(crate) fn unix_millis_after(delay: Duration) -> i64 {
    unix_millis().saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
}

/// The time this long ago, in milliseconds since the Unix epoch.
pub(crate) fn unix_millis_before(ago: Duration) -> i64 {
    unix_millis().saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))
}

/// Converts the wall-clock time `wall` to the monotonic clock that timers use; returns the present
/// for a time in the past.
#[must_use]
pub fn instant_at(wall: SystemTime) -> Instant {
    let now = Instant::now();
    match wall.duration_since(wall_now()) {
        // A date centuries ahead does not fit an Instant, so it is capped at 100 years.
        Ok(ahead) => now + ahead.min(Duration::from_hours(100 * 365 * 24)),
        Err(_) => now,
    }
}
