//! The client of retail prices on the mock of the service, on good days and bad ones.

// On each module, so that the lints treat all of it as tests.
#[cfg(test)]
mod bad_days;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod support;
