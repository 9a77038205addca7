//! How long the machine is up, by a clock that nobody sets.

use std::time::Duration;

/// Returns the time since the machine booted, also that in which it slept.
#[cfg(not(test))]
pub(super) fn since_boot() -> Duration {
    by_kernel()
}

fn by_kernel() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Boottime)).unwrap_or_default()
}

/// In tests this clock goes with tokio's, which they can pause.
#[cfg(test)]
pub(super) fn since_boot() -> Duration {
    thread_local! {
        static BOOT: tokio::time::Instant = tokio::time::Instant::now();
    }
    BOOT.with(tokio::time::Instant::elapsed)
}

#[cfg(test)]
mod tests {
    use super::by_kernel;

    #[test]
    fn the_kernel_says_how_long_the_machine_is_up() {
        let (before, after) = (by_kernel(), by_kernel());
        assert!(before > std::time::Duration::ZERO && before <= after);
    }
}
