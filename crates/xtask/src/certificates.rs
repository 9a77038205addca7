//! Makes a certificate for 127.0.0.1, and an authority whose key is deleted at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reprieve_azurite::Tls;

use crate::command::Failure;

/// The validity: a test run, and not much longer.
const DAYS: &str = "2";

pub(crate) struct Certificates {
    /// The authority's certificate, for clients to trust.
    pub(crate) ca: PathBuf,
    /// The server's certificate and key.
    pub(crate) tls: Tls,
}

/// Makes the certificates in `directory` with the `openssl` command, version 3 or later.
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

/// Returns the command that makes a key and its certificate.
fn request(subject: &str, certificate: &Path, key: &Path) -> Command {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]);
    command.args(["-days", DAYS, "-subj", subject]);
    command.arg("-out").arg(certificate).arg("-keyout").arg(key);
    command
}

/// Runs the command; an error contains the last line of its output.
fn run(mut command: Command) -> Result<(), Failure> {
    let ran = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Failed(format!("`openssl` could not be started: {error}")))?;
    if ran.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let reason = stderr.lines().next_back().unwrap_or_default();
    Err(Failure::Failed(format!("`openssl req` failed with {}: {reason}", ran.status)))
}
