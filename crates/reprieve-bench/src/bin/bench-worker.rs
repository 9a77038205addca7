//! A complete worker with the benchmarks' jobs, built as an application would build it.

fn main() -> std::process::ExitCode {
    reprieve::run(reprieve_bench::jobs::all)
}
