//! The commands, each in a file of its own.

pub(crate) mod demo;
pub(crate) mod redrive;
