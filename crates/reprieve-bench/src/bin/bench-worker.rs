//! A whole worker with the jobs of the benchmarks, as a batch team would build it.

fn main() -> std::process::ExitCode {
    reprieve::run(reprieve_bench::jobs::all)
}
