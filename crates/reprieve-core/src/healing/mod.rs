//! Healing: what is done about a fault of a job, a slot, a worker or a machine, and whether it may be.
//!
//! | file | concept |
//! |---|---|
//! | `action` | an action, as it is logged and counted |
//! | `verdict` | whether a machine with a proven fault is to be replaced |
//!
//! A healer that is wrong is worse than the fault. So a layer acts on proof alone: a job that takes long, a store
//! that does not answer, a full disk and busy cores prove nothing. docs/healing.md has the layers in one table.

mod action;
mod verdict;

pub use action::{Action, HealingAction, Layer, Outcome};
pub use verdict::{
    Evidence, Fault, FaultKind, Fleet, REPAIR_EVERY, Refusal, STORE_ANSWERED_WITHIN, Verdict, decide,
    refuse_to_follow,
};
