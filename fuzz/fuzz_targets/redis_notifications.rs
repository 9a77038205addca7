//! Fuzzes the reader of a cache's maintenance notifications: see `notification`, which the tests of `reprieve-redis`
//! run on the seeds.

#![no_main]

mod notification;

libfuzzer_sys::fuzz_target!(|data: &[u8]| notification::hear(data));
