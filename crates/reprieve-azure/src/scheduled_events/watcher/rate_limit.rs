//! Keeps all requests of a watch far below the service's limit.
//!
//! The limit is five requests per second for all processes of a VM together:
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>.

use std::time::Duration;

use tokio::time::Instant;

/// The interval between requests besides the polls. Polls are a second apart too, so no second has
/// more than two requests.
const EXTRA_EVERY: Duration = Duration::from_secs(1);

/// The interval between approvals, which are few and urgent. Only a second with approvals has up to
/// four requests.
const APPROVAL_EVERY: Duration = Duration::from_millis(500);

/// The times at which requests besides the polls may be sent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    extra_from: Option<Instant>,
    approval_from: Option<Instant>,
}

impl Pace {
    /// Whether a request besides the polls may be sent now.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.extra_from.is_none_or(|from| now >= from)
    }

    /// Notes that a request besides the polls is sent now.
    pub(super) fn take(&mut self, now: Instant) {
        self.extra_from = Some(now + EXTRA_EVERY);
    }

    /// The time at which an approval that is wanted now may be sent. The approval counts as sent
    /// then, and delays other requests besides the polls.
    pub(super) fn approval(&mut self, now: Instant) -> Instant {
        let at = self.approval_from.map_or(now, |from| from.max(now));
        self.approval_from = Some(at + APPROVAL_EVERY);
        self.extra_from = self.extra_from.max(Some(at + EXTRA_EVERY));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_are_a_second_apart_and_give_way_to_approvals() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let mut pace = Pace::default();
        assert!(pace.is_free(at(0)));
        pace.take(at(0));
        assert!(!pace.is_free(at(999)) && pace.is_free(at(1000)));
        assert_eq!(pace.approval(at(1200)), at(1200));
        assert_eq!(pace.approval(at(1200)), at(1700));
        assert_eq!(pace.approval(at(1800)), at(2200));
        assert_eq!(pace.approval(at(5000)), at(5000));
        assert!(!pace.is_free(at(5999)) && pace.is_free(at(6000)));
    }
}
