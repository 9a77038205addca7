//! What people look at, looked at in a real browser: wide and narrow, in light and dark. Screenshots stay in
//! `target/artefacts`.
//!
//! Needs Node.js, Chromium and `npm ci --prefix tests/browser`. Without them nothing is looked at and the test says so,
//! unless `REPRIEVE_TESTS_NEED_BROWSER` is set to anything but 0: then it fails.

mod metadata;
mod report;
mod support;
