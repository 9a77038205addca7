//! The Scheduled Events client and watcher on the mock metadata service, over HTTP.

// On each module, so that the lints treat all of it as tests.
#[cfg(test)]
mod bad_days;
#[cfg(test)]
mod client;
#[cfg(test)]
mod events;
#[cfg(test)]
mod logging;
#[cfg(test)]
mod neighbours;
mod older;
#[cfg(test)]
mod support;
#[cfg(test)]
mod versions;
