//! Chooses the shard to which a message is sent.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// How many messages go to one shard before the next one: as many as one receive returns from a
/// Storage queue.
const RUN: usize = 32;

/// How long a shard that rejected a run is tried last.
const AVOIDED: Duration = Duration::from_secs(10);

/// Goes round the shards, starting at a random one.
#[derive(Debug)]
pub(super) struct Spread {
    /// For each shard, until when it is tried last.
    avoided: Vec<Instant>,
    /// The present shard, and for how many more messages.
    at: usize,
    left: usize,
}

impl Spread {
    pub(super) fn new(shards: usize, seed: u64) -> Self {
        let at = SmallRng::seed_from_u64(seed).random_range(0..shards);
        Self { avoided: vec![Instant::now(); shards], at, left: RUN }
    }

    /// Divides `messages` into runs; returns the shard and the length of each. A large batch is
    /// divided into equal parts.
    pub(super) fn runs(&mut self, mut messages: usize) -> Vec<(usize, usize)> {
        let length = messages.div_ceil(self.avoided.len()).max(RUN);
        let mut runs = Vec::new();
        while messages > 0 {
            if self.left == 0 {
                self.at = (self.at + 1) % self.avoided.len();
                self.left = length;
            }
            let run = messages.min(self.left);
            runs.push((self.at, run));
            self.left -= run;
            messages -= run;
        }
        self.left = self.left.min(RUN);
        runs
    }

    /// All shards in the order in which to try them for a run that belongs to `first`.
    pub(super) fn choices(&self, first: usize) -> Vec<usize> {
        let now = Instant::now();
        let shards = self.avoided.len();
        let mut choices: Vec<_> = (0..shards).map(|step| (first + step) % shards).collect();
        choices.sort_by_key(|&at| self.avoided[at] > now);
        choices
    }

    /// Records that a shard rejected a run.
    pub(super) fn avoid(&mut self, at: usize) {
        self.avoided[at] = Instant::now() + AVOIDED;
    }
}
