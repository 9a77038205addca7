//! The commands, each in a file or folder of its own.

pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod events;
pub(crate) mod metadata;
pub(crate) mod redrive;
pub(crate) mod status;
pub(crate) mod storage;
