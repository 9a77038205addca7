//! Keeps account of the polls under way: how long each may take, and which answers come too late to be news.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::AbortHandle;

/// How long a poll may take while an older one still waits. Slow answers of up to 6 s have been seen; one poll at a time
/// may take longer, see [`PATIENCE`].
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the most patient poll under way may take. A VM's first request may take
/// [two minutes](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events),
/// and giving up on it earlier might start the two minutes again.
pub(super) const PATIENCE: Duration = Duration::from_secs(130);

/// How many polls may be under way: the patient one, one each second for as long as a poll may take, and one that has
/// run out of time in this very moment.
const IN_FLIGHT_MAX: usize = 5;

/// The polls under way, by the order in which they were sent.
///
/// A slow answer must not delay the next poll, so polls overlap; their answers may then arrive out of order. Only an
/// answer to a later request than any answered before is news, and it makes all earlier requests pointless.
#[derive(Debug, Default)]
pub(super) struct Polls {
    sent: u64,
    newest_answered: u64,
    under_way: BTreeMap<u64, AbortHandle>,
    patient: u64,
}

impl Polls {
    /// The number of the next poll and how long it may take; `None` while as many as may be are under way.
    pub(super) fn next(&mut self) -> Option<(u64, Duration)> {
        self.under_way.retain(|_, request| !request.is_finished());
        if self.under_way.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.sent += 1;
        if self.under_way.contains_key(&self.patient) {
            Some((self.sent, POLL_TIMEOUT))
        } else {
            self.patient = self.sent;
            Some((self.sent, PATIENCE))
        }
    }

    /// Poll `number` is under way as `request`.
    pub(super) fn is_under_way(&mut self, number: u64, request: AbortHandle) {
        self.under_way.insert(number, request);
    }

    /// Whether the answer to poll `number` is news; if so, earlier polls are given up.
    pub(super) fn is_news(&mut self, number: u64) -> bool {
        if number <= self.newest_answered {
            return false;
        }
        self.newest_answered = number;
        let later = self.under_way.split_off(&number);
        for (_, request) in std::mem::replace(&mut self.under_way, later) {
            request.abort();
        }
        true
    }

    /// How many polls have been made.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a poll that lasts until it is aborted; returns its limit.
    fn start(polls: &mut Polls) -> Option<Duration> {
        let (number, limit) = polls.next()?;
        polls.is_under_way(number, tokio::spawn(std::future::pending::<()>()).abort_handle());
        Some(limit)
    }

    #[tokio::test(start_paused = true)]
    async fn one_poll_is_patient_and_the_number_under_way_is_bounded() {
        let mut polls = Polls::default();
        assert_eq!(start(&mut polls), Some(PATIENCE));
        for _ in 1..IN_FLIGHT_MAX {
            assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
        }
        assert_eq!(start(&mut polls), None);
        assert_eq!(polls.sent(), IN_FLIGHT_MAX as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_makes_earlier_polls_pointless_and_leaves_later_ones() {
        let mut polls = Polls::default();
        for _ in 0..3 {
            start(&mut polls);
        }
        let earlier = polls.under_way[&1].clone();
        assert!(polls.is_news(2));
        tokio::task::yield_now().await;
        assert!(earlier.is_finished());
        assert!(!polls.is_news(1), "an earlier request's answer is no news");
        assert!(!polls.is_news(2));
        assert_eq!(polls.under_way.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(polls.is_news(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_poll_is_patient_when_the_patient_one_has_ended() {
        let mut polls = Polls::default();
        start(&mut polls);
        start(&mut polls);
        polls.under_way[&1].abort();
        tokio::task::yield_now().await;
        assert_eq!(start(&mut polls), Some(PATIENCE));
        assert_eq!(start(&mut polls), Some(POLL_TIMEOUT));
    }
}
