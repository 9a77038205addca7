//! Decides which shards a receive asks, and in which order.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// A shard that was not asked for more than this many receives per shard is overdue, and precedes
/// all others.
///
/// Each receive first asks the oldest overdue shard, and no more shards can be overdue than there
/// are. So no shard waits for more than one further receive per shard.
pub(super) const OVERDUE: usize = 4;

/// How many shards a receive asks at least before it returns nothing, unless the worker is idle.
const LOOKS_MIN: usize = 4;

/// A receive asks at least one in this many shards; when the worker is idle, no more than that.
const ROUND_IN_RECEIVES: usize = 3;

/// A worker is idle after this long without a message. A busy worker receives often, so it reaches
/// every shard soon anyway.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The weight of a shard that recently returned nothing. One that returned everything that was
/// asked for weighs one more.
const WEIGHT_MIN: f64 = 0.25;

/// How long an empty shard rests while others have messages, at first and at most.
const EMPTY_REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a failing shard rests, at first and at most.
const FAILED_REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The state of all shards.
#[derive(Debug)]
pub(super) struct Turns {
    shards: Vec<Standing>,
    /// The number of receives so far, plus the number of shards.
    receives: usize,
    /// When a message was last received.
    found_at: Instant,
    random: SmallRng,
}

#[derive(Debug)]
struct Standing {
    /// The receive in which it was last asked.
    asked_in: usize,
    /// The share of the requested messages that it recently returned: 0 to 1.
    gives: f64,
    /// If empty, it is asked after the shards that have messages until then. If failing, it is not
    /// asked until then.
    rests_until: Instant,
    /// The length of its last rest; zero if it returned a message when it was last asked.
    rest: Duration,
    failing: bool,
    /// Whether it signalled that a message arrived.
    called: bool,
}

/// A shard's answer to a receive.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// A number of messages.
    Gave { asked: usize, given: usize },
    /// An error, or no answer in time.
    Failed,
}

/// The order of shards in a receive; within a rank, the greater weight comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Not asked for longest, after many receives. No other shard precedes it.
    Overdue,
    /// It signalled that a message arrived.
    Called,
    /// Its rest has ended. At most one shard per receive, so that the shards with messages are
    /// asked in every receive.
    Probe,
    /// It returned messages when it was last asked.
    Live,
    /// It returned none.
    Empty,
}

impl Turns {
    pub(super) fn new(shards: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        // As if the shards had been asked before, in a random order, so that the workers of a fleet
        // do not move in step.
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

    /// Begins a receive: returns the shards to ask, in this order, until one has a message.
    pub(super) fn next(&mut self) -> Vec<usize> {
        let now = Instant::now();
        self.receives += 1;
        let (overdue, probe) = (self.overdue(), self.probe(now));
        let rank = |at: usize| match at {
            // A failing shard may take long to answer: at most one is asked, and only after its
            // rest.
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
            // All shards fail. One is asked anyway, to report why nothing is received.
            let first = (0..self.shards.len()).min_by_key(|&at| self.shards[at].rests_until);
            return first.into_iter().collect();
        }
        turns.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.total_cmp(&one.1)));
        turns.truncate(self.looks(now));
        turns.into_iter().map(|(_, _, at)| at).collect()
    }

    /// Whether the shard failed when it was last asked.
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

    /// Records a shard's answer. Returns whether the shard began to fail or recovered.
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
            // The cause of its failure may have been the others' too.
            self.shards.iter_mut().filter(|shard| shard.failing).for_each(|shard| shard.rests_until = now);
        }
        news
    }

    /// Records that a shard signalled a message.
    pub(super) fn call(&mut self, at: usize) {
        self.shards[at].called = true;
    }

    /// The end of a failing shard's rest, before which it is not asked.
    pub(super) fn fails_until(&self, at: usize) -> Option<Instant> {
        let shard = &self.shards[at];
        shard.failing.then_some(shard.rests_until)
    }
}

impl Standing {
    /// Whether it returned a message when it was last asked.
    fn is_live(&self) -> bool {
        self.rest.is_zero() && self.gives > 0.0
    }

    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    fn gave(&mut self, given: usize, asked: usize) {
        self.gives = f64::midpoint(self.gives, given as f64 / asked as f64);
        self.rest = Duration::ZERO;
    }

    /// Rests twice as long as last time, within the limits, times `jitter`.
    fn rests(&mut self, now: Instant, (least, most): (Duration, Duration), jitter: f64) {
        self.gives /= 2.0;
        self.rest = (self.rest * 2).clamp(least, most);
        self.rests_until = now + self.rest.mul_f64(jitter);
    }
}
