//! A real Redis for a test, and a primary with its replica behind one address.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Forwarder, Process, eventually};

/// If set, a missing redis-server is a failure.
const NEEDED: &str = "REPRIEVE_TESTS_NEED_REDIS";

const LIMIT: Duration = Duration::from_secs(20);

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
        Self::start_with(&[])
    }

    /// The same with more settings, as on the command line. On a cluster's node, a port that is 10,000 higher must be
    /// free, too.
    ///
    /// # Panics
    /// As of [`start`](Self::start).
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Option<Self> {
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
            "--masterauth",
            "secret",
            "--loglevel",
            "warning",
        ]);
        // Replication begins at once, and writes no file.
        command.args(["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb"]);
        command.args(["--port", &port.to_string()]).stdout(Stdio::null());
        // It writes nothing there.
        command.arg("--dir").arg(std::env::temp_dir());
        command.args(settings);
        let process = Process::start(&mut command);
        eventually("the server listens", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_ok());
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
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    }

    /// Makes it a primary.
    ///
    /// # Panics
    /// When it refuses.
    pub fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Runs a command, and returns its answer as text: a status, a number or a string.
    ///
    /// # Panics
    /// When there is no answer in time, or the server refuses the command.
    pub fn command(&self, words: &[&str]) -> String {
        self.try_command(words).expect("an answer")
    }

    /// The same where the server's connections may be closed meanwhile.
    ///
    /// # Errors
    /// There is no answer in time, or the connection ends without one.
    ///
    /// # Panics
    /// When the server refuses the command.
    pub fn try_command(&self, words: &[&str]) -> io::Result<String> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut answers = BufReader::new(&stream);
        let mut answer = String::new();
        for words in [&["AUTH", "secret"], words] {
            let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            let command = format!("*{}\r\n{}", words.len(), parts.collect::<String>());
            (&stream).write_all(command.as_bytes())?;
            answer = read(&mut answers)?;
        }
        Ok(answer)
    }
}

fn url(port: u16) -> String {
    format!("redis://:secret@127.0.0.1:{port}")
}

fn read(answers: &mut BufReader<&TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if answers.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    assert!(!line.starts_with('-') && !line.is_empty(), "the server answered {line:?}");
    let Some(length) = line.strip_prefix('$') else { return Ok(line[1..].to_owned()) };
    // A string that is missing has the length -1.
    let mut bytes = vec![0; length.parse::<usize>().map_or(0, |length| length + 2)];
    answers.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// A primary and a replica behind one address, as a managed service has them.
#[derive(Debug)]
pub struct RedisPair {
    /// The server that clients reach.
    pub primary: RedisServer,
    /// The other one.
    pub replica: RedisServer,
    /// The address of both.
    pub balancer: Forwarder,
}

impl RedisPair {
    /// Starts a pair, and waits until it replicates; `None` where there is no `redis-server` and none is needed.
    ///
    /// # Panics
    /// When it can't be started, or is missing and needed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let (primary, replica) = (RedisServer::start()?, RedisServer::start()?);
        follow(&replica, &primary);
        let balancer = Forwarder::to(primary.port);
        Some(Self { primary, replica, balancer })
    }

    /// The URL of the address.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.balancer.port())
    }

    /// Makes the replica the primary: the address follows, and closes its connections. The old primary goes on as
    /// one until it [rejoins](Self::rejoin).
    pub fn promote(&mut self) {
        self.replica.promote();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.balancer.switch(self.primary.port);
    }

    /// Makes the other server a replica of the primary.
    pub fn rejoin(&self) {
        follow(&self.replica, &self.primary);
    }
}

/// Waits until the replica has what the primary has.
fn follow(replica: &RedisServer, primary: &RedisServer) {
    replica.replicate(primary);
    eventually("the replica is up to date", LIMIT, || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_promoted_with_what_the_primary_had() {
        let Some(mut pair) = RedisPair::start() else { return };
        let old = pair.primary.port();
        assert_eq!(pair.primary.command(&["SET", "key", "value | of two words"]), "OK");
        assert_eq!(pair.primary.command(&["WAIT", "1", "20000"]), "1");
        pair.promote();
        assert_eq!(
            (pair.replica.port(), pair.primary.command(&["GET", "key"]).as_str()),
            (old, "value | of two words")
        );
        pair.rejoin();
        assert_eq!(pair.primary.command(&["SET", "key", "2"]), "OK");
        assert_eq!(pair.primary.command(&["WAIT", "1", "20000"]), "1");
        assert_eq!(
            (pair.replica.command(&["GET", "key"]), pair.replica.command(&["GET", "none"])),
            ("2".into(), String::new())
        );
    }
}
