//! The services of `cargo xtask test` end with it, however it ends.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{env, fs};

/// Replaces Cargo: prints the address of Azurite, waits until its input ends, and then fails like a
/// test run.
const CARGO: &str = r#"#!/bin/sh
case "$*" in *--version*) exit 0 ;; esac
echo "$REPRIEVE_TEST_AZURITE"
while read -r _; do :; done
exit 1
"#;

/// How often a port is checked, and the maximum number of checks: this machine may be busy.
const EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: usize = 400;

#[test]
fn azurite_ends_when_tests_have_failed() {
    let Some((mut test, ports)) = start("failed") else { return };
    drop(test.stdin.take());
    assert_eq!(test.wait().unwrap().code(), Some(1));
    assert_eq!(answering(&ports), 0, "{ports:?}");
}

#[test]
fn azurite_ends_when_its_starter_is_killed() {
    let Some((mut test, ports)) = start("killed") else { return };
    assert_eq!(answering(&ports), 2, "{ports:?}");
    test.kill().unwrap();
    test.wait().unwrap();
    // No byte ever arrives: this waits without keeping a core from Azurite.
    let (_sender, nothing) = channel::<()>();
    for _ in 0..LOOKS_MAX {
        if answering(&ports) == 0 {
            return;
        }
        let _elapsed = nothing.recv_timeout(EVERY);
    }
    panic!("Azurite still answers at {ports:?}");
}

/// Starts `cargo xtask test` with a Cargo that runs no tests, and waits until Azurite answers.
/// Returns `None` where Azurite is not installed.
#[expect(
    clippy::print_stderr,
    reason = "a test that passed although it saw nothing is not to pass in silence"
)]
fn start(purpose: &str) -> Option<(Child, Vec<u16>)> {
    let mut test = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("test")
        .env("PATH", tools(purpose))
        .env_remove("REPRIEVE_TEST_AZURITE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("xtask");
    let mut line = String::new();
    BufReader::new(test.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let endpoints = line.trim().split(';').filter_map(|part| part.split_once("Endpoint="));
    let ports: Vec<u16> = endpoints.filter_map(|(_, url)| port(url)).collect();
    if ports.is_empty() {
        eprintln!("THIS TEST SAW NOTHING: Azurite did not start");
        drop(test.stdin.take());
        let ended = test.wait().expect("an end");
        assert!(env::var_os("REPRIEVE_TESTS_NEED_AZURITE").is_none(), "ended with {ended}");
        return None;
    }
    Some((test, ports))
}

/// Returns a directory with all allowed programs: none of them installs anything.
fn tools(purpose: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tools-{purpose}"));
    let _absent = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    let cargo = directory.join("cargo");
    fs::write(&cargo, CARGO).expect("a script");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("a script that runs");
    let path = env::var_os("PATH").unwrap_or_default();
    for tool in ["node", "openssl"] {
        if let Some(found) = env::split_paths(&path).map(|at| at.join(tool)).find(|tool| tool.is_file()) {
            symlink(found, directory.join(tool)).expect("a link");
        }
    }
    directory
}

/// Returns the port of `http://HOST:PORT/ACCOUNT`.
fn port(url: &str) -> Option<u16> {
    url.split('/').nth(2)?.rsplit_once(':')?.1.parse().ok()
}

fn answering(ports: &[u16]) -> usize {
    ports.iter().filter(|&&port| TcpStream::connect(("127.0.0.1", port)).is_ok()).count()
}
