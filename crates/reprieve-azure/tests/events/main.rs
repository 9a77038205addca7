//! The Scheduled Events client on a service that supports some api-versions only, refuses requests,
//! and counts them. The service is a few lines under the test's control; `watcher` uses the mock
//! that behaves like Azure.

// On each module, so that the lints treat all of it as tests.
#[cfg(test)]
mod approving;
#[cfg(test)]
mod negotiating;
#[cfg(test)]
mod pace;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod service;
mod throttled;
