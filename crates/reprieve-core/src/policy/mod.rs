//! The policy: settings, a pure function from (notice, own state, settings) to a [`Plan`], and the
//! set of active notices.
//!
//! It reads no clock and does no I/O: the worker passes in the time and its progress, and carries
//! out the plan.

mod agenda;
mod authority;
mod plan;
mod settings;

pub(crate) use agenda::{Agenda, Approval, Conduct, Key, Orders, State};
pub use authority::{Authority, authority};
pub use plan::{MARGIN, OUTLIVED_AFTER, Own, PAUSE_MAX, PREDICTED_AFTER, Plan, REBALANCE_QUIET, Work, plan};
pub use settings::{Approve, ApproveUser, Policy, PredictedFailure};
