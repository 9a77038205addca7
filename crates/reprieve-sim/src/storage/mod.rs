//! A stateful double of Azure's queue and blob services: [`StorageServer`] stores in memory,
//! answers over real HTTP as the services do, injects faults on demand, and counts its requests.
//!
//! It is for load tests, chaos and faults; Azurite is for conformance. It supports what Reprieve
//! and its tests use, at the same cost whatever the depth of a queue. Where Azurite differs from
//! the service, it answers like the service: an old receipt is 404 `MessageNotFound`, and every
//! message of a batch has a receipt of its own. It refuses everything else with 501.
//!
//! As with Azurite, the account is in the path, and there is one port for blobs and one for queues.
//! It verifies no signatures, tokens or checksums, but refuses requests without authorization. A
//! deleted queue or container can be created again at once; in Azure that takes half a minute.
//!
//! Both ports also answer `/_control/…`, which [`client`] calls: `POST faults` with a [`Rule`],
//! `GET counts`, `PUT latency`.
//!
//! # Example: a receive with a lost answer
//!
//! ```
//! use reprieve_sim::storage::{Action, Config, Operation, Rule, StorageServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = StorageServer::start(Config::default()).await?;
//! let http = reqwest::Client::new();
//! let queue = format!("{}/work", server.queue_url());
//! http.put(format!("{queue}?sig=any")).send().await?.error_for_status()?;
//!
//! server.add_fault(Rule::new(Action::LoseAnswer).on(Operation::Receive).times(1))?;
//! let messages = format!("{queue}/messages?sig=any");
//! assert!(http.get(&messages).send().await.is_err());
//! assert!(http.get(&messages).send().await?.status().is_success());
//! assert_eq!(server.counts().requests(Operation::Receive), 2);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod app;
mod auth;
mod blob;
mod call;
pub mod client;
mod config;
mod control;
mod counts;
mod faults;
mod latency;
mod moment;
mod names;
mod operation;
mod queue;
mod refusal;
mod request;
mod route;
mod rule;
mod server;
mod xml;

pub use config::Config;
pub use counts::{Counts, OperationCounts};
pub use faults::ActiveFault;
pub use latency::Latency;
pub use operation::Operation;
pub use rule::{Action, Rule};
pub use server::{ACCOUNT, StorageServer};
