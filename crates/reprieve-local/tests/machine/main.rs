//! The store on a real machine: processes that die, disks that fill up.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod deaths;
mod faults;
mod process;
mod scene;
mod torture;

use std::path::Path;

/// The entry of the tests' child processes. Run by hand, it gets no orders and does nothing.
#[test]
#[ignore = "the other tests start it as a process of its own"]
fn child() {
    let orders = process::orders();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match &orders.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => return,
            ["full", path] => faults::fill_the_disk(Path::new(path)).await,
            ["read-only", path] => faults::meet_a_directory_that_cannot_be_written(Path::new(path)).await,
            [role, directory, argument] => {
                scene::play(role, Path::new(directory), argument.parse().unwrap()).await;
            }
            other => panic!("unknown orders {other:?}"),
        }
        println!("the child is done");
    });
}
