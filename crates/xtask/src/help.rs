//! `cargo xtask help`: what there is to do.

use std::io::{self, Write};

use crate::command::Failure;

const HELP: &str = "\
Usage: cargo xtask VERB [ARGUMENTS]

  demo ARGS...   evictions survived, shown in a minute; `demo --help` says more
  check          formatting, lints, documentation, and, with cargo-deny, licences, bans and sources
  test           all tests, with cargo-nextest where it is installed, and the doctests; where there are Node.js and
                 Python, it installs and starts Azurite for them, and what Python's tests need
  test ARGS...   the tests only; ARGS go to the test runner, such as `-p reprieve-core`, or part of a test's name
  modules        circles in the graph of each crate's modules; `modules --crate NAME` for one crate
  simulate ARGS...  workers in a simulated world, checked by what happened; `simulate --seeds N`, `--from S`, `--replay S`
  mutants [NAME...]  takes one guard at a time out of the worker; each must be noticed by `simulate`
  thumbnails [DIR]  makes thumbnails of DIR, or of pictures that it makes, while one worker is evicted and one killed
  azurite        a storage account on this machine, for `--store azurite`, until Ctrl-C
  bench ARGS...  what it costs, beside SQLite by hand and other queues, which it installs; `bench --help` says more
  help           this

Exit codes: 0 all is well, 1 something failed, 2 wrong usage.
";

pub(crate) fn run() -> Result<(), Failure> {
    io::stdout()
        .write_all(HELP.as_bytes())
        .map_err(|error| Failure::Failed(format!("the help could not be written: {error}")))
}
