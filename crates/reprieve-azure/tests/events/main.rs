//! What the Scheduled Events client makes of a service that has some api-versions only, that refuses, and that counts
//! requests. On a service of a few lines that does exactly as it is told; the mock that behaves like Azure is elsewhere.

// Said of each, so that the lints know that all of it is tests.
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
