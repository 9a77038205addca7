//! `cargo xtask azurite`: a storage account on this machine, to try `--store azurite` on.

use std::process::Command;

use crate::command::{Failure, become_it, builds, say};
use crate::install;

/// Runs Azurite on the ports where everybody looks for it, until Ctrl-C. What it keeps, it keeps for the next time.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("azurite takes no arguments"));
    }
    install::azurite()?;
    let directory = builds()?.join("azurite");
    say("in another terminal: export REPRIEVE_STORE=azurite");
    let mut azurite = Command::new("node");
    azurite.arg(xtask::azurite::package().join("node_modules/azurite/dist/src/azurite.js"));
    azurite.arg("--location").arg(directory);
    // Nobody asks for tables, and their usual port may be somebody else's.
    azurite.args(["--tablePort", "0", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]);
    become_it(azurite)
}
