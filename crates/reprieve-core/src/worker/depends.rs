//! What the jobs of one kind depend on besides the store.

/// What the jobs of one kind depend on, by the names of the worker's
/// [dependencies](super::WorkerBuilder::dependency). Set with [`WorkerBuilder::depends`](super::WorkerBuilder::depends).
///
/// Default: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Depends {
    /// What they can't do without. While one of these is away, no job of the kind begins, and those that run
    /// are asked to yield: they are saved, their slots are free, and they come back when it serves again. That
    /// costs them no attempt, and neither does a step that fails because it was away.
    pub needs: Vec<String>,
    /// What they can do without for a while, such as a cache. They go on, and ask
    /// [`JobContext::dependency`](crate::JobContext::dependency) whether to.
    pub uses: Vec<String>,
    /// How many jobs of the kind begin at once in this worker while something that they use is away, because
    /// what they use instead is slower, and until that is seen to serve again. Those that run go on. Default: half of
    /// the worker's slots, rounded up. It begins none beyond that half, or this if it is more, together with the jobs of
    /// other kinds that use anything which is away, except some that are tried when it may be back.
    pub without: Option<usize>,
}

impl Depends {
    /// Jobs that can't do without these.
    pub fn needs(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { needs: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Jobs that can do without these.
    pub fn uses(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { uses: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns every fault, one sentence each.
    pub(super) fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.without == Some(0) {
            faults.push("without is 0, and must be at least 1".to_owned());
        }
        if let Some(name) = self.needs.iter().find(|name| self.uses.contains(name)) {
            faults.push(format!("it both needs and uses {name:?}; name it once"));
        }
        faults
    }
}
