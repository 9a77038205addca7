//! The services that `cargo xtask test` starts for the tests, and their environment variables.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::path::{Path, PathBuf};
use std::{env, io, panic, process, thread};

use reprieve_azurite::{Azurite, Options, Ports};

use crate::certificates::{Certificates, certify};
use crate::command::{Failure, is_needed, say};
use crate::install;

const NEED_AZURITE: &str = "REPRIEVE_TESTS_NEED_AZURITE";
pub(crate) const NEED_PYTHON: &str = "REPRIEVE_TESTS_NEED_PYTHON";

/// The running services; they end when this is stopped or dropped.
#[derive(Default)]
pub(crate) struct Services {
    running: Vec<Azurite>,
    variables: Vec<(&'static str, OsString)>,
}

impl Services {
    /// Starts the services. One that can't be started is reported with the tests that need it; it
    /// is an error if the environment requires these tests.
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut services = Self::default();
        if let Some(python) = unless_needed(NEED_PYTHON, "with Python", install::python())? {
            services.variables.push(("REPRIEVE_TEST_PYTHON", python.into()));
        }
        if let Some(()) = unless_needed(NEED_AZURITE, "on Azurite", install::azurite())? {
            services.start_azurites()?;
        }
        Ok(services)
    }

    /// Returns the variables by which tests find the services.
    pub(crate) fn variables(&self) -> &[(&'static str, OsString)] {
        &self.variables
    }

    /// Stops the services.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        self.running.into_iter().try_for_each(|azurite| azurite.stop().map_err(failed))
    }

    fn start_azurites(&mut self) -> Result<(), Failure> {
        // Each start takes more than a second of one core.
        let (plain, secret) = thread::scope(|scope| {
            let secret = scope.spawn(secret);
            (plain(), secret.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
        });
        if let Some(azurite) = unless_needed(NEED_AZURITE, "on Azurite", plain)? {
            let Ports { blob, queue } = azurite.ports();
            say(&format!("Azurite listens on port {blob} for blobs and on port {queue} for queues"));
            self.variables.push(("REPRIEVE_TEST_AZURITE", azurite.connection_string().into()));
            self.running.push(azurite);
        }
        if let Some((azurite, ca)) = unless_needed(NEED_AZURITE, "on Azurite over HTTPS", secret)? {
            self.variables.push(("REPRIEVE_TEST_AZURITE_HTTPS", azurite.connection_string().into()));
            self.variables.push(("REPRIEVE_TEST_AZURITE_CA", ca.into()));
            self.running.push(azurite);
        }
        Ok(())
    }
}

/// Returns `prepared`; an error becomes a warning unless `variable` is set.
pub(crate) fn unless_needed<T>(
    variable: &str,
    what: &str,
    prepared: Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    match prepared {
        Ok(prepared) => Ok(Some(prepared)),
        Err(failure) if is_needed(variable) => {
            Err(Failure::Failed(format!("{failure}, and {variable} says that tests {what} must run")))
        }
        Err(failure) => {
            say(&format!("TESTS {} SEE NOTHING: {failure}", what.to_uppercase()));
            Ok(None)
        }
    }
}

fn plain() -> Result<Azurite, Failure> {
    let directory = directory("http").map_err(failed)?;
    Azurite::start(&Options { directory, discard: true, ports: Ports::default(), tls: None }).map_err(failed)
}

/// Starts an Azurite that accepts tokens; also returns the authority's certificate.
fn secret() -> Result<(Azurite, PathBuf), Failure> {
    let directory = directory("https").map_err(failed)?;
    let Certificates { ca, tls } = certify(&directory).inspect_err(|_| {
        // The certificate's error is the one to report, even if the directory stays.
        let _removed = fs::remove_dir_all(&directory);
    })?;
    let options = Options { directory, discard: true, ports: Ports::default(), tls: Some(tls) };
    Ok((Azurite::start(&options).map_err(failed)?, ca))
}

/// Makes a new directory, in memory where possible: Azurite writes a file for every message.
fn directory(purpose: &str) -> io::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut number = 0;
    loop {
        let directory = parent.join(format!("reprieve-azurite-{purpose}-{}-{number}", process::id()));
        match builder.create(&directory) {
            // Left by an earlier process with this id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|()| directory),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of `map_err`")]
fn failed(error: io::Error) -> Failure {
    Failure::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_is_not_needed_may_be_missing() {
        let missing = Err::<(), _>(Failure::Failed("there is no node".to_owned()));
        assert_eq!(unless_needed("REPRIEVE_NOT_SET", "on Azurite", missing), Ok(None));
    }

    #[test]
    fn a_needed_service_that_fails_names_the_variable() {
        let missing = Err::<(), _>(Failure::Failed("there is no node".to_owned()));
        // A variable that is always set while Cargo runs tests.
        let failure = unless_needed("CARGO_MANIFEST_DIR", "on Azurite", missing).unwrap_err().to_string();
        assert_eq!(failure, "there is no node, and CARGO_MANIFEST_DIR says that tests on Azurite must run");
    }
}
