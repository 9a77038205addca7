//! What a policy has seen of Spot so far.

/// How long Spot was available and how often that changed, since the task began.
///
/// A plan that begins with knowledge, for example a ledger's, starts from a history that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The time during which Spot was available.
    pub up_ms: u64,
    /// The time during which Spot was not available.
    pub down_ms: u64,
    /// How often Spot went away.
    pub losses: u32,
    /// How often Spot came back.
    pub returns: u32,
    /// Whether Spot was available at the last look; `None` before the first.
    pub last: Option<bool>,
}

impl History {
    /// Adds a look at Spot, `since_ms` after the look before, during which nothing changed.
    pub fn look(&mut self, since_ms: u64, available: bool) {
        match self.last {
            None => {}
            Some(true) => self.up_ms = self.up_ms.saturating_add(since_ms),
            Some(false) => self.down_ms = self.down_ms.saturating_add(since_ms),
        }
        match (self.last, available) {
            (Some(true), false) => self.losses = self.losses.saturating_add(1),
            (Some(false), true) => self.returns = self.returns.saturating_add(1),
            (None, _) | (Some(true), true) | (Some(false), false) => {}
        }
        self.last = Some(available);
    }
}

#[cfg(test)]
mod tests {
    use super::History;

    #[test]
    fn counts_times_and_changes() {
        let mut history = History::default();
        for (since_ms, available) in [(0, false), (5, false), (2, true), (10, false), (1, false)] {
            history.look(since_ms, available);
        }
        assert_eq!((history.up_ms, history.down_ms), (10, 8));
        assert_eq!((history.losses, history.returns, history.last), (1, 1, Some(false)));
    }
}
