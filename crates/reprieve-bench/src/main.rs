//! The command `reprieve-bench`; `cargo xtask bench` builds and runs it.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    reprieve_bench::run()
}

#[cfg(not(unix))]
#[expect(clippy::print_stderr, reason = "a program's way to refuse")]
fn main() -> ExitCode {
    eprintln!("the benchmarks kill and stop processes with signals; run them on Linux");
    ExitCode::from(2)
}
