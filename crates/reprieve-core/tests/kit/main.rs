//! The test kit for jobs: it passes jobs that survive, and finds those that do not.

mod by_hand;
mod found;
mod real;
mod support;
mod survivors;
