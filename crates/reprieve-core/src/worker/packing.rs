//! Decides for each kind of job whether it pays to compress its states.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::codec::{self, Encoded};

/// Shorter states are not compressed: the request that stores them costs more than their bytes.
const SHORT: usize = 64 * 1024;

/// After how many saves the decision is made anew, with a state that is not compressed.
const AGAIN: u32 = 50;

/// How many bytes of a state are compressed to find out, in so many pieces from all over it.
const SAMPLE_BYTES: usize = 1 << 20;
const PIECES: usize = 4;

/// How much time compressing must save for each second that it takes. More than one, because its
/// time is the processor's, and that of storing is mostly spent waiting.
const GAIN_MIN: f64 = 1.5;

/// The decision for one kind of job.
#[derive(Debug, Default)]
pub(crate) struct Packing(Mutex<Decision>);

#[derive(Debug, Clone, Copy, Default)]
struct Decision {
    pays: bool,
    /// How many saves until it is made anew; 0: at the next.
    left: u32,
}

/// The result of compressing a sample.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The length after, relative to before.
    ratio: f64,
    /// The time for a byte, in seconds.
    each: f64,
}

impl Packing {
    /// Whether to compress the next state.
    pub(crate) fn is_on(&self) -> bool {
        let decision = self.get();
        decision.pays && decision.left > 0
    }

    fn get(&self) -> Decision {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a save of `state` that took `took`, and decides anew when that is due.
    pub(crate) fn note(&self, state: &Encoded, took: Duration) {
        let Decision { pays, left } = self.get();
        let decision = if left > 0 || state.is_packed() || state.bytes().len() < SHORT {
            Decision { pays, left: left.saturating_sub(1) }
        } else {
            Decision { pays: pays_off(try_out(state.bytes()), state.bytes().len(), took), left: AGAIN }
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = decision;
    }
}

/// Whether compressing a state of this length, which took `stored` to store, saves enough time.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn pays_off(trial: Option<Trial>, length: usize, stored: Duration) -> bool {
    trial.is_some_and(|Trial { ratio, each }| {
        let saved = (1.0 - ratio) * stored.as_secs_f64();
        saved > each * length as f64 * GAIN_MIN
    })
}

/// Compresses a sample of the state.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn try_out(state: &[u8]) -> Option<Trial> {
    let piece = (SAMPLE_BYTES / PIECES).min(state.len() / PIECES);
    let (mut before, mut after, began) = (0, 0, Instant::now());
    for at in 0..PIECES {
        let start = (state.len() - piece) / (PIECES - 1) * at;
        let sample = state.get(start..start + piece)?;
        before += sample.len();
        after += codec::packed_length(sample).ok()?;
    }
    let each = began.elapsed().as_secs_f64() / before.max(1) as f64;
    Some(Trial { ratio: after as f64 / before.max(1) as f64, each })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_state;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn compressing_pays_where_it_saves_more_time_of_storing_than_it_takes() {
        let second_per_gb = 1e-9;
        for (ratio, each, stored_ms, pays) in [
            // 20 MB in 50 ms on a local disk: floats do not pay, text does.
            (0.9, second_per_gb, 50, false),
            (0.2, second_per_gb, 50, true),
            // The same in 400 ms over a network.
            (0.9, second_per_gb, 400, true),
            (1.0, second_per_gb, 400, false),
            (0.2, 20.0 * second_per_gb, 400, false),
        ] {
            let trial = Some(Trial { ratio, each });
            assert_eq!(pays_off(trial, 20_000_000, ms(stored_ms)), pays, "{ratio}, {each}, {stored_ms} ms");
        }
        assert!(!pays_off(None, 20_000_000, ms(400)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_decision_is_made_at_the_first_save_and_anew_after_fifty() {
        let packing = Packing::default();
        let state = encode_state(&vec![1.5_f64; 100_000]).unwrap();
        assert!(!packing.is_on(), "nothing is known yet");
        packing.note(&state, ms(400));
        for save in 0..AGAIN {
            assert!(packing.is_on(), "save {save}");
            packing.note(&state, ms(400));
        }
        assert!(!packing.is_on(), "to measure again");
        packing.note(&state, Duration::ZERO);
        assert!(!packing.is_on(), "the store has become fast");
    }

    #[tokio::test(start_paused = true)]
    async fn short_states_are_never_compressed() {
        let packing = Packing::default();
        packing.note(&encode_state(&vec![1.5_f64; 1_000]).unwrap(), ms(400));
        assert!(!packing.is_on());
    }
}
