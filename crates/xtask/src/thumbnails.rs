//! `cargo xtask thumbnails`: the main job on real processes, with one worker evicted and one killed
//! half way.

use crate::command::{Failure, cargo, run};

/// Runs it on generated pictures, or on those of the named directory.
pub(crate) fn run_on(arguments: &[String]) -> Result<(), Failure> {
    if arguments.len() > 1 {
        return Err(Failure::usage("thumbnails takes one directory at the most"));
    }
    let mut command = cargo(&["run", "--quiet", "--package", "reprieve-tests", "--bin", "survive", "--"]);
    if let Some(directory) = arguments.first() {
        // Cargo runs in the root of the repository, and the name is relative to where the user is.
        let directory = std::path::absolute(directory)
            .map_err(|error| Failure::usage(format!("{directory} can't be found: {error}")))?;
        command.arg(directory);
    }
    run(command)
}
