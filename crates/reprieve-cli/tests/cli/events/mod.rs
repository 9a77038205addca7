//! `reprieve events`, on a mock metadata service inside the test.

mod approve;
mod exec;
mod stop;
mod support;
mod watch;
