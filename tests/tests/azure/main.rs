//! The promises of the whole system on a storage account: on Azurite, and on the storage double
//! with injected faults. Worker processes are killed, frozen, evicted and cut off from their
//! storage; nothing is lost.

// On each module, so that the lints treat all of it as tests.
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod drains;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod escalation;
#[cfg(test)]
mod expiring;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod freezes;
#[cfg(test)]
mod killed_calls;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod receipts;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod support;
