//! Fuzzes the reader of Scheduled Events: see `answers`, which the tests of `reprieve-azure` run on
//! the seeds.

#![no_main]

mod answers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| answers::hear(data));
