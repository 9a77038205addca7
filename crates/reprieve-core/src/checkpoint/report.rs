//! The intervals and their reasons, as the roster and `reprieve status` show them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ASSUMED_LOSSES, CheckpointEvery, LONGEST, Losses, SHORTEST};

/// How often a worker saves the progress of its jobs, and why. Durations are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// The kinds of which it has jobs, or saved one within the hour.
    pub kinds: Vec<KindInterval>,
    /// What the intervals follow from besides the cost of a save; `None` where they are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// How often a worker saves the progress of its jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindInterval {
    /// The kind.
    pub kind: String,
    /// The interval.
    pub every_ms: u64,
    /// What a save takes, on average of the latest ones; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_ms: Option<u64>,
    /// The bound that the interval would pass without it; `None` within both, and for one that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// A bound of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// It is [`SHORTEST`].
    Floor,
    /// It is [`LONGEST`].
    Ceiling,
}

/// How often a machine loses work, as its worker takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The losses that were counted.
    pub counted: Losses,
    /// Those that are assumed besides them.
    pub assumed: Losses,
    /// The mean time between two losses on a machine that follows from both.
    pub between_ms: u64,
    /// The shortest interval.
    pub floor_ms: u64,
    /// The longest interval.
    pub ceiling_ms: u64,
}

impl IntervalReport {
    /// The report of a worker with this setting and these `kinds`, each with the mean time of its saves.
    #[must_use]
    pub fn new(
        setting: CheckpointEvery,
        counted: Losses,
        kinds: impl IntoIterator<Item = (String, Option<Duration>)>,
    ) -> Self {
        let kind = |(kind, save): (String, Option<Duration>)| {
            let every = setting.interval(save, counted);
            let bound = match setting {
                CheckpointEvery::Auto if every == SHORTEST => Some(Bound::Floor),
                CheckpointEvery::Auto if every == LONGEST => Some(Bound::Ceiling),
                CheckpointEvery::Auto | CheckpointEvery::Every(_) => None,
            };
            KindInterval { kind, every_ms: millis(every), save_ms: save.map(millis), bound }
        };
        let rate = match setting {
            CheckpointEvery::Auto => Some(Rate::new(counted)),
            CheckpointEvery::Every(_) => None,
        };
        Self { kinds: kinds.into_iter().map(kind).collect(), rate }
    }
}

impl Rate {
    fn new(counted: Losses) -> Self {
        Self {
            counted,
            assumed: ASSUMED_LOSSES,
            between_ms: millis((ASSUMED_LOSSES + counted).between()),
            floor_ms: millis(SHORTEST),
            ceiling_ms: millis(LONGEST),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(setting: CheckpointEvery, saves: [u64; 3]) -> Vec<(u64, Option<Bound>)> {
        let kinds = saves.map(|ms| ("k".to_owned(), Some(Duration::from_millis(ms))));
        let report = IntervalReport::new(setting, Losses::default(), kinds);
        report.kinds.iter().map(|kind| (kind.every_ms / 1_000, kind.bound)).collect()
    }

    #[test]
    fn a_report_names_the_bound_that_applies() {
        let auto = [(5, Some(Bound::Floor)), (268, None), (600, Some(Bound::Ceiling))];
        assert_eq!(of(CheckpointEvery::Auto, [0, 1_000, 9_000]), auto);
        let set = CheckpointEvery::Every(LONGEST);
        assert_eq!(of(set, [0, 1_000, 9_000]), [(600, None); 3]);
        assert_eq!(IntervalReport::new(set, Losses::default(), []).rate, None);
    }

    #[test]
    fn a_report_is_read_without_what_is_left_out_and_with_what_is_added() {
        let least = r#"{"kinds":[{"kind":"k","every_ms":5}]}"#;
        let report: IntervalReport = serde_json::from_str(least).unwrap();
        assert_eq!((report.kinds[0].save_ms, report.kinds[0].bound, report.rate), (None, None, None));
        assert_eq!(serde_json::to_string(&report).unwrap(), least);
        let more = r#"{"kinds":[{"kind":"k","every_ms":5,"of":"zone 1"}],"zones":[]}"#;
        assert_eq!(serde_json::from_str::<IntervalReport>(more).unwrap(), report);
    }
}
