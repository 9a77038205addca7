//! The only place that reads the wall clock, and the only one that turns a wall-clock time into a deadline.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

thread_local! {
    static SIMULATED: Cell<Option<(SystemTime, Instant)>> = const { Cell::new(None) };
}

/// Makes the wall clock of this thread show `start` now, and go on with tokio's clock, which tests can pause.
pub fn simulate(start: SystemTime) {
    SIMULATED.set(Some((start, Instant::now())));
}

/// The wall-clock time now. For stamps that people and other machines read, never for measuring.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn wall_now() -> SystemTime {
    match SIMULATED.get() {
        Some((start, since)) => start + since.elapsed(),
        None => SystemTime::now(),
    }
}

/// Milliseconds since the Unix epoch, now: how stores write times down.
#[must_use]
pub fn unix_millis() -> i64 {
    wall_now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The moment at which the wall clock will show `wall`, on the monotonic clock that timers use; the present for a
/// time that has passed.
#[must_use]
pub fn instant_at(wall: SystemTime) -> Instant {
    let now = Instant::now();
    match wall.duration_since(wall_now()) {
        // A date centuries ahead does not fit an Instant; a century is for ever.
        Ok(ahead) => now + ahead.min(Duration::from_hours(100 * 365 * 24)),
        Err(_) => now,
    }
}
