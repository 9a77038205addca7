//! Whose turn it is: which shards a receive asks, and in which order.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// A shard that was not asked in this many receives for each shard there is comes before all others.
///
/// The oldest of those that are overdue is asked first in each receive, and there are never more of them than there are
/// shards; so no shard waits for more than one receive longer for each shard.
pub(super) const OVERDUE: usize = 4;

/// How many shards a receive asks before it takes the queue for empty, when they are few.
const LOOKS_MIN: usize = 4;

/// A receive asks at least one shard in so many, and in an idle time no more.
const ROUND_IN_RECEIVES: usize = 3;

/// Without a message for this long the worker is idle. A busy one asks at once, so its looks are many anyway.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// What a shard that gave nothing lately weighs beside one that gave all it was asked for, which weighs one more.
const WEIGHT_MIN: f64 = 0.25;

/// How long an empty shard rests, at first and at most, while others have messages.
const EMPTY_REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a failing shard rests, at first and at most.
const FAILED_REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// What is remembered of all shards.
#[derive(Debug)]
pub(super) struct Turns {
    shards: Vec<Standing>,
    /// How many receives there were, and before them as many as there are shards.
    receives: usize,
    /// When a message was last received.
    found_at: Instant,
    random: SmallRng,
}

#[derive(Debug)]
struct Standing {
    /// In which receive it was last asked.
    asked_in: usize,
    /// How much of what it was asked for it gave lately: 0 to 1.
    gives: f64,
    /// Empty: it is not looked at again before others that have messages until then. Failing: it is not asked.
    rests_until: Instant,
    /// How long it rested the last time; zero when it gave something then.
    rest: Duration,
    failing: bool,
    /// It said that a message arrived.
    called: bool,
}

/// How a shard answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// With so many messages.
    Gave { asked: usize, given: usize },
    /// With an error, or not at all.
    Failed,
}

/// The order of turns; within one rank the greater weight is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The one that nobody may be put before: the longest unasked, after many receives.
    Overdue,
    /// It said that a message arrived.
    Called,
    /// One that rested long enough to be looked at again. Only one, so that those that have messages are asked in every
    /// receive.
    Probe,
    /// It had messages when it was last asked.
    Live,
    /// It had none.
    Empty,
}

impl Turns {
    pub(super) fn new(shards: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        // As if they had been asked in some order before, another in each process, so that a fleet does not march in step.
        let mut asked_in: Vec<_> = (0..shards).collect();
        asked_in.shuffle(&mut random);
        let now = Instant::now();
        let standing = |asked_in| Standing {
            asked_in,
            gives: 0.0,
            rests_until: now,
            rest: Duration::ZERO,
            failing: false,
            called: false,
        };
        let shards: Vec<_> = asked_in.into_iter().map(standing).collect();
        Self { receives: shards.len(), shards, found_at: now, random }
    }

