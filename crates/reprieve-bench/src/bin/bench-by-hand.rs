//! Runs the loops that the worker is compared with: the same work without a worker.

fn main() -> std::process::ExitCode {
    reprieve_bench::by_hand::run()
}
