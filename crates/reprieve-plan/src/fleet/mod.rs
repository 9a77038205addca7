//! A seeded simulation of a fleet, its queue and its jobs.
//!
//! It says what a batch costs under a [`Strategy`], and when it is done.
//!
//! | file | concept |
//! |---|---|
//! | `model` | [`Model`]: the jobs, the machines and the market |
//! | `strategy` | [`Strategy`]: which machines, and what follows an eviction |
//! | `run` | one run: events in the order of their time |
//! | `starts` | requests for machines, and their boots |
//! | `stops` | evictions, and the other ends of machines |
//! | `slots` | jobs on slots |
//! | `jobs`, `machine`, `pace` | the queues; the state of a machine; how a job passes its time |
//! | `draws` | [`Draws`]: what chance decides, by the seed |
//! | `bursts`, `prices` | evictions together; prices over time |
//! | `outcome` | [`Outcome`]: the result of a run |
//! | `summary` | [`Summary`]: the results of many |
//!
//! Spot machines change state by [`crate::vm_state`]. What the model assumes is in docs/planning.md.
//!
//! # Example: a hundred jobs on ten Spot machines
//!
//! ```
//! use reprieve_plan::Price;
//! use reprieve_plan::fleet::{Model, Strategy, simulate};
//!
//! let [spot, regular] = [50_000_000, 200_000_000].map(Price::from_nanos_per_hour);
//! let model = Model::new(100, 3_600_000, spot, regular);
//! model.check()?;
//! let outcome = simulate(&model, &Strategy::steady_fleet(10), 1);
//! assert_eq!(outcome.finished_ms, Some(10 * 3_600_000));
//! assert_eq!(outcome.cost.total().micros(), 5_000_000);
//! # Ok::<(), reprieve_plan::fleet::ModelError>(())
//! ```

mod bursts;
mod draws;
mod jobs;
mod machine;
mod model;
mod outcome;
mod pace;
mod prices;
mod run;
mod slots;
mod starts;
mod stops;
mod strategy;
mod summary;

pub use bursts::Bursts;
pub use draws::{Draws, Fate, Losing};
pub use model::{Evictions, LIMIT_MAX_MS, Machines, Market, Model, ModelError, Notice, Work};
pub use outcome::{Costs, HourUse, Outcome, SlotTime};
pub use prices::PriceSteps;
pub use run::simulate;
pub(crate) use run::simulate_within;
pub use strategy::{FLEET_DELAY_MS, Mix, Strategy, StrategyError, Swap, Upkeep};
pub(crate) use summary::Runs;
pub use summary::{Spread, Summary};
