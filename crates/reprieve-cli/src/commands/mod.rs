//! The commands, each in a file of its own.

pub(crate) mod redrive;
