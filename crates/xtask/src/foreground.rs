//! `cargo xtask azurite`: runs the storage emulator for `--store azurite`.

use std::process::Command;

use crate::command::{Failure, become_it, builds, say};
use crate::install;

/// Runs Azurite on its default ports until Ctrl-C. Its data stays for the next run.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("azurite takes no arguments"));
    }
    install::azurite()?;
    let directory = builds()?.join("azurite");
    say("in another terminal: export REPRIEVE_STORE=azurite");
    let mut azurite = Command::new("node");
    azurite.arg(reprieve_azurite::package().join("node_modules/azurite/dist/src/azurite.js"));
    azurite.arg("--location").arg(directory);
    // The table service is not used, and its default port may be taken.
    azurite.args(["--tablePort", "0", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]);
    become_it(azurite)
}
