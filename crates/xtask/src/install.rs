//! Installs the tests' dependencies, once for each version of a lock file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, builds, root, run, say};

/// Installs Azurite from its lock file.
pub(crate) fn azurite() -> Result<(), Failure> {
    node_package(&reprieve_azurite::package(), || {
        say("installing Azurite; ignore a warning that it needs a newer Node.js than 20");
    })
}

/// Installs Microsoft's parser of the workspace's queries.
pub(crate) fn kusto() -> Result<(), Failure> {
    node_package(&root().join("infra/tests/kql"), || {})
}

/// Installs what a folder's lock file for Node.js names.
fn node_package(folder: &Path, announce: impl FnOnce()) -> Result<(), Failure> {
    once(&folder.join("package-lock.json"), &folder.join("node_modules"), || {
        announce();
        let mut install = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        install.args(["ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(folder);
        install.current_dir(root());
        run(install)
    })
}

/// Makes a virtual environment with the packages of the Python tests, and returns its interpreter.
pub(crate) fn python() -> Result<PathBuf, Failure> {
    let bin = environment("python", "tests/python/requirements.txt")?;
    Ok(bin.join("python").with_extension(std::env::consts::EXE_EXTENSION))
}

/// Makes a virtual environment with checkov, and returns the folder of its programs.
pub(crate) fn checkov() -> Result<PathBuf, Failure> {
    environment("checkov", "infra/tests/requirements.txt")
}

/// Makes the virtual environment `name` with the packages of a lock file, and returns the folder of
/// its programs.
fn environment(name: &str, requirements: &str) -> Result<PathBuf, Failure> {
    let environment = builds()?.join(name);
    let bin = environment.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let requirements = root().join(requirements);
    once(&requirements, &environment, || {
        let mut create = Command::new(if cfg!(windows) { "python" } else { "python3" });
        // From scratch, so that packages that are no longer required do not stay.
        create.args(["-m", "venv", "--clear"]).arg(&environment);
        run(create).map_err(|failure| {
            Failure::Failed(format!("{failure} (on Debian: apt-get install python3-venv)"))
        })?;
        let mut install = Command::new(bin.join("python").with_extension(std::env::consts::EXE_EXTENSION));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        // Only packages with a checksum, and none that have to be built.
        install.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&requirements);
        run(install)
    })?;
    Ok(bin)
}

/// Runs `install`, which fills `directory`, unless it ran for the present `lock` file before.
fn once(lock: &Path, directory: &Path, install: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::Failed(format!("{} can't be installed: {error}", lock.display()));
    let wanted = fs::read(lock).map_err(failed)?;
    let stamp = directory.join(".installed");
    // Of several test runs at once, one installs and the others wait.
    let turn = File::create(builds()?.join("install.lock")).map_err(failed)?;
    turn.lock().map_err(failed)?;
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    install()?;
    // Last, so that an interrupted installation is repeated.
    fs::write(&stamp, wanted).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_installation_is_repeated_only_when_its_lock_file_changes() {
        let directory = std::env::temp_dir().join(format!("reprieve-xtask-{}", std::process::id()));
        let installed = directory.join("installed");
        fs::create_dir_all(&installed).unwrap();
        let lock = directory.join("lock");
        let runs = Cell::new(0);
        let install = |outcome: Result<(), Failure>| {
            once(&lock, &installed, || {
                runs.set(runs.get() + 1);
                outcome
            })
        };

        fs::write(&lock, "1").unwrap();
        assert!(install(Err(Failure::Failed("cut off".to_owned()))).is_err());
        for (version, expected) in [("1", 2), ("1", 2), ("2", 3), ("2", 3)] {
            fs::write(&lock, version).unwrap();
            install(Ok(())).unwrap();
            assert_eq!(runs.get(), expected, "version {version}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
