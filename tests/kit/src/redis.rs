//! A real Redis for a test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Process, eventually};

/// If set, a missing redis-server is a failure.
const NEEDED: &str = "REPRIEVE_TESTS_NEED_REDIS";

/// A server on a port of its own, with the password `secret`, which ends with its test.
#[derive(Debug)]
pub struct RedisServer {
    /// Its process, to be stopped and continued.
    pub process: Process,
    port: u16,
}

impl RedisServer {
    /// Starts one; `None` where there is no `redis-server` and none is needed.
    ///
    /// # Panics
    /// When it can't be started, or is missing and needed.
    #[must_use]
    pub fn start() -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(std::env::var_os(NEEDED).is_none(), "there is no redis-server, and {NEEDED} is set");
            return None;
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
        let port = listener.expect("a free port").port();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--requirepass",
            "secret",
            "--loglevel",
            "warning",
        ]);
        command.args(["--port", &port.to_string()]).stdout(Stdio::null());
        // It writes nothing there.
        command.arg("--dir").arg(std::env::temp_dir());
        let process = Process::start(&mut command);
        eventually("the server listens", Duration::from_secs(20), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(Self { process, port })
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Makes it a replica of another one.
    ///
    /// # Panics
    /// When it refuses.
    pub fn replicate(&self, primary: &Self) {
        self.command(&["CONFIG", "SET", "masterauth", "secret"]);
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    }

    /// Makes it a primary.
    ///
    /// # Panics
    /// When it refuses.
    pub fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Sends an inline command on a connection of its own.
    ///
    /// # Panics
    /// When it is refused.
    pub fn command(&self, words: &[&str]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        write!(stream, "AUTH secret\r\n{}\r\nQUIT\r\n", words.join(" ")).expect("to write");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("answers");
        let refusal = answers.lines().find(|line| line.starts_with('-'));
        assert_eq!(refusal, None, "{}", words[0]);
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:secret@127.0.0.1:{}", self.port)
    }
}
