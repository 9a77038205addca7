//! What a notice calls for: settings, a pure function from (notice, own state, settings) to a [`Plan`], and the account of
//! all notices that stand.
//!
//! No clock, no async and no storage: the worker says what time it is and how far it has got, and does what the plan says.

mod agenda;
mod authority;
mod plan;
mod settings;

pub(crate) use agenda::{Agenda, Approval, Conduct, Key, Orders, State};
pub use authority::{Authority, authority};
pub use plan::{MARGIN, OUTLIVED_AFTER, Own, PAUSE_MAX, PREDICTED_AFTER, Plan, REBALANCE_QUIET, Work, plan};
pub use settings::{Approve, ApproveUser, Policy, PredictedFailure};
