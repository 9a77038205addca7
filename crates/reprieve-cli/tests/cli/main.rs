//! The `reprieve` command as a process: what it prints, where, and how it exits.

mod demo;
mod doctor;
mod enqueue;
mod events;
mod help;
mod metadata;
mod redrive;
mod status;
mod storage;
mod support;
