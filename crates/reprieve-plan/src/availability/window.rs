//! Spot as one task sees it.

/// Whether Spot can be had, from the beginning of a task on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    first: bool,
    changes_ms: Vec<u64>,
}

impl Window {
    /// A window that begins with Spot `first` available or not, and changes at each of `changes_ms`.
    ///
    /// # Panics
    ///
    /// If the times are not above zero and rising.
    #[must_use]
    pub fn new(first: bool, changes_ms: Vec<u64>) -> Self {
        let before = [0].iter().chain(&changes_ms);
        assert!(
            before.zip(&changes_ms).all(|(before, after)| before < after),
            "times of changes have to rise"
        );
        Self { first, changes_ms }
    }

    /// Whether Spot is available at the beginning.
    #[must_use]
    pub const fn first(&self) -> bool {
        self.first
    }

    /// When Spot comes or goes, each time the other way.
    pub fn changes(&self) -> impl Iterator<Item = u64> {
        self.changes_ms.iter().copied()
    }
}
