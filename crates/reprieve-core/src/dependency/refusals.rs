//! What a dependency refuses although it serves, such as all writes when it is full. Jobs that need it are not
//! begun meanwhile, and those that use it are.
//!
//! It is a [`Breaker`] of its own, which is moved by looks at what is
//! [refused](super::Dependency::refuses) in place of probes. They begin when a job has failed that needs the
//! dependency and had a call refused, and end when nothing is refused any more: their pauses grow, and then few jobs
//! are begun, and more after each second.

use std::time::Duration;

use super::breaker::{Answer, Breaker, BreakerState, Change};

#[derive(Debug, Default)]
pub(super) struct Refusals {
    breaker: Breaker,
    /// What was refused last.
    what: String,
}

impl Refusals {
    /// Whether and how far jobs that need the dependency are begun.
    pub(super) const fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// What is refused, or was until a moment ago; `None` if nothing is.
    pub(super) fn what(&self) -> Option<&str> {
        (self.state() != BreakerState::Closed).then_some(&self.what)
    }

    /// Since when something has been refused; `None` if nothing is.
    pub(super) fn since(&self) -> Option<Duration> {
        self.breaker.away_since()
    }

    /// When the next look is due; `None` while nothing is refused.
    pub(super) fn look_at(&self) -> Option<Duration> {
        (self.state() != BreakerState::Closed).then(|| self.breaker.probe_at())
    }

    /// For how long something has been refused.
    pub(super) fn refused_for(&self, now: Duration) -> Duration {
        self.breaker.away_for(now)
    }

    /// How often something began to be refused.
    pub(super) const fn openings(&self) -> u64 {
        self.breaker.openings()
    }

    /// Whether one more job that needs the dependency may begin.
    pub(super) fn admit(&mut self) -> bool {
        self.breaker.admit()
    }

    /// Takes a look that a job's failure was the reason for. Of many at once, one counts.
    pub(super) fn on_failure(&mut self, refused: Option<&str>, now: Duration) -> Option<Change> {
        if self.state() == BreakerState::Open { None } else { self.take(refused?, now, 0.5) }
    }

    /// Takes a look that was due. `spread` is a random number from 0 to 1.
    pub(super) fn on_look(&mut self, refused: Option<&str>, now: Duration, spread: f64) -> Option<Change> {
        match refused {
            Some(what) => self.take(what, now, spread),
            None => self.breaker.on_probe(&Answer::Served, now, spread),
        }
    }

    fn take(&mut self, what: &str, now: Duration, spread: f64) -> Option<Change> {
        what.clone_into(&mut self.what);
        let change = self.breaker.on_probe(&Answer::Failed(self.what.clone()), now, spread)?;
        Some(if let Change::Opened(_) = change { Change::Opened(self.what.clone()) } else { change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn looks_begin_with_a_failure_come_at_growing_pauses_and_end_when_nothing_is_refused() {
        let mut refusals = Refusals::default();
        assert_eq!((refusals.on_failure(None, s(1)), refusals.look_at()), (None, None));
        assert!(refusals.admit());
        let opened = Change::Opened("writes".to_owned());
        assert_eq!(refusals.on_failure(Some("writes"), s(10)), Some(opened));
        // The seven others that ran beside it.
        (0..7).for_each(|_| assert_eq!(refusals.on_failure(Some("writes"), s(10)), None));
        let mut pauses = Vec::new();
        let mut at = s(10);
        for _ in 0..6 {
            assert!(!refusals.admit());
            let due = refusals.look_at().unwrap();
            pauses.push(due.saturating_sub(at).as_secs());
            at = due;
            assert_eq!(refusals.on_look(Some("more"), at, 0.5), None);
        }
        assert_eq!((pauses, refusals.what()), (vec![1, 1, 2, 4, 8, 10], Some("more")));
        assert_eq!(refusals.since(), Some(s(10)));
        let at = refusals.look_at().unwrap();
        assert!(matches!(refusals.on_look(None, at, 0.5), Some(Change::HalfOpened(_))));
        assert_eq!([refusals.admit(), refusals.admit()], [true, false], "one tries it");
        // It ran, and its write was refused.
        assert!(matches!(refusals.on_failure(Some("writes"), at), Some(Change::Opened(_))));
        let begun = (0..10).map(|_| {
            let _change = refusals.on_look(None, refusals.look_at()?, 0.5);
            Some((0..100).filter(|_| refusals.admit()).count())
        });
        assert_eq!(begun.map_while(|begun| begun).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 100]);
        assert_eq!((refusals.state(), refusals.what()), (BreakerState::Closed, None));
        assert_eq!(refusals.since(), None);
    }
}
