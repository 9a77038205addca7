//! Values behind a mutex that are only read and replaced as a whole.

use std::sync::{Mutex, PoisonError};

/// Reads a value that is only replaced as a whole, so a panic elsewhere can't leave half of one.
pub(crate) fn get<T: Copy>(of: &Mutex<T>) -> T {
    *of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces a value that [`get`] reads, and returns the one before.
pub(crate) fn replace<T>(of: &Mutex<T>, value: T) -> T {
    std::mem::replace(&mut *of.lock().unwrap_or_else(PoisonError::into_inner), value)
}

/// Replaces a value that [`get`] reads.
pub(crate) fn set<T>(of: &Mutex<T>, value: T) {
    *of.lock().unwrap_or_else(PoisonError::into_inner) = value;
}
