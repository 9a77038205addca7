//! Keeps all requests of a watch far below the service's limit.
//!
//! It is documented as five requests per second for all processes of a VM together:
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>.

use std::time::Duration;

use tokio::time::Instant;

/// How far apart requests besides the polls are. Polls are a second apart too, so that no second has more than two.
const EXTRA_EVERY: Duration = Duration::from_secs(1);

/// How far apart approvals are, which are few and can't wait. Only a second with approvals has up to four requests.
const APPROVAL_EVERY: Duration = Duration::from_millis(500);

/// When the next request besides the polls may be sent.
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

    /// A request besides the polls is sent now.
    pub(super) fn take(&mut self, now: Instant) {
        self.extra_from = Some(now + EXTRA_EVERY);
    }

    /// When the approval may be sent that is wanted now. It is counted as sent then, and holds up other extras.
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
