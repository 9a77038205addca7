//! One moment on both clocks: the monotonic one orders and times, the wall clock is shown to
//! clients.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reprieve_core::clock::wall_now;
use tokio::time::Instant;

/// The last second of the year 9999, which the services return for "never".
const NEVER: Duration = Duration::from_secs(253_402_300_799);

#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), wall: wall_now() }
    }

    pub(super) fn after(self, duration: Duration) -> Self {
        Self { at: self.at + duration, wall: self.wall + duration }
    }

    /// Returns it as headers and documents show it, in whole seconds.
    pub(super) fn http_date(self) -> String {
        httpdate::fmt_http_date(self.wall)
    }

    /// Returns ticks of 100 ns since the year 1, from which the blob service derives its `ETag`s.
    pub(super) fn ticks(self) -> u64 {
        const UNIX_EPOCH_TICKS: u64 = 621_355_968_000_000_000;
        let since = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        UNIX_EPOCH_TICKS + u64::try_from(since.as_nanos() / 100).unwrap_or_default()
    }
}

pub(super) fn never() -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_formatted_as_the_service_does() {
        assert_eq!(never(), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
