//! Decides the reaction to interruption notices, without I/O. The worker passes in the time and its
//! state, and carries out the decisions. `plan`, `authority` and `lifecycle` are pure; `active`
//! reads the clocks for reports and for the deadlines of drains.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | [`Policy`]: the settings |
//! | `plan` | [`plan`](plan()): what one notice calls for |
//! | `active` | all active notices: what was done about each, and what to do now |
//! | `authority` | [`authority`](authority()): which machine approves an event |
//! | `lifecycle` | [`Lifecycle`]: the worker's stages, and what a drain means in each |

mod active;
mod authority;
mod lifecycle;
mod plan;
mod settings;

pub(crate) use active::{ActiveNotices, Approval, Key, Orders, State, Throttle};
pub use authority::{Authority, authority};
pub use lifecycle::{Action, DrainOrder, Event, IllegalEvent, Lifecycle, Stage};
pub use plan::{MARGIN, OUTLIVED_AFTER, Own, PAUSE_MAX, PREDICTED_AFTER, Plan, REBALANCE_QUIET, Work, plan};
pub use settings::{Approve, ApproveUser, DuringFreeze, Policy, PredictedFailure};