    /// Begins a receive: whom to ask, in this order, until one has a message.
    pub(super) fn next(&mut self) -> Vec<usize> {
        let now = Instant::now();
        self.receives += 1;
        let (overdue, probe) = (self.overdue(), self.probe(now));
        let rank = |at: usize| match at {
            // One that fails may take long to say so: at most one is asked, and none before it has rested.
            _ if self.shards[at].failing => (probe == Some(at)).then_some(Rank::Probe),
            _ if overdue == Some(at) => Some(Rank::Overdue),
            _ if self.shards[at].called => Some(Rank::Called),
            _ if probe == Some(at) => Some(Rank::Probe),
            _ if self.shards[at].is_live() => Some(Rank::Live),
            _ => Some(Rank::Empty),
        };
        let all = 0..self.shards.len();
        let mut turns: Vec<_> =
            all.filter_map(|at| rank(at).map(|rank| (rank, self.weight(at), at))).collect();
        if turns.is_empty() {
            // All fail. One of them is asked all the same, or nobody would learn why nothing is received.
            let first = (0..self.shards.len()).min_by_key(|&at| self.shards[at].rests_until);
            return first.into_iter().collect();
        }
        turns.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.total_cmp(&one.1)));
        turns.truncate(self.looks(now));
        turns.into_iter().map(|(_, _, at)| at).collect()
    }

    /// Whether the shard failed when it was asked last.
    pub(super) fn is_failing(&self, at: usize) -> bool {
        self.shards[at].failing
    }

    fn looks(&self, now: Instant) -> usize {
        let round = self.shards.len().div_ceil(ROUND_IN_RECEIVES);
        let idle = now.duration_since(self.found_at) >= IDLE_AFTER;
        if idle { round } else { round.max(LOOKS_MIN) }
    }

    fn age(&self, at: usize) -> usize {
        self.receives - self.shards[at].asked_in
    }

    fn overdue(&self) -> Option<usize> {
        let answering = (0..self.shards.len()).filter(|&at| !self.shards[at].failing);
        let oldest = answering.max_by_key(|&at| self.age(at))?;
        (self.age(oldest) > OVERDUE * self.shards.len()).then_some(oldest)
    }

    fn probe(&self, now: Instant) -> Option<usize> {
        let rested = |&at: &usize| !self.shards[at].is_live() && self.shards[at].rests_until <= now;
        (0..self.shards.len()).filter(rested).max_by_key(|&at| (self.shards[at].called, self.age(at)))
    }

    #[expect(clippy::cast_precision_loss, reason = "receives since the last turn are few")]
    fn weight(&self, at: usize) -> f64 {
        let shard = &self.shards[at];
        self.age(at) as f64 * if shard.is_live() { WEIGHT_MIN + shard.gives } else { 1.0 }
    }

    /// Remembers how a shard answered. Whether that is news: it fails and did not, or the other way round.
    pub(super) fn note(&mut self, at: usize, answer: Answer) -> bool {
        let (now, receives) = (Instant::now(), self.receives);
        let jitter = self.random.random_range(0.75..1.25);
        let shard = &mut self.shards[at];
        shard.asked_in = receives;
        shard.called = false;
        let failed_before = shard.failing;
        shard.failing = matches!(answer, Answer::Failed);
        let news = failed_before != shard.failing;
        if news {
            shard.rest = Duration::ZERO;
        }
        match answer {
            Answer::Gave { asked, given } if given > 0 => {
                shard.gave(given, asked);
                self.found_at = now;
            }
            Answer::Gave { .. } => shard.rests(now, EMPTY_REST, jitter),
            Answer::Failed => shard.rests(now, FAILED_REST, jitter),
        }
        if news && !self.shards[at].failing {
            // What ailed it may have ailed the others.
            self.shards.iter_mut().filter(|shard| shard.failing).for_each(|shard| shard.rests_until = now);
        }
        news
    }

    /// Remembers that a shard says that a message arrived.
    pub(super) fn call(&mut self, at: usize) {
        self.shards[at].called = true;
    }

    /// Until when a failing shard is not asked.
    pub(super) fn fails_until(&self, at: usize) -> Option<Instant> {
        let shard = &self.shards[at];
        shard.failing.then_some(shard.rests_until)
    }
}

impl Standing {
    /// Whether it gave something when it was last asked.
    fn is_live(&self) -> bool {
        self.rest.is_zero() && self.gives > 0.0
    }

    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    fn gave(&mut self, given: usize, asked: usize) {
        self.gives = f64::midpoint(self.gives, given as f64 / asked as f64);
        self.rest = Duration::ZERO;
    }

    /// Rests twice as long as the last time, and a random part of it more or less.
    fn rests(&mut self, now: Instant, (least, most): (Duration, Duration), jitter: f64) {
        self.gives /= 2.0;
        self.rest = (self.rest * 2).clamp(least, most);
        self.rests_until = now + self.rest.mul_f64(jitter);
    }
}
