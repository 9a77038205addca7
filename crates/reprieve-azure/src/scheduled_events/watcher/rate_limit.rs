//! The rate limit of a watch: keeps all its requests far below the service's limit.
//!
//! The limit is five requests per second for all processes of a VM together:
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>.

use std::time::Duration;

use tokio::time::Instant;

/// The interval between requests besides the polls. Polls are a second apart too, so no second has
/// more than two requests.
const SIDE_EVERY: Duration = Duration::from_secs(1);

/// The interval between approvals, which are few and urgent. Only a second with approvals has up to
/// four requests.
const APPROVAL_EVERY: Duration = Duration::from_millis(500);

/// The times at which requests besides the polls may be sent.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    side_from: Option<Instant>,
    approval_from: Option<Instant>,
}

impl RateLimit {
    /// Whether a request besides the polls may be sent now.
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.side_from.is_none_or(|from| now >= from)
    }

    /// Notes that a request besides the polls is sent now.
    pub(super) fn sent(&mut self, now: Instant) {
        self.side_from = Some(now + SIDE_EVERY);
    }

    /// The time at which an approval that is wanted now may be sent. The approval counts as sent
    /// then, and delays other requests besides the polls.
    pub(super) fn approval(&mut self, now: Instant) -> Instant {
        let at = self.approval_from.map_or(now, |from| from.max(now));
        self.approval_from = Some(at + APPROVAL_EVERY);
        self.side_from = self.side_from.max(Some(at + SIDE_EVERY));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_requests_are_a_second_apart_and_wait_for_approvals() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let mut rate_limit = RateLimit::default();
        assert!(rate_limit.allows(at(0)));
        rate_limit.sent(at(0));
        assert!(!rate_limit.allows(at(999)) && rate_limit.allows(at(1000)));
        assert_eq!(rate_limit.approval(at(1200)), at(1200));
        assert_eq!(rate_limit.approval(at(1200)), at(1700));
        assert_eq!(rate_limit.approval(at(1800)), at(2200));
        assert_eq!(rate_limit.approval(at(5000)), at(5000));
        assert!(!rate_limit.allows(at(5999)) && rate_limit.allows(at(6000)));
    }
}
