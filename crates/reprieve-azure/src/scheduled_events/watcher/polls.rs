//! Tracks the polls under way: their timeouts, and which answers arrive too late to count.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::AbortHandle;

/// The timeout of a poll while an older one still waits. Slow answers of up to 6 s have been seen;
/// one poll at a time may take longer, see [`PATIENCE`].
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout of the one most patient poll under way. A VM's first request may take two minutes,
/// and giving up earlier might restart the two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
pub(super) const PATIENCE: Duration = Duration::from_secs(130);

/// How many polls may be under way: the patient one, one for each second of [`POLL_TIMEOUT`], and
/// one that is just timing out.
const IN_FLIGHT_MAX: usize = 5;

/// The polls under way, in the order in which they were sent.
///
/// A slow answer must not delay the next poll, so polls overlap, and their answers may arrive out
/// of order. An answer counts only if its request is later than any answered before. It makes all
/// earlier requests obsolete.
#[derive(Debug, Default)]
pub(super) struct Polls {
    sent: u64,
    newest_answered: u64,
    under_way: BTreeMap<u64, AbortHandle>,
    patient: u64,
}

impl Polls {
    /// Returns the number and timeout of the next poll; `None` while the maximum is under way.
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

    /// Adds poll `number`, which runs as `request`.
    pub(super) fn is_under_way(&mut self, number: u64, request: AbortHandle) {
        self.under_way.insert(number, request);
    }

    /// Returns whether the answer to poll `number` counts. If it does, aborts earlier polls.
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

    /// How many polls have been sent.
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
