//! Azurite, the storage emulator: one shared by a test run, or a test's own.

use std::path::PathBuf;

use reprieve_azurite::{Options, Ports, is_installed};
use tempfile::TempDir;
use uuid::Uuid;

use crate::nothing::{saw_nothing, variable};

/// The Azurite that `cargo xtask test` started, for all tests of the run.
///
/// Each test uses its own names and leaves its queues nearly empty: calls become slower with the
/// messages in all queues.
///
/// Returns `None`, and prints that the test is skipped, where there is no Azurite.
///
/// # Panics
/// When there is no Azurite and `REPRIEVE_TESTS_NEED_AZURITE` is set.
#[must_use]
pub fn azurite() -> Option<Azurite> {
    let connection_string = variable("REPRIEVE_TEST_AZURITE");
    if connection_string.is_none() {
        saw_nothing(
            "REPRIEVE_TESTS_NEED_AZURITE",
            "REPRIEVE_TEST_AZURITE is not set: run `cargo xtask test`",
        );
    }
    Some(Azurite { connection_string: connection_string?.into_string().expect("a connection string") })
}

/// The Python interpreter with Azure's packages that `cargo xtask test` prepared. Returns `None`,
/// and prints that the test is skipped, where there is none.
///
/// # Panics
/// When there is none and `REPRIEVE_TESTS_NEED_PYTHON` is set.
#[must_use]
pub fn python() -> Option<PathBuf> {
    let python = variable("REPRIEVE_TEST_PYTHON");
    if python.is_none() {
        saw_nothing("REPRIEVE_TESTS_NEED_PYTHON", "REPRIEVE_TEST_PYTHON is not set: run `cargo xtask test`");
    }
    python.map(PathBuf::from)
}

/// Returns `purpose`, of at most 20 characters, with a unique suffix: the name of a queue or a
/// container, short enough for a poison queue.
///
/// # Panics
/// When the purpose is longer.
#[must_use]
pub fn unique(purpose: &str) -> String {
    assert!(purpose.len() <= 20, "{purpose:?} is too long for a queue's name");
    format!("{purpose}-{}", Uuid::now_v7().simple())
}

/// An Azurite that other tests use at the same time.
#[derive(Debug, Clone)]
pub struct Azurite {
    connection_string: String,
}

impl Azurite {
    /// The value of `REPRIEVE_STORE` for clients.
    #[must_use]
    pub fn connection_string(&self) -> &str {
        &self.connection_string
    }

    /// Starts a test's own Azurite, which the test may stop and start again. It ends with the test.
    /// Returns `None` where Azurite is not installed.
    ///
    /// # Panics
    /// When it does not start, or is not installed and `REPRIEVE_TESTS_NEED_AZURITE` is set.
    #[must_use]
    pub fn own() -> Option<OwnAzurite> {
        if !is_installed() {
            saw_nothing("REPRIEVE_TESTS_NEED_AZURITE", "Azurite is not installed: run `cargo xtask test`");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let running = start(&directory, Ports::default());
        Some(OwnAzurite { ports: running.ports(), running: Some(running), directory })
    }
}

/// An Azurite that only this test uses.
#[derive(Debug)]
pub struct OwnAzurite {
    // Before the directory, so that the process has ended when the directory is removed.
    running: Option<reprieve_azurite::Azurite>,
    ports: Ports,
    directory: TempDir,
}

impl OwnAzurite {
    /// The value of `REPRIEVE_STORE` for clients. It stays the same after a restart.
    ///
    /// # Panics
    /// When Azurite is stopped.
    #[must_use]
    pub fn connection_string(&self) -> String {
        self.running.as_ref().expect("a running Azurite").connection_string()
    }

    /// Stops Azurite by SIGTERM, and returns when it has ended. It keeps its data: only a kill
    /// would lose the last seconds.
    ///
    /// # Panics
    /// When Azurite is stopped already, or does not end by itself.
    pub fn stop(&mut self) {
        self.running.take().expect("a running Azurite").stop().expect("an Azurite that ends when asked");
    }

    /// Starts Azurite again, with its data and at the same ports.
    ///
    /// # Panics
    /// When Azurite is running, or does not start.
    pub fn start(&mut self) {
        assert!(self.running.is_none(), "Azurite is running already");
        self.running = Some(start(&self.directory, self.ports));
    }
}

fn start(directory: &TempDir, ports: Ports) -> reprieve_azurite::Azurite {
    let options = Options { directory: directory.path().to_owned(), discard: false, ports, tls: None };
    reprieve_azurite::Azurite::start(&options).expect("a running Azurite")
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn answers(ports: Ports) -> bool {
        [ports.blob, ports.queue].into_iter().all(|port| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    #[test]
    fn an_azurite_of_a_test_s_own_comes_back_where_it_was_and_goes_with_the_test() {
        let Some(mut azurite) = Azurite::own() else { return };
        let (ports, address) = (azurite.ports, azurite.connection_string());
        assert!(answers(ports));
        azurite.stop();
        assert!(!answers(ports));
        azurite.start();
        assert!(answers(ports));
        assert_eq!(azurite.connection_string(), address);
        drop(azurite);
        assert!(!answers(ports));
    }

    #[test]
    fn a_unique_name_is_one_for_a_queue_that_has_a_poison_queue() {
        let names = [unique("at-most-20-characters"[..20].trim_end_matches('-')), unique("a"), unique("a")];
        assert_ne!(names[1], names[2]);
        for name in names {
            assert!(name.len() + "-poison".len() <= 63, "{name}");
            assert!(reprieve_core::QueueName::parse(&name).is_ok(), "{name}");
        }
    }
}
