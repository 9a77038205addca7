//! The benchmarks, `cargo xtask bench`: what Reprieve costs, beside its peers and beside SQLite itself, in one run.
//!
//! | module | what it does |
//! |---|---|
//! | `cli` | reads the command line, runs the sections, writes what came of them |
//! | `sections` | one file for each thing that is measured |
//! | `measure`, `report` | a measure: its values, their median and its goal; all of a run, as JSON |
//! | `table`, `compare` | the measures for people; and beside those of an earlier run |
//! | `contest` | the contestants: our worker, `raw_sqlite`, and the peers that `peers` installs and runs |
//! | `noop` | the no-op jobs, and the figures of a run of them |
//! | `place`, `process`, `watch`, `journal` | a store of its own for each trial, what runs on it, and how that is seen |
//! | `site`, `tenancy` | the same for storage accounts: Azurite or the storage double, and a queue and container in it |
//! | [`jobs`] | the jobs that our worker does meanwhile |
//! | [`by_hand`] | what a user would write on the SDK instead of a worker, as a program of its own |
//!
//! It runs where there are process groups and signals, and what it says of memory and processors it reads in `/proc`.

pub mod by_hand;
pub mod jobs;

#[cfg(unix)]
mod cli;
#[cfg(unix)]
mod compare;
#[cfg(unix)]
mod contest;
#[cfg(unix)]
mod journal;
#[cfg(unix)]
mod machine;
#[cfg(unix)]
mod measure;
#[cfg(unix)]
mod noop;
#[cfg(unix)]
mod peers;
#[cfg(unix)]
mod place;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod raw_sqlite;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod sections;
#[cfg(unix)]
mod site;
#[cfg(unix)]
mod table;
#[cfg(unix)]
mod tenancy;
#[cfg(unix)]
mod wait;
#[cfg(unix)]
mod watch;

#[cfg(unix)]
pub use cli::run;
