//! The Scheduled Events client and watcher on the mock metadata service, over HTTP.

// Said of each, so that the lints know that all of it is tests.
#[cfg(test)]
mod bad_days;
#[cfg(test)]
mod client;
#[cfg(test)]
mod events;
#[cfg(test)]
mod logging;
#[cfg(test)]
mod support;
