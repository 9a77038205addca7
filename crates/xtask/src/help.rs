//! `cargo xtask help`.

use std::io::{self, Write};

use crate::command::Failure;

const HELP: &str = "\
Usage: cargo xtask VERB [ARGUMENTS]

  demo ARGS...   a fleet that survives evictions, in half a minute; see `demo --help`
  check          formatting, lints, documentation, and, with cargo-deny, licences, bans and sources
  test           all tests and doctests, with cargo-nextest where it is installed; with Node.js and Python it also
                 installs and starts Azurite, and installs the packages of the Python tests
  test ARGS...   the tests only; ARGS go to the test runner, such as `-p reprieve-core`, or part of a test's name
  infra [PART...]  tests of what is deployed: `templates`, `scripts` of the package, and the package on `machines`
                 with a real systemd, which needs root; all without PART
  modules        circles in the graph of each crate's modules; `modules --crate NAME` for one crate
  simulate ARGS...  simulates fleets of workers and checks them; `simulate --seeds N`, `--from S`, `--replay S`;
                 `--survival N` plays fleets with a known law, and compares the ledger's curve with it
  mutants [NAME...]  removes one guard of the worker at a time; `simulate` must detect each
  thumbnails [DIR]  makes thumbnails of DIR, or of generated pictures, while one worker is evicted and one killed
  package ARGS...  the archive of the VM Application: `--bin PATH` is the worker's program; `--version X.Y.Z`, by
                 default this workspace's; `--out DIR`, by default target/package; `--cli PATH` adds the command
                 `reprieve`; `--allow-large` accepts programs over 15 MB
  azurite        runs a storage emulator for `--store azurite` until Ctrl-C
  bench ARGS...  benchmarks, compared with raw SQLite and other queues, which it installs; see `bench --help`
  help           prints this help

Exit codes: 0 success, 1 failure, 2 wrong usage.
";

pub(crate) fn run() -> Result<(), Failure> {
    io::stdout()
        .write_all(HELP.as_bytes())
        .map_err(|error| Failure::Failed(format!("the help could not be written: {error}")))
}
