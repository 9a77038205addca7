//! The `reprieve` command as a process: its output and its exit codes.

mod blobs;
mod cancel;
mod clean;
mod demo;
mod doctor;
mod enqueue;
mod events;
mod help;
mod metadata;
mod plan;
mod prices;
mod redis;
mod redrive;
mod report;
mod status;
mod storage;
mod support;
