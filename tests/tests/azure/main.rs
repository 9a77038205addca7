//! The promises of the whole system on a storage account: on Azurite, and on the storage double, which goes wrong on
//! demand. Worker processes are killed, frozen, evicted and cut off from their storage; nothing is lost.

// Said of each, so that the lints know that all of it is tests.
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod drains;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod freezes;
#[cfg(test)]
mod killed_calls;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod support;
