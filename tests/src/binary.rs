//! Finds the binaries of other packages, which Cargo does not build for a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// A line of Cargo's build messages.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// One of the tests, and quick to build. With it, Cargo builds a binary with the features that it has in a build of all
/// tests, instead of most of the workspace once more, within a test.
const ANY_TEST: &str = "busy_cores";

/// Builds and returns the binary `name` of the workspace, with the tests' own optimisation. Cargo skips
/// what is up to date, and serialises tests that build at the same time.
///
/// # Panics
/// When it can't be built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--bin", name, "--test", ANY_TEST, "--profile", profile, "--quiet"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stderr(Stdio::inherit())
        .output()
        .expect("Cargo, which built this test");
    assert!(built.status.success(), "building {name} failed: {}", built.status);
    let messages = String::from_utf8_lossy(&built.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let named = messages.filter(|message| message.target.as_ref().is_some_and(|target| target.name == name));
    let executable = named.filter_map(|message| message.executable).next_back();
    executable.unwrap_or_else(|| panic!("the workspace has no binary {name}"))
}
