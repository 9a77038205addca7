//! Eviction rates, price history and placement scores, on the mock of Azure Resource Manager.

// On the module, so that the lints treat all of it as tests.
#[cfg(test)]
mod reading;
