//! Random choices of the worker: from the system, or from a seed in a simulation.

use std::cell::RefCell;

use rand::Rng;
use rand::rngs::SmallRng;
use uuid::{Builder, Uuid};

use crate::clock::unix_millis;

thread_local! {
    static SEEDED: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Derives every random choice on this thread from `seed`, so that a simulation can be replayed.
#[cfg(any(test, feature = "testing"))]
pub fn seed(seed: u64) {
    use rand::SeedableRng;
    SEEDED.with_borrow_mut(|seeded| *seeded = Some(SmallRng::seed_from_u64(seed)));
}

/// A number from 0 to 1, for jitter.
pub(crate) fn fraction() -> f64 {
    choose(Rng::random, rand::random)
}

/// Any number, for seeds.
pub(crate) fn number() -> u64 {
    choose(Rng::random, rand::random)
}

/// A unique id that sorts by time (UUID version 7).
pub(crate) fn id() -> Uuid {
    let seeded = |random: &mut SmallRng| {
        let millis = u64::try_from(unix_millis()).unwrap_or_default();
        Builder::from_unix_timestamp_millis(millis, &random.random()).into_uuid()
    };
    choose(seeded, Uuid::now_v7)
}

fn choose<T>(seeded: impl FnOnce(&mut SmallRng) -> T, free: impl FnOnce() -> T) -> T {
    SEEDED.with_borrow_mut(|random| match random {
        Some(random) => seeded(random),
        None => free(),
    })
}
