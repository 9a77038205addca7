//! The benchmarks, `cargo xtask bench`: they measure Reprieve, its peers and plain SQLite in one
//! run.
//!
//! | module | purpose |
//! |---|---|
//! | `cli` | reads the command line, runs the sections, writes the results |
//! | `sections` | one file for each section |
//! | `measure`, `report` | a measure: its values, their median and its goal; a whole run, as JSON |
//! | `table`, `compare` | tables of the measures; the comparison with an earlier run |
//! | `contest` | the contestants: our worker, `raw_sqlite`, and the `peers` |
//! | `noop` | the no-op jobs, and the figures of a run of them |
//! | `place`, `process`, `watch`, `journal` | a trial's store and processes, and their observation |
//! | `site`, `tenancy` | the same for storage accounts (Azurite or the double) |
//! | [`jobs`] | the jobs that the worker runs |
//! | [`by_hand`] | the same work without a worker, as a program of its own |
//!
//! It needs process groups and signals, and reads memory and CPU time from `/proc`.

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
