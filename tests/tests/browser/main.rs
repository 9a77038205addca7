//! The pages in a real browser: wide and narrow, in light and dark. Screenshots stay in
//! `target/artefacts`.
//!
//! Needs Node.js, Chromium and `npm ci --prefix tests/browser`. Without them the tests are skipped
//! and print why, unless `REPRIEVE_TESTS_NEED_BROWSER` is set to anything but 0: then they fail.

mod metadata;
mod report;
mod support;
