//! Says when the service has not answered for a while, and when it does again: a watch that sees nothing must not look
//! like one that has nothing to see.

use std::time::Duration;

use reprieve_azure::scheduled_events::{FailureKind, Stats};
use tokio::time::Instant;

use super::told::span;

/// After how long without an answer it is said. It is asked every second, and one answer may well be missed.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The number of failed polls by kind, since the watch began.
type Failures = Vec<(FailureKind, u64)>;

#[derive(Debug)]
pub(super) struct Silence {
    address: String,
    began: Instant,
    looked: Instant,
    /// The failures before the silence.
    failures: Failures,
    said: bool,
}

impl Silence {
    pub(super) fn of(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            began: Instant::now(),
            looked: Instant::now(),
            failures: Failures::new(),
            said: false,
        }
    }

    /// What is to be said now, if anything.
    pub(super) fn look(&mut self, stats: &Stats) -> Option<String> {
        self.change(stats.answer_age, &stats.failures.iter().collect())
    }

    fn change(&mut self, answer_age: Option<Duration>, failures: &Failures) -> Option<String> {
        let silent = answer_age.unwrap_or_else(|| self.began.elapsed());
        let was_said = std::mem::replace(&mut self.said, silent >= SILENCE_MAX);
        // Only an answer ends what went wrong before: every failure since then explains the silence.
        if answer_age.is_some_and(|age| age < self.looked.elapsed()) {
            self.failures.clone_from(failures);
        }
        self.looked = Instant::now();
        match (was_said, self.said) {
            (false, true) => {
                let why = self.why(failures);
                let patience =
                    if answer_age.is_none() { "; a new Azure VM may need two minutes" } else { "" };
                let address = &self.address;
                Some(format!(
                    "no answer from {address} for {}{why}; it is asked every second{patience}",
                    span(silent)
                ))
            }
            (true, false) => Some(format!("{} answers again", self.address)),
            _ => None,
        }
    }

    /// What has gone wrong in the silence, and how often.
    fn why(&self, failures: &Failures) -> String {
        let before =
            |kind| self.failures.iter().find(|(known, _)| *known == kind).map_or(0, |(_, times)| *times);
        let since = failures.iter().map(|(kind, times)| (*kind, times - before(*kind)));
        let since: Vec<_> = since
            .filter(|(_, times)| *times > 0)
            .map(|(kind, times)| format!("{} {times}x", kind.as_str().replace('_', " ")))
            .collect();
        if since.is_empty() { String::new() } else { format!(" ({})", since.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silence_and_its_end_are_said_once() {
        let mut silence = Silence::of("http://host");
        let none = Failures::new();
        let second = Duration::from_secs(1);
        assert_eq!(silence.change(None, &none), None);
        tokio::time::advance(5 * second).await;
        let first = "no answer from http://host for 5s; it is asked every second; a new Azure VM may need two minutes";
        assert_eq!(silence.change(None, &none).as_deref(), Some(first));
        tokio::time::advance(5 * second).await;
        assert_eq!(silence.change(None, &none), None);
        assert_eq!(silence.change(Some(second), &none).as_deref(), Some("http://host answers again"));
        assert_eq!(silence.change(Some(4 * second), &none), None);
        let later = "no answer from http://host for 6s; it is asked every second";
        assert_eq!(silence.change(Some(6 * second), &none).as_deref(), Some(later));
    }

    #[tokio::test(start_paused = true)]
    async fn every_failure_since_the_last_answer_explains_the_silence() {
        let mut silence = Silence::of("http://host");
        let second = Duration::from_secs(1);
        let failed = |times| vec![(FailureKind::TimedOut, 2), (FailureKind::Server, times)];
        tokio::time::advance(second).await;
        assert_eq!(silence.change(Some(second / 2), &failed(1)), None);
        for (age, times) in [(1, 2), (2, 3), (3, 4), (4, 4)] {
            tokio::time::advance(second).await;
            assert_eq!(silence.change(Some(age * second + second / 2), &failed(times)), None);
        }
        tokio::time::advance(second).await;
        // None failed since the last look.
        let said = silence.change(Some(5 * second + second / 2), &failed(4)).expect("a silence");
        assert!(said.contains(" (server 3x); "), "{said}");
    }
}
