//! A rule: which requests a fault befalls.

use reprieve_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::operation::Operation;

/// Which requests an [`Action`] befalls. The default is each one, always.
///
/// Rules are looked at in the order in which they were added, and every request counts for each rule that it matches until
/// one ends it: [`Delay`](Action::Delay), [`ApplyLate`](Action::ApplyLate) and [`SkewClock`](Action::SkewClock) add to
/// what later rules do; all others end it, and later rules do not see that request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only these; `None`, in JSON `"any"`: all of them.
    #[serde(default, with = "any_operation")]
    pub operation: Option<Operation>,
    /// Only those to queues and containers whose name begins so, or to blobs whose `container/name` does.
    #[serde(default)]
    pub prefix: String,
    /// So many matching requests go well first.
    #[serde(default)]
    pub skip: u64,
    /// So many times it happens; `None`: always.
    #[serde(default)]
    pub times: Option<u64>,
    /// How likely it happens to each request after those that are skipped. Default: 1, certain.
    #[serde(default = "certain")]
    pub probability: f64,
    /// What the dice begin with: the same seed gives the same dice to the same requests.
    #[serde(default)]
    pub seed: u64,
    /// What happens.
    pub action: Action,
}

const fn certain() -> f64 {
    1.0
}

impl Rule {
    /// Befalls each request, always.
    #[must_use]
    pub const fn new(action: Action) -> Self {
        Self {
            operation: None,
            prefix: String::new(),
            skip: 0,
            times: None,
            probability: certain(),
            seed: 0,
            action,
        }
    }

    /// Befalls these requests only.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Befalls so many requests only.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether it can be at all.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, "add a fault", message));
        if !(0.0..=1.0).contains(&self.probability) {
            return invalid(format!("a probability is from 0 to 1, not {}", self.probability));
        }
        match self.action {
            Action::Refuse { status, .. } if !(400..=599).contains(&status) => {
                invalid(format!("an error's status is from 400 to 599, not {status}"))
            }
            Action::SkewClock { seconds } if seconds.unsigned_abs() > SKEW_SECONDS_MAX => {
                invalid(format!("a clock is skewed by {SKEW_SECONDS_MAX} s at most, not by {seconds} s"))
            }
            _ => Ok(()),
        }
    }
}

/// Ten years.
const SKEW_SECONDS_MAX: u64 = 315_360_000;

/// An operation, or `"any"`.
mod any_operation {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Operation;

    const ANY: &str = "any";

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference to the field"
    )]
    pub(super) fn serialize<S: Serializer>(operation: &Option<Operation>, to: S) -> Result<S::Ok, S::Error> {
        operation.map_or(ANY, Operation::name).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Operation>, D::Error> {
        match Option::<String>::deserialize(from)?.as_deref() {
            None | Some(ANY) => Ok(None),
            Some(name) => name.parse().map(Some).map_err(D::Error::custom),
        }
    }
}
