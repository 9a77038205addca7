//! What a user would do without a worker, to be compared with one.

fn main() -> std::process::ExitCode {
    reprieve_bench::by_hand::run()
}
