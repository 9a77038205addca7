//! The mock metadata service: [`MetadataServer`], its [`Config`], its [`Scenario`]s, and its
//! [`Fault`]s.

mod announcement;
mod app;
mod config;
pub(crate) mod control;
mod endpoints;
mod faults;
mod moment;
mod page;
mod plan;
mod refusal;
mod scenario;
mod server;
mod span;
mod state;
mod world;

pub use announcement::{Announcement, OtherTenants};
pub use config::Config;
pub use faults::{Endpoint, Fault, FaultRule, FaultState};
pub use plan::{EventPlan, TenantDelay, event_type};
pub use scenario::Scenario;
pub use server::MetadataServer;
pub use span::Span;
pub use state::{
    Approval, Entry, EventState, Evicted, Running, ScenarioState, State, Status, VmState, What, Which,
};
