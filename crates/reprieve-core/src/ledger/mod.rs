//! The ledger: what happened to machines, workers and jobs, in entries that outlive the machine.
//!
//! | written | when | by |
//! |---|---|---|
//! | [`Boot`] | once per boot of a machine; renewed while it lives | the first worker that starts there; any of them |
//! | [`Interruption`] | once per drain; once per worker that died | the worker itself; whoever resumes the first of its jobs |
//! | [`Failure`] | once per failed delivery | its worker |
//! | [`HealingAction`] | once per action | its worker |
//!
//! Nothing is written for a job that is done. An entry is a record that is only created (but for the last sign of life of
//! a boot), with the entry as its note: it costs one write, and a report reads thousands of them in a few requests,
//! because lists return notes. No lease, drain or job waits for it: what can't be written while the store is away is
//! tried again for as long as its worker lives.
//!
//! | file | concept |
//! |---|---|
//! | `entry` | the entries |
//! | `name` | their names, which make them one where several workers write |
//! | `store` | [`Ledger`]: writes and reads them |
//! | `lives` | the lives of machines, as the entries and the roster tell |
//! | `losses` | [`Count`]: how often machines lost work, by the day |
//! | `survival` | how long machines live, with a band |
//! | `reasons` | failures by their reason |
//! | `summary` | [`Summary`]: the figures of a time |

mod entry;
mod lives;
mod losses;
mod name;
mod reasons;
mod store;
mod summary;
mod survival;

pub use entry::{Boot, Death, Entry, Failure, HealingAction, How, Interruption, Machine};
pub use lives::{Eviction, Life, lives};
pub use losses::{Count, Counting, WINDOW_DAYS};
pub use name::is_entry;
pub(crate) use reasons::AT_LAST;
pub use reasons::{FailureGroup, group, normalise};
pub(crate) use store::NamedEntry;
pub use store::{Entries, Ledger, Odd};
pub use summary::{AGES_HOURS, Healed, HitJob, Kind, Moment, Share, Spread, Summary, lives_within};
pub use survival::{Point, Spell, curve, curve_at};
