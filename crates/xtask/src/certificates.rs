//! Makes a certificate for 127.0.0.1, and an authority that vouches for it, of which nobody keeps the key.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::azurite::Tls;

use crate::command::Failure;

/// How long they are good for: a test run, and not much longer.
const DAYS: &str = "2";

pub(crate) struct Certificates {
    /// The authority's certificate, which a client is to trust.
    pub(crate) ca: PathBuf,
    /// The server's.
    pub(crate) tls: Tls,
}

/// Makes them in `directory`, by the `openssl` command, of version 3 or later.
pub(crate) fn certify(directory: &Path) -> Result<Certificates, Failure> {
    let (ca, ca_key) = (directory.join("ca.pem"), directory.join("ca.key"));
    let tls = Tls { certificate: directory.join("server.pem"), key: directory.join("server.key") };

    let mut authority = request("/CN=an authority for one test run", &ca, &ca_key);
    authority.args(["-addext", "basicConstraints=critical,CA:TRUE"]);
    authority.args(["-addext", "keyUsage=critical,keyCertSign"]);
    run(authority)?;
    // A certificate that may sign others is refused as a server's.
    let mut server = request("/CN=Azurite", &tls.certificate, &tls.key);
    server.arg("-CA").arg(&ca).arg("-CAkey").arg(&ca_key);
    server.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    server.args(["-addext", "keyUsage=critical,digitalSignature", "-addext", "extendedKeyUsage=serverAuth"]);
    server.args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
    run(server)?;
    fs::remove_file(&ca_key)
        .map_err(|error| Failure::Failed(format!("{} can't be removed: {error}", ca_key.display())))?;
    Ok(Certificates { ca, tls })
}

/// A new key, and a certificate for it.
fn request(subject: &str, certificate: &Path, key: &Path) -> Command {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]);
    command.args(["-days", DAYS, "-subj", subject]);
    command.arg("-out").arg(certificate).arg("-keyout").arg(key);
    command
}

/// Runs it in silence; if it fails, what it said is the reason.
fn run(mut command: Command) -> Result<(), Failure> {
    let ran = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Failed(format!("`openssl` could not be started: {error}")))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let reason = said.lines().next_back().unwrap_or_default();
    Err(Failure::Failed(format!("`openssl req` failed with {}: {reason}", ran.status)))
}
